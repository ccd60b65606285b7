from __future__ import annotations

from typing import Any, Final

import pytest

from leveret.policies.arguments import (
    ARGUMENTS,
    MAX_TTL_MS,
    argument_error,
    compared_arguments,
    known_arguments,
    queue_type_error,
    refuse_consumer,
    unsupported_argument,
)
from leveret.protocol.field_table import INTEGER_KINDS, TYPE_NAMES

#: A value of every type of the wire, by the type's name.
VALUES: Final[dict[str, Any]] = {
    "bool": True,
    "byte": 1,
    "unsignedbyte": 1,
    "short": 1,
    "unsignedshort": 1,
    "signedint": 1,
    "unsignedint": 1,
    "long": 1,
    "float": 1.0,
    "double": 1.0,
    "decimal": (0, 1),
    "longstr": b"1",
    "binary": b"1",
    "timestamp": 1,
    "array": (),
    "table": (),
    "void": None,
}
INTEGER_TYPES: Final = {TYPE_NAMES[kind] for kind in INTEGER_KINDS}

INTEGERS: Final = {
    "x-expires",
    "x-message-ttl",
    "x-max-length",
    "x-max-length-bytes",
    "x-max-in-memory-length",
    "x-max-in-memory-bytes",
    "x-max-priority",
    "x-queue-version",
    "x-quorum-initial-group-size",
    "x-consumer-timeout",
    "x-redelivery-limit",
    "x-stream-max-segment-size-bytes",
    "x-initial-cluster-size",
}
STRINGS: Final = {
    "x-queue-leader-locator",
    "x-dead-letter-exchange",
    "x-dead-letter-routing-key",
    "x-dead-letter-strategy",
    "x-delayed-retry-steps",
    "x-length-counts",
    "x-overflow",
    "x-queue-mode",
}
#: Integers that cannot be 0.
POSITIVE: Final = (
    "x-consumer-timeout",
    "x-expires",
    "x-initial-cluster-size",
    "x-queue-version",
    "x-quorum-initial-group-size",
)
#: Arguments that mean nothing to Leveret, or are checked elsewhere: any value will do.
UNCHECKED: Final = {
    "x-delayed-retry-type",
    "x-delayed-retry-min",
    "x-delayed-retry-max",
    "x-delivery-limit",
    "x-queue-type",
    "x-queue-master-locator",
    "x-message-deduplication",
}


def refusal(name: str, type_name: str, value: object, **others: tuple[str, object]) -> str | None:
    return argument_error(name, {name: (type_name, value)} | {key.replace("_", "-"): v for key, v in others.items()})


def test_every_row_is_under_test() -> None:
    assert set(ARGUMENTS) == INTEGERS | STRINGS | UNCHECKED | {"x-single-active-consumer", "x-max-age"}
    assert set(VALUES) == set(TYPE_NAMES.values())


class TestTypes:
    @pytest.mark.parametrize("type_name", VALUES)
    @pytest.mark.parametrize("name", sorted(INTEGERS))
    def test_integers_of_any_width(self, name: str, type_name: str) -> None:
        expected = None if type_name in INTEGER_TYPES else f'"expected integer, got {type_name}"'
        assert refusal(name, type_name, VALUES[type_name]) == expected

    @pytest.mark.parametrize("type_name", sorted(set(VALUES) - {"longstr"}))
    @pytest.mark.parametrize("name", sorted(STRINGS))
    def test_strings_are_long_strings(self, name: str, type_name: str) -> None:
        others = {"x_dead_letter_exchange": ("longstr", b"")} if name.endswith("routing-key") else {}
        assert refusal(name, type_name, VALUES[type_name], **others) == f"{{unacceptable_type,{type_name}}}"

    @pytest.mark.parametrize("type_name", VALUES)
    def test_single_active_consumer_is_a_bool(self, type_name: str) -> None:
        expected = None if type_name == "bool" else f"{{unacceptable_type,{type_name}}}"
        assert refusal("x-single-active-consumer", type_name, VALUES[type_name]) == expected

    @pytest.mark.parametrize("type_name", VALUES)
    @pytest.mark.parametrize("name", sorted(UNCHECKED))
    def test_the_others_take_anything(self, name: str, type_name: str) -> None:
        assert refusal(name, type_name, VALUES[type_name]) is None

    @pytest.mark.parametrize("type_name", VALUES)
    def test_an_argument_that_nobody_knows_takes_anything(self, type_name: str) -> None:
        assert refusal("x-foo", type_name, VALUES[type_name]) is None


