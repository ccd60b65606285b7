"""What a death leaves in the headers (queue semantics 2.3.x), and which dead letters go in circles (2.4.x)."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.policies.dead_letter import (
    DELIVERY_LIMIT,
    EXPIRED,
    MAXLEN,
    REJECTED,
    Death,
    Table,
    Value,
    is_cycle,
    record_death,
)
from leveret.protocol.field_table import FieldTable, decode_table, encode_table, normalize

FIRST = ("x-first-death-exchange", "x-first-death-queue", "x-first-death-reason")
LAST = ("x-last-death-exchange", "x-last-death-queue", "x-last-death-reason")


def died(queue: str = "q", reason: str = MAXLEN, time: int = 1000, **given: Any) -> Death:
    return Death(queue, reason, time, given.pop("exchange", "x"), given.pop("routing_keys", ["k"]), **given)


def through(*deaths: Death, headers: Table = (), trusted: bool = True) -> Table:
    """The headers of a message after these deaths; the first time its x-death may be the publisher's."""
    for number, death in enumerate(deaths):
        headers = record_death(headers, death, trusted or number > 0)
    return headers


def entries(headers: Table) -> list[dict[str, Any]]:
    """The entries of x-death without type letters."""
    kind, value = dict(headers)["x-death"]
    assert kind == "A"
    assert all(each[0] == "F" for each in value)
    return [{key: field[1] for key, field in entry} for _, entry in value]


def seen(headers: Table) -> list[tuple[str, str, int]]:
    """Queue, reason and count of each entry."""
    return [(entry["queue"].decode(), entry["reason"].decode(), entry["count"]) for entry in entries(headers)]


def text(value: str) -> Value:
    return ("S", value.encode())


class TestTheFirstDeath:
    def test_what_is_written(self) -> None:
        headers = through(died(original_expiration="0100", routing_keys=["k", "cc"]))
        assert headers == (
            (
                "x-death",
                (
                    "A",
                    (
                        (
                            "F",
                            (
                                ("count", ("l", 1)),
                                ("reason", text("maxlen")),
                                ("queue", text("q")),
                                ("time", ("T", 1000)),
                                ("exchange", text("x")),
                                ("routing-keys", ("A", (text("k"), text("cc")))),
                                ("original-expiration", text("0100")),
                            ),
                        ),
                    ),
                ),
            ),
            ("x-first-death-exchange", text("x")),
            ("x-first-death-queue", text("q")),
            ("x-first-death-reason", text("maxlen")),
            ("x-last-death-exchange", text("x")),
            ("x-last-death-queue", text("q")),
            ("x-last-death-reason", text("maxlen")),
        )

    def test_without_an_expiration_of_its_own_there_is_no_original_one(self) -> None:
        assert "original-expiration" not in entries(through(died(reason=EXPIRED)))[0]

    def test_the_default_exchange_is_a_name_too(self) -> None:
        assert dict(through(died(exchange="")))["x-first-death-exchange"] == text("")

    def test_other_headers_stay_and_all_are_sorted_by_bytes(self) -> None:
        given_headers: Table = (("z", ("I", 1)), ("a", ("t", True)), ("Z", text("y")), ("ä", ("V", None)))
        headers = through(died(), headers=given_headers)
        assert [key for key, _ in headers] == ["Z", "a", "x-death", *FIRST, *LAST, "z", "ä"]
        assert set(given_headers) <= set(headers)

    def test_a_clients_first_death_headers_are_overwritten(self) -> None:
        headers = through(died(), headers=tuple((key, text("forged")) for key in FIRST))
        assert dict(headers)["x-first-death-queue"] == text("q")
        assert len(headers) == 7

    def test_names_that_are_no_utf_8_keep_their_bytes(self) -> None:
        queue = b"\xff".decode("utf-8", "surrogateescape")
        headers = through(died(queue), died(queue))
        assert [(entry["queue"], entry["count"]) for entry in entries(headers)] == [(b"\xff", 2)]
        assert is_cycle(headers, queue)


