"""What a death leaves in the headers (rules 2.3), and which dead letters go in circles (2.4)."""

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
    record_death,
    visited_queues,
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
    def test_other_headers_stay_and_all_are_sorted_by_bytes(self) -> None:
        given_headers: Table = (("z", ("I", 1)), ("a", ("t", True)), ("Z", text("y")), ("ä", ("V", None)))
        headers = through(died(), headers=given_headers)
        assert [key for key, _ in headers] == ["Z", "a", "x-death", *FIRST, *LAST, "z", "ä"]
        assert set(given_headers) <= set(headers)

    def test_names_that_are_no_utf_8_keep_their_bytes(self) -> None:
        queue = b"\xff".decode("utf-8", "surrogateescape")
        headers = through(died(queue), died(queue))
        assert [(entry["queue"], entry["count"]) for entry in entries(headers)] == [(b"\xff", 2)]
        assert queue in visited_queues(headers)


class TestLaterDeaths:
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
    def test_the_fields_of_an_entry_that_is_counted_are_sorted_by_bytes(self) -> None:
        made_up = ("\udc80", "é", "\udcff", "\U0001f407")
        entry = (("queue", text("q")), ("reason", text("maxlen")), *((name, ("t", True)) for name in made_up))
        headers = through(died(), headers=(("x-death", ("A", (("F", entry),))),))
        fields = [name for name, _ in dict(headers)["x-death"][1][0][1]]
        assert fields == ["count", "queue", "reason", "\udc80", "é", "\U0001f407", "\udcff"]

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
        visited_queues(headers)
        encode_table(normalize(headers))  # type: ignore[arg-type]


class TestCircles:
    @pytest.mark.parametrize("headers", [(), (("other", ("I", 1)),)])
    def test_who_never_died_goes_in_no_circle(self, headers: Table) -> None:
        assert "q" not in visited_queues(headers)

    @given(
        st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from([REJECTED, EXPIRED, MAXLEN])), min_size=1),
        st.sampled_from("abc"),
    )
    def test_the_rule_in_other_words(self, events: list[tuple[str, str]], target: str) -> None:
        headers = through(*(died(*event) for event in events))
        found = seen(headers)
        position = next((at for at, (queue, _, _) in enumerate(found) if queue == target), None)
        expected = position is not None and all(reason != REJECTED for _, reason, _ in found[: position + 1])
        assert (target in visited_queues(headers)) is expected