class TestRanges:
    @pytest.mark.parametrize("name", sorted(INTEGERS.difference(POSITIVE)))
    @pytest.mark.parametrize("value", [0, 1, 255])
    def test_good_values(self, name: str, value: int) -> None:
        assert refusal(name, "long", value) is None

    @pytest.mark.parametrize("name", sorted(INTEGERS))
    @pytest.mark.parametrize("value", [-1, -(2**63)])
    def test_nothing_is_negative(self, name: str, value: int) -> None:
        assert refusal(name, "long", value) == f"{{value_negative,{value}}}"

    @pytest.mark.parametrize("name", ["x-max-length", "x-max-length-bytes", "x-max-in-memory-length"])
    def test_lengths_have_no_upper_bound(self, name: str) -> None:
        assert refusal(name, "long", 2**62) is None

    @pytest.mark.parametrize("name", ["x-message-ttl", "x-expires", "x-consumer-timeout"])
    def test_times_go_up_to_ten_years(self, name: str) -> None:
        assert MAX_TTL_MS == 10 * 365 * 24 * 60 * 60 * 1000
        assert refusal(name, "long", MAX_TTL_MS) is None
        assert refusal(name, "long", MAX_TTL_MS + 1) == f"{{value_too_large,{MAX_TTL_MS + 1}}}"

    @pytest.mark.parametrize("name", ["x-expires", "x-initial-cluster-size", "x-quorum-initial-group-size"])
    def test_what_cannot_be_zero(self, name: str) -> None:
        assert refusal(name, "signedint", 0) == "{value_zero,0}"
        assert refusal(name, "signedint", 1) is None

    def test_priorities_go_up_to_255(self) -> None:
        assert refusal("x-max-priority", "signedint", 255) is None
        assert refusal("x-max-priority", "signedint", 256) == "{max_value_exceeded,256}"

    @pytest.mark.parametrize("value", [1, 2])
    def test_good_queue_versions(self, value: int) -> None:
        assert refusal("x-queue-version", "byte", value) is None

    @pytest.mark.parametrize("value", [0, 3])
    def test_bad_queue_versions(self, value: int) -> None:
        assert refusal("x-queue-version", "byte", value) == f"\"unsupported queue version '{value}'\""