class TestLaterDeaths:
    def test_the_newest_comes_first_and_the_first_stays_named(self) -> None:
        headers = through(died("a", exchange="x1"), died("b", EXPIRED, exchange="x2"), died("c", REJECTED))
        assert seen(headers) == [("c", "rejected", 1), ("b", "expired", 1), ("a", "maxlen", 1)]
        assert [dict(headers)[key] for key in FIRST] == [text("x1"), text("a"), text("maxlen")]
        assert [dict(headers)[key] for key in LAST] == [text("x"), text("c"), text("rejected")]

    def test_a_repeat_counts_up_moves_to_the_front_and_keeps_what_it_said_first(self) -> None:
        first = died("a", time=1, exchange="x1", routing_keys=["k1"], original_expiration="5")
        headers = through(first, died("b"), died("a", time=9, exchange="x2", routing_keys=["k2"]))
        assert seen(headers) == [("a", "maxlen", 2), ("b", "maxlen", 1)]
        entry = entries(headers)[0]
        assert (entry["time"], entry["exchange"], entry["original-expiration"]) == (1, b"x1", b"5")
        assert entry["routing-keys"] == (text("k1"),)

    def test_another_reason_is_another_entry(self) -> None:
        headers = through(died("a", REJECTED), died("a", EXPIRED), died("a", REJECTED), died("a", DELIVERY_LIMIT))
        assert seen(headers) == [("a", "delivery_limit", 1), ("a", "rejected", 2), ("a", "expired", 1)]

    def test_keys_of_later_entries_are_sorted(self) -> None:
        headers = through(died("a", original_expiration="1"), died("b", original_expiration="1"))
        newest = dict(headers)["x-death"][1][0][1]
        keys = [key for key, _ in newest]
        assert keys == sorted(keys)
        assert len(keys) == 7

    @given(
        st.lists(
            st.tuples(st.sampled_from("abc"), st.sampled_from([REJECTED, EXPIRED, MAXLEN, DELIVERY_LIMIT])), min_size=1
        )
    )
    def test_counts_order_and_uniqueness(self, events: list[tuple[str, str]]) -> None:
        headers = through(*(died(queue, reason) for queue, reason in events))
        found = seen(headers)
        assert {(queue, reason): count for queue, reason, count in found} == Counter(events)
        assert [(queue, reason) for queue, reason, _ in found] == list(dict.fromkeys(reversed(events)))
        assert dict(headers)["x-first-death-queue"] == text(events[0][0])
        assert dict(headers)["x-last-death-reason"] == text(events[-1][1])
        # It can be written, and reads the same.
        table: FieldTable = normalize(headers)  # type: ignore[arg-type]
        assert decode_table(encode_table(table)) == headers


