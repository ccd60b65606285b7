"""What each policy key takes, in which texts it is refused, and how it meets other policies (rules 3.1 to 3.3)."""

from __future__ import annotations

from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.policies.keys import KEYS, Merge, fits, merge_operator, operator_replaces, refuse_definition
from leveret.protocol.erlang_terms import format_json

#: Values that no key takes, whatever it is for.
NEVER: Final[tuple[Any, ...]] = (None, True, False, [], {}, ["a"], {"a": 1}, 1.5)

#: Key, values that it takes, values that it refuses beside NEVER, the end of the error text.
ROWS: Final[tuple[tuple[str, tuple[Any, ...], tuple[Any, ...], str], ...]] = (
    ("alternate-exchange", ("", "x", "ä" * 200), (1, 0), "alternate exchange name"),
    ("max-delayed", (0, 1, 1 << 70), (-1, "10", 1.0), "maximum number of delayed messages"),
    ("x-cache-size", (1, 1 << 70), (0, -1, "10", 1.0), "must be an integer greater than 0"),
    ("x-cache-ttl", (1, 1 << 70), (0, -1, "10", 1.0), "must be an integer greater than 0"),
    ("x-cache-persistence", ("memory", "disk"), ("", "Disk", 1), 'must be either "disk" or "memory"'),
    ("x-message-deduplication", (True, False), ("true", 1, 0), "must be a boolean"),
    ("expires", (1, 1 << 70), (0, -1, "10", 1.0), "queue expiry"),
    ("dead-letter-exchange", ("", "x"), (1,), "dead letter exchange name"),
    ("dead-letter-routing-key", ("", "k"), (1,), "dead letter routing key"),
    ("dead-letter-strategy", ("at-most-once", "at-least-once"), ("", "never", 1), "dead letter strategy"),
    ("message-ttl", (0, 1, 1 << 70), (-1, "10", 1.0), "message TTL"),
    ("max-length", (0, 1, 1 << 62), (-1, "10", 1.0), "maximum length"),
    ("max-length-bytes", (0, 1 << 62), (-1, "10", 1.0), "maximum length in bytes"),
    ("max-in-memory-length", (0, 5), (-1, "10", 1.0), "maximum memory in bytes"),
    ("max-in-memory-bytes", (0, 5), (-1, "10", 1.0), "maximum memory in bytes"),
    (
        "overflow",
        ("drop-head", "reject-publish", "reject-publish-dlx"),
        ("", "bogus", "Drop-Head", 1),
        "overflow value",
    ),
    ("consumer-timeout", (1, 1 << 70), (0, -1, "10", 1.0), "consumer timeout"),
    ("length-counts", ("ready", "all"), ("", "All", 1), "length-counts value"),
    ("queue-mode", ("default", "lazy"), ("", "Lazy", 1), "queue-mode value"),
    ("queue-version", (1, 2), (0, 3, "1", 1.0, 2.0), "queue-version value"),
    ("delivery-limit", (0, 5), ("10", 1.0), "delivery limit"),
    ("redelivery-limit", (0, 5), (-1, "10", 1.0), "redelivery limit"),
    (
        "delayed-retry-type",
        ("disabled", "all", "failed", "returned"),
        ("", "All", 1),
        "delayed retry type. Must be one of: all, failed, returned, disabled",
    ),
    (
        "delayed-retry-min",
        (1, 1 << 70),
        (0, -1, "10", 1.0),
        "delayed retry minimum delay. Must be a positive integer",
    ),
    (
        "delayed-retry-max",
        (1, 1 << 70),
        (0, -1, "10", 1.0),
        "delayed retry maximum delay. Must be a positive integer",
    ),
    (
        "delayed-retry-steps",
        ("1s", "1s,10s,1m", "500ms, 2h,1d"),
        ("", "1", "s", "0s", "-1s", "1.5s", "1s,", "1w", "²s", 1, ",".join(["1s"] * 101)),
        "list of delayed retry steps. Must be delays such as 1s,10s,1m",
    ),
    ("max-age", ("1Y", "12M", "3D", "4h", "5m", "60s"), ("", "s", "0s", "-1s", "1", "1w", "1.5h", "²D", 60), "max age"),
    ("stream-max-segment-size-bytes", (0, 3_000_000_000), (3_000_000_001, -1, "1"), "segment size"),
    (
        "queue-leader-locator",
        ("client-local", "balanced", "random", "least-leaders"),
        ("", "x", 1),
        "queue leader locator value",
    ),
    ("initial-cluster-size", (1, 7), (0, -1, "1"), "cluster size"),
)
BY_NAME: Final = {row[0]: row for row in ROWS}

#: Rule 3.3.4, with those that later releases allow, and our own.
OPERATOR: Final = {
    "expires", "message-ttl", "max-length", "max-length-bytes", "max-in-memory-length", "max-in-memory-bytes",
    "delivery-limit", "overflow", "queue-version", "length-counts", "consumer-timeout",
    "redelivery-limit", "delayed-retry-type", "delayed-retry-min", "delayed-retry-max", "delayed-retry-steps",
}  # fmt: skip