class TestWords:
    @pytest.mark.parametrize("value", [b"drop-head", b"reject-publish", b"reject-publish-dlx"])
    def test_good_overflow(self, value: bytes) -> None:
        assert refusal("x-overflow", "longstr", value) is None

    @pytest.mark.parametrize("value", [b"", b"Drop-Head", b"drop-tail", b"\xff"])
    def test_bad_overflow(self, value: bytes) -> None:
        assert refusal("x-overflow", "longstr", value) == "invalid_overflow"

    def test_what_length_limits_count(self) -> None:
        assert [refusal("x-length-counts", "longstr", value) for value in (b"ready", b"all")] == [None, None]
        assert refusal("x-length-counts", "longstr", b"unacked") == "invalid_length_counts"

    def test_delayed_retry_steps(self) -> None:
        assert refusal("x-delayed-retry-steps", "longstr", b"1s, 10s,1m") is None
        text = "\"expected delays such as 1s,10s,1m, got '1'\""
        assert refusal("x-delayed-retry-steps", "longstr", b"1") == text
        text = "\"expected delays such as 1s,10s,1m, got '\udcff'\""
        assert refusal("x-delayed-retry-steps", "longstr", b"\xff") == text

    @pytest.mark.parametrize("value", [b"at-most-once", b"at-least-once"])
    def test_good_dead_letter_strategies(self, value: bytes) -> None:
        assert refusal("x-dead-letter-strategy", "longstr", value) is None

    @pytest.mark.parametrize("value", [b"", b"at-least-twice"])
    def test_bad_dead_letter_strategies(self, value: bytes) -> None:
        assert refusal("x-dead-letter-strategy", "longstr", value) == "invalid_dlx_strategy"

    @pytest.mark.parametrize("value", [b"default", b"lazy"])
    def test_good_queue_modes(self, value: bytes) -> None:
        assert refusal("x-queue-mode", "longstr", value) is None

    @pytest.mark.parametrize(
        ("value", "shown"), [(b"zz", "zz"), (b"", ""), (b"LAZY", "LAZY"), ("ü".encode(), "ü"), (b"100%s", "100%s")]
    )
    def test_bad_queue_modes(self, value: bytes, shown: str) -> None:
        assert refusal("x-queue-mode", "longstr", value) == f"\"unsupported queue mode '{shown}'\""

    @pytest.mark.parametrize("value", [b"", b"dlx", b"x" * 256, b"\xff"])
    def test_any_string_names_a_dead_letter_exchange(self, value: bytes) -> None:
        assert refusal("x-dead-letter-exchange", "longstr", value) is None

    def test_a_dead_letter_routing_key_needs_an_exchange(self) -> None:
        name = "x-dead-letter-routing-key"
        assert refusal(name, "longstr", b"k") == "routing_key_but_no_dlx_defined"
        assert refusal(name, "longstr", b"k", x_dead_letter_exchange=("longstr", b"")) is None

    def test_its_type_is_looked_at_first(self) -> None:
        assert refusal("x-dead-letter-routing-key", "signedint", 1) == "{unacceptable_type,signedint}"


class TestAges:
    def test_an_age(self) -> None:
        assert refusal("x-max-age", "longstr", b"7D") is None
        assert refusal("x-max-age", "longstr", b"7d") == "invalid_max_age"
        assert refusal("x-max-age", "longstr", b"\xff") == "invalid_max_age"

    @pytest.mark.parametrize("type_name", sorted(set(VALUES) - {"longstr"}))
    def test_of_another_type(self, type_name: str) -> None:
        assert refusal("x-max-age", type_name, VALUES[type_name]) == f"{{unacceptable_type,{type_name}}}"


class TestQueueTypes:
    def test_streams_compare_these_in_this_order(self) -> None:
        assert known_arguments("stream") == (
            "x-max-length-bytes",
            "x-queue-type",
            "x-max-age",
            "x-stream-max-segment-size-bytes",
            "x-initial-cluster-size",
            "x-queue-leader-locator",
            "x-message-deduplication",
        )

    def test_classic_queues_know_these_in_this_order(self) -> None:
        assert known_arguments("classic") == (
            "x-expires",
            "x-message-ttl",
            "x-dead-letter-exchange",
            "x-dead-letter-routing-key",
            "x-max-length",
            "x-max-length-bytes",
            "x-max-priority",
            "x-overflow",
            "x-queue-mode",
            "x-queue-version",
            "x-single-active-consumer",
            "x-queue-type",
            "x-queue-master-locator",
            "x-consumer-timeout",
            "x-length-counts",
            "x-redelivery-limit",
            "x-delayed-retry-type",
            "x-delayed-retry-min",
            "x-delayed-retry-max",
            "x-delayed-retry-steps",
            "x-message-deduplication",
        )

    @pytest.mark.parametrize("queue_type", ["classic", "quorum", "stream"])
    def test_what_a_type_knows_is_not_foreign_to_it(self, queue_type: str) -> None:
        known = frozenset(known_arguments(queue_type))
        assert unsupported_argument(queue_type, known | {"x-foo", "max-length"}) is None
        for name in ARGUMENTS.keys() - known:
            assert unsupported_argument(queue_type, known | {name}) == name

    def test_the_first_one_counts(self) -> None:
        assert unsupported_argument("classic", ["x-max-length", "x-max-age", "x-delivery-limit"]) == "x-max-age"
        assert unsupported_argument("classic", ["x-delivery-limit", "x-max-age"]) == "x-delivery-limit"

    @pytest.mark.parametrize(
        "name",
        [
            "x-delivery-limit",
            "x-max-in-memory-length",
            "x-max-in-memory-bytes",
            "x-dead-letter-strategy",
            "x-max-age",
            "x-stream-max-segment-size-bytes",
            "x-initial-cluster-size",
            "x-quorum-initial-group-size",
            "x-queue-leader-locator",
        ],
    )
    def test_foreign_to_classic_queues(self, name: str) -> None:
        assert unsupported_argument("classic", frozenset((name,))) == name

    @pytest.mark.parametrize(
        ("queue_type", "name"),
        [
            ("quorum", "x-max-priority"),
            ("quorum", "x-queue-mode"),
            ("stream", "x-message-ttl"),
            ("stream", "x-max-length"),
        ],
    )
    def test_foreign_to_others(self, queue_type: str, name: str) -> None:
        assert unsupported_argument(queue_type, frozenset((name,))) == name

    def test_nothing_is_foreign_where_nothing_is_asked(self) -> None:
        assert unsupported_argument("classic", frozenset()) is None

    @pytest.mark.parametrize("value", [b"classic", b"quorum", b"stream"])
    def test_good_queue_types(self, value: bytes) -> None:
        assert queue_type_error("longstr", value) is None

    @pytest.mark.parametrize(
        ("type_name", "value", "expected"),
        [
            ("longstr", b"zz", "\"unsupported queue type 'zz'\""),
            ("longstr", b"", "\"unsupported queue type ''\""),
            ("longstr", b"Classic", "\"unsupported queue type 'Classic'\""),
            ("signedint", 1, "{unacceptable_type,signedint}"),
            ("binary", b"classic", "{unacceptable_type,binary}"),
        ],
    )
    def test_bad_queue_types(self, type_name: str, value: object, expected: str) -> None:
        assert queue_type_error(type_name, value) == expected