class TestWhatPublishersMadeUp:
    FORGED: Table = (
        ("x-death", ("A", (("F", (("queue", text("q")), ("reason", text("maxlen")), ("count", ("l", 7)))),))),
        ("x-first-death-queue", text("f")),
    )

    def test_it_does_not_count(self) -> None:
        headers = through(died(), headers=self.FORGED, trusted=False)
        assert seen(headers) == [("q", "maxlen", 1)]
        assert dict(headers)["x-first-death-queue"] == text("q")

    def test_where_it_is_trusted_its_count_goes_on(self) -> None:
        headers = through(died(), headers=self.FORGED)
        assert seen(headers) == [("q", "maxlen", 8)]
        assert dict(headers)["x-first-death-queue"] == text("f")
        assert "x-first-death-reason" not in dict(headers)

    def test_the_fields_of_an_entry_that_is_counted_are_sorted_by_bytes(self) -> None:
        made_up = ("\udc80", "é", "\udcff", "\U0001f407")
        entry = (("queue", text("q")), ("reason", text("maxlen")), *((name, ("t", True)) for name in made_up))
        headers = through(died(), headers=(("x-death", ("A", (("F", entry),))),))
        fields = [name for name, _ in dict(headers)["x-death"][1][0][1]]
        assert fields == ["count", "queue", "reason", "\udc80", "é", "\U0001f407", "\udcff"]

    def test_equal_entries_become_one(self) -> None:
        """Rule 2.3.14: without a count each of them counts as one."""
        same: Value = ("F", (("queue", text("q")), ("reason", text("maxlen"))))
        other: Value = ("F", (("queue", text("q")), ("reason", text("expired")), ("count", ("l", 4))))
        headers = through(died(), headers=(("x-death", ("A", (same, other, same))),))
        assert seen(headers) == [("q", "maxlen", 3), ("q", "expired", 4)]

    @pytest.mark.parametrize("made_up", [("S", b"x"), ("I", 5), ("F", ()), ("V", None), ("t", True)])
    def test_what_is_no_array_is_replaced(self, made_up: Value) -> None:
        headers = through(died(), headers=(("x-death", made_up),))
        assert seen(headers) == [("q", "maxlen", 1)]
        assert not set(FIRST) & dict(headers).keys()

    @pytest.mark.parametrize(
        "element",
        [
            ("S", b"x"),
            ("F", ()),
            ("F", (("queue", ("I", 1)), ("reason", ("A", ())))),
            ("F", (("queue", text("q")), ("reason", text("maxlen")), ("count", text("many")))),
            ("F", (("queue", text("q")), ("reason", text("maxlen")), ("count", ("V", None)))),
            ("F", (("queue", text("q")), ("reason", text("maxlen")), ("count", ("l", (1 << 63) - 1)))),
        ],
    )
    def test_entries_of_any_kind_do_no_harm(self, element: Value) -> None:
        headers = through(died(), headers=(("x-death", ("A", (element,))),))
        newest = entries(headers)[0]
        assert (newest["queue"], newest["reason"]) == (b"q", b"maxlen")
        assert newest["count"] in (1, 2, (1 << 63) - 1)
        assert isinstance(is_cycle(headers, "other"), bool)
        encode_table(normalize(headers))  # type: ignore[arg-type]


class TestCircles:
    @pytest.mark.parametrize(
        ("deaths", "target", "circles"),
        [
            ([("a", EXPIRED)], "a", True),
            ([("a", MAXLEN)], "a", True),
            ([("a", DELIVERY_LIMIT)], "a", True),
            ([("a", EXPIRED)], "b", False),
            ([("a", EXPIRED), ("b", EXPIRED)], "a", True),
            ([("a", EXPIRED), ("b", EXPIRED)], "c", False),
            # Somebody has rejected it since: a retry queue may send it back for ever.
            ([("a", REJECTED), ("retry", EXPIRED)], "a", False),
            ([("a", REJECTED), ("retry", EXPIRED), ("a", REJECTED), ("retry", EXPIRED)], "a", False),
            # The rejection was before it had been in the target last.
            ([("a", REJECTED), ("b", EXPIRED), ("c", MAXLEN)], "b", True),
            ([("b", EXPIRED), ("a", REJECTED), ("c", MAXLEN)], "b", False),
            # In a queue for two reasons: the newest entry decides.
            ([("a", REJECTED), ("a", EXPIRED)], "a", True),
            ([("a", EXPIRED), ("a", REJECTED), ("b", EXPIRED)], "a", False),
        ],
    )
    def test_a_target_that_it_has_been_in(self, deaths: list[tuple[str, str]], target: str, circles: bool) -> None:
        assert is_cycle(through(*(died(*each) for each in deaths)), target) is circles

    @pytest.mark.parametrize("headers", [(), (("other", ("I", 1)),)])
    def test_who_never_died_goes_in_no_circle(self, headers: Table) -> None:
        assert not is_cycle(headers, "q")

    @given(
        st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from([REJECTED, EXPIRED, MAXLEN])), min_size=1),
        st.sampled_from("abc"),
    )
    def test_the_rule_in_other_words(self, events: list[tuple[str, str]], target: str) -> None:
        headers = through(*(died(*event) for event in events))
        found = seen(headers)
        position = next((at for at, (queue, _, _) in enumerate(found) if queue == target), None)
        expected = position is not None and all(reason != REJECTED for _, reason, _ in found[: position + 1])
        assert is_cycle(headers, target) is expected