#: Rules 3.2.7 and 3.2.8.
UNFIT: Final = {
    "classic": {
        "max-age", "stream-max-segment-size-bytes", "queue-leader-locator", "initial-cluster-size", "delivery-limit",
        "dead-letter-strategy",
    },
    "quorum": {"queue-mode", "max-age", "stream-max-segment-size-bytes", "initial-cluster-size"},
    "stream": {
        "expires", "message-ttl", "dead-letter-exchange", "dead-letter-routing-key", "dead-letter-strategy",
        "max-length", "max-in-memory-length", "max-in-memory-bytes", "overflow", "queue-mode", "delivery-limit",
        "length-counts", "consumer-timeout", "redelivery-limit",
        "delayed-retry-type", "delayed-retry-min", "delayed-retry-max", "delayed-retry-steps",
    },
}  # fmt: skip


def test_there_is_a_row_for_every_key() -> None:
    assert BY_NAME.keys() == KEYS.keys()


@pytest.mark.parametrize(("name", "value"), [(row[0], value) for row in ROWS for value in row[1]])
def test_a_value_is_taken(name: str, value: Any) -> None:
    beside = {"delayed-retry-min": 1} if name == "delayed-retry-type" else {}
    assert refuse_definition({name: value, **beside}, operator=False) is None


@pytest.mark.parametrize(
    ("name", "value"),
    [
        (row[0], value)
        for row in ROWS
        for value in (*row[2], *NEVER)
        if not (isinstance(value, bool) and isinstance(row[1][0], bool))
    ],
)
def test_a_value_is_refused_with_the_text_of_its_key(name: str, value: Any) -> None:
    text = f"{format_json(value)} is not a valid {BY_NAME[name][3]}"
    if BY_NAME[name][3].startswith("must"):
        text = f'"{name}" {BY_NAME[name][3]}, got {format_json(value)}'
    assert refuse_definition({name: value}, operator=False) == text


@pytest.mark.parametrize(
    ("definition", "text"),
    [
        ({"delayed-retry-type": "all"}, "delayed-retry-min is required when delayed-retry-type is all"),
        (
            {"delayed-retry-type": "all", "delayed-retry-max": 5},
            "delayed-retry-min is required when delayed-retry-type is all",
        ),
        (
            {"delayed-retry-min": 10, "delayed-retry-max": 5},
            "delayed-retry-max (5) must not be smaller than delayed-retry-min (10)",
        ),
        ({"max-length": -1}, "-1 is not a valid maximum length"),
        ({"max-length-bytes": -1}, "-1 is not a valid maximum length in bytes"),
        ({"max-length": "10"}, '<<"10">> is not a valid maximum length'),
        ({"max-length": 1.5}, "1.5 is not a valid maximum length"),
        ({"max-length": True}, "true is not a valid maximum length"),
        ({"overflow": "bogus"}, '<<"bogus">> is not a valid overflow value'),
        ({"queue-mode": "bogus"}, '<<"bogus">> is not a valid queue-mode value'),
        ({"queue-version": 3}, "3 is not a valid queue-version value"),
        ({"message-ttl": -1}, "-1 is not a valid message TTL"),
        ({"expires": 0}, "0 is not a valid queue expiry"),
        ({"dead-letter-exchange": 1}, "1 is not a valid dead letter exchange name"),
        ({"dead-letter-routing-key": 1}, "1 is not a valid dead letter routing key"),
        ({"alternate-exchange": 1}, "1 is not a valid alternate exchange name"),
        ({"dead-letter-strategy": "x"}, '<<"x">> is not a valid dead letter strategy'),
        ({}, "no policy provided"),
        ({"nope": 1}, '[{<<"nope">>,1}] are not recognised policy settings'),
        (
            {"nope": 1, "max-length": 1, "x-max-length": "a"},
            '[{<<"nope">>,1},{<<"x-max-length">>,<<"a">>}] are not recognised policy settings',
        ),
    ],
)
def test_the_texts_are_those_of_rabbitmq(definition: dict[str, Any], text: str) -> None:
    """Rules 3.1.5 to 3.1.7."""
    assert refuse_definition(definition, operator=False) == text


def test_delayed_retries_with_steps_need_no_least_delay() -> None:
    assert refuse_definition({"delayed-retry-type": "all", "delayed-retry-steps": "1s,10s"}, operator=False) is None


def test_unknown_keys_are_reported_only_where_the_known_ones_are_valid() -> None:
    assert refuse_definition({"nope": 1, "max-length": -1}, operator=False) == "-1 is not a valid maximum length"