@pytest.mark.parametrize("queue_type", ["classic", "quorum", "stream"])
def test_a_second_declaration_may_differ_in_deduplication_only(queue_type: str) -> None:
    known = [name for name in known_arguments(queue_type) if name != "x-message-deduplication"]
    assert list(compared_arguments(queue_type)) == known


@pytest.mark.parametrize("type_name", VALUES)
def test_consumer_priorities_are_integers_of_any_width(type_name: str) -> None:
    expected = None if type_name in INTEGER_TYPES else ("x-priority", f'"expected integer, got {type_name}"')
    assert refuse_consumer("classic", {"x-priority": (type_name, VALUES[type_name])}) == expected


@pytest.mark.parametrize("value", [-(2**63), -1, 0, 2**63 - 1])
def test_consumer_priorities_have_any_sign(value: int) -> None:
    assert refuse_consumer("quorum", {"x-priority": ("long", value)}) is None


@pytest.mark.parametrize(
    ("queue_type", "names", "expected"),
    [
        ("classic", {"x-foo": "table"}, None),
        ("classic", {"x-cancel-on-ha-failover": "bool"}, None),
        ("classic", {"x-cancel-on-ha-failover": "void"}, ("x-cancel-on-ha-failover", "{unacceptable_type,void}")),
        ("classic", {"x-stream-offset": "long"}, ("x-stream-offset", None)),
        ("classic", {"x-stream-offset": "long", "x-cancel-on-ha-failover": "bool"}, ("x-stream-offset", None)),
        (
            "classic",
            {"x-stream-offset": "long", "x-cancel-on-ha-failover": "long"},
            ("x-cancel-on-ha-failover", "{unacceptable_type,long}"),
        ),
        ("quorum", {"x-cancel-on-ha-failover": "void"}, ("x-cancel-on-ha-failover", None)),
        ("quorum", {"x-stream-offset": "long", "x-cancel-on-ha-failover": "bool"}, ("x-stream-offset", None)),
    ],
)
def test_other_arguments_of_consumers(
    queue_type: str, names: dict[str, str], expected: tuple[str, str | None] | None
) -> None:
    assert refuse_consumer(queue_type, {name: (kind, VALUES[kind]) for name, kind in names.items()}) == expected