@pytest.mark.parametrize(
    "name", ["x-max-length", "max-priority", "queue-type", "single-active-consumer", "Max-Length", ""]
)
def test_what_is_no_policy_key(name: str) -> None:
    shown = f'<<"{name}">>' if name else "<<>>"
    assert refuse_definition({name: 1}, operator=False) == f"[{{{shown},1}}] are not recognised policy settings"


@pytest.mark.parametrize("name", [row[0] for row in ROWS])
def test_operator_policies_hold_fewer_keys(name: str) -> None:
    value = BY_NAME[name][1][0]
    text = None if name in OPERATOR else f'[{{<<"{name}">>,{format_json(value)}}}] are not recognised policy settings'
    assert refuse_definition({name: value}, operator=True) == text


@pytest.mark.parametrize("queue_type", UNFIT)
@pytest.mark.parametrize("name", [row[0] for row in ROWS])
def test_one_unfit_key_passes_a_policy_over(name: str, queue_type: str) -> None:
    unfit = name in UNFIT[queue_type]
    assert fits({name: BY_NAME[name][1][0]}, queue_type) is not unfit
    assert fits({name: BY_NAME[name][1][0], "max-length-bytes": 1}, queue_type) is not unfit


def test_unknown_keys_fit_everywhere() -> None:
    assert fits({"nope": 1}, "classic")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1, "1"),
        (-1.5, "-1.5"),
        (True, "true"),
        (False, "false"),
        (None, "null"),
        ("a", '<<"a">>'),
        ("", "<<>>"),
        ('a"\\\n', '<<"a\\"\\\\\\n">>'),
        ("ü", '<<"ü">>'),
        ("À", "<<195,128>>"),
        ("a\0", "<<97,0>>"),
        ([1, "a", [True]], '[1,<<"a">>,[true]]'),
        ({"a": 1, "b": "c"}, '#{<<"a">> => 1,<<"b">> => <<"c">>}'),
    ],
)
def test_values_are_shown_as_erlang_shows_them(value: Any, text: str) -> None:
    assert format_json(value) == text


class TestMergingWithAnOperatorPolicy:
    @pytest.mark.parametrize(
        "name",
        sorted(name for name in OPERATOR if not operator_replaces(name) and name != "delayed-retry-min"),
    )
    def test_the_smaller_number_counts(self, name: str) -> None:
        assert merge_operator({name: 20}, {name: 3}) == {name: 3}
        assert merge_operator({name: 3}, {name: 20}) == {name: 3}

    def test_overflow_and_version_are_the_operators(self) -> None:
        user = {"overflow": "drop-head", "queue-version": 1}
        operator = {"overflow": "reject-publish", "queue-version": 2}
        assert merge_operator(user, operator) == operator
        assert merge_operator(operator, user) == user

    def test_delayed_retries(self) -> None:
        user = {"delayed-retry-type": "all", "delayed-retry-min": 10, "delayed-retry-max": 100}
        operator = {"delayed-retry-type": "failed", "delayed-retry-min": 5, "delayed-retry-max": 50}
        expected = {"delayed-retry-type": "failed", "delayed-retry-min": 10, "delayed-retry-max": 50}
        assert merge_operator(user, operator) == expected
        assert merge_operator(operator, user) == expected | {"delayed-retry-type": "all"}

    @given(
        st.dictionaries(st.sampled_from(["max-length", "max-length-bytes", "message-ttl"]), st.integers(0, 99)),
        st.dictionaries(st.sampled_from(["max-length", "max-length-bytes", "expires"]), st.integers(1, 99)),
    )
    def test_the_keys_of_both_are_in_force(self, user: dict[str, int], operator: dict[str, int]) -> None:
        before = (dict(user), dict(operator))
        merged = merge_operator(user, operator)
        assert merged.keys() == user.keys() | operator.keys()
        for name, value in merged.items():
            assert value == min(each[name] for each in (user, operator) if name in each)
        assert (user, operator) == before, "neither is changed"


def test_how_a_policy_meets_an_argument() -> None:
    """Rules 3.3.1 and 3.3.3."""
    least = {"max-length", "max-length-bytes", "message-ttl", "expires"}
    argument_first = {"overflow", "dead-letter-exchange", "dead-letter-routing-key", "queue-mode", "queue-version"}
    assert {name for name in least if KEYS[name].merge_for("classic") is Merge.MIN} == least
    assert {name for name in argument_first if KEYS[name].merge_for("classic") is Merge.ARGUMENT} == argument_first
    quorum = {name: KEYS[name].merge_for("quorum") for name in KEYS if "quorum" in KEYS[name].queue_types}
    assert {name for name, merge in quorum.items() if merge is Merge.POLICY} == {
        "overflow",
        "expires",
        "delayed-retry-type",
        "delayed-retry-steps",
    }
    assert {"max-length", "max-length-bytes", "message-ttl", "delivery-limit"} <= {
        name for name, merge in quorum.items() if merge is Merge.MIN
    }


def test_the_argument_of_the_same_meaning() -> None:
    assert KEYS["max-length"].argument == "x-max-length"
