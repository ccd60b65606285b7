from __future__ import annotations

from typing import Any, Final

import pytest

from leveret.policies.arguments import (
    argument_error,
    compared_arguments,
    known_arguments,
    queue_type_error,
    refuse_consumer,
    unsupported_argument,
)
from leveret.policies.keys import ARGUMENTS, MAX_TTL_MS
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
TIMES: Final = ("x-consumer-timeout", "x-expires", "x-message-ttl")
#: Where there is an upper bound.
MOST: Final = dict.fromkeys(TIMES, MAX_TTL_MS) | {"x-max-priority": 255, "x-queue-version": 2}
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


@pytest.mark.parametrize("name", sorted(INTEGERS))
def test_integers_of_any_width(name: str) -> None:
    for type_name, value in VALUES.items():
        expected = None if type_name in INTEGER_TYPES else f'"expected integer, got {type_name}"'
        assert refusal(name, type_name, value) == expected


@pytest.mark.parametrize("name", sorted({*STRINGS, "x-max-age"}))
def test_strings_are_long_strings(name: str) -> None:
    others = {"x_dead_letter_exchange": ("longstr", b"")} if name.endswith("routing-key") else {}
    for type_name in VALUES.keys() - {"longstr"}:
        assert refusal(name, type_name, VALUES[type_name], **others) == f"{{unacceptable_type,{type_name}}}"


@pytest.mark.parametrize("type_name", VALUES)
def test_other_types(type_name: str) -> None:
    expected = None if type_name == "bool" else f"{{unacceptable_type,{type_name}}}"
    assert refusal("x-single-active-consumer", type_name, VALUES[type_name]) == expected
    for name in (*UNCHECKED, "x-foo"):
        assert refusal(name, type_name, VALUES[type_name]) is None


@pytest.mark.parametrize("name", sorted(INTEGERS))
def test_bounds(name: str) -> None:
    least, most = int(name in POSITIVE), MOST.get(name, 2**62)
    assert [refusal(name, "long", value) for value in (least, most)] == [None, None]
    for value in (-1, -(2**63)):
        assert refusal(name, "long", value) == f"{{value_negative,{value}}}"


def test_times_go_up_to_ten_years() -> None:
    assert MAX_TTL_MS == 10 * 365 * 24 * 60 * 60 * 1000


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        *((name, MAX_TTL_MS + 1, f"{{value_too_large,{MAX_TTL_MS + 1}}}") for name in TIMES),
        *((name, 0, "{value_zero,0}") for name in POSITIVE if name != "x-queue-version"),
        ("x-max-priority", 256, "{max_value_exceeded,256}"),
        ("x-queue-version", 0, "\"unsupported queue version '0'\""),
        ("x-queue-version", 3, "\"unsupported queue version '3'\""),
    ],
)
def test_out_of_bounds(name: str, value: int, expected: str) -> None:
    assert refusal(name, "long", value) == expected


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("x-overflow", ["drop-head", "reject-publish", "reject-publish-dlx"], {"": "invalid_overflow"}),
        ("x-length-counts", ["ready", "all"], {"unacked": "invalid_length_counts"}),
        ("x-dead-letter-strategy", ["at-most-once", "at-least-once"], {"at-least-twice": "invalid_dlx_strategy"}),
        ("x-dead-letter-exchange", ["", "dlx", "x" * 256, "\udcff"], {}),
        (
            "x-queue-mode",
            ["default", "lazy"],
            {each: f"\"unsupported queue mode '{each}'\"" for each in ("", "LAZY", "ü", "100%s")},
        ),
        ("x-max-age", ["7D"], dict.fromkeys(["7d", "\udcff"], "invalid_max_age")),
        (
            "x-delayed-retry-steps",
            ["1s, 10s,1m"],
            {each: f"\"expected delays such as 1s,10s,1m, got '{each}'\"" for each in ("1", "\udcff")},
        ),
    ],
)
def test_words(name: str, good: list[str], bad: dict[str, str]) -> None:
    found = {each: refusal(name, "longstr", each.encode("utf-8", "surrogateescape")) for each in (*good, *bad)}
    assert found == {**dict.fromkeys(good), **bad}


def test_a_dead_letter_routing_key_needs_an_exchange() -> None:
    name = "x-dead-letter-routing-key"
    assert refusal(name, "longstr", b"k") == "routing_key_but_no_dlx_defined"
    assert refusal(name, "longstr", b"k", x_dead_letter_exchange=("longstr", b"")) is None
    assert refusal(name, "signedint", 1) == "{unacceptable_type,signedint}", "its type is looked at first"


@pytest.mark.parametrize("queue_type", ["classic", "quorum", "stream"])
def test_what_a_type_knows_is_not_foreign_to_it(queue_type: str) -> None:
    known = frozenset(known_arguments(queue_type))
    assert unsupported_argument(queue_type, known | {"x-foo", "max-length"}) is None
    for name in ARGUMENTS.keys() - known:
        assert unsupported_argument(queue_type, known | {name}) == name


@pytest.mark.parametrize(
    ("queue_type", "name"),
    [("quorum", "x-max-priority"), ("quorum", "x-queue-mode"), ("quorum", "x-max-age"), ("stream", "x-max-length")],
)
def test_foreign_arguments(queue_type: str, name: str) -> None:
    assert unsupported_argument(queue_type, frozenset((name,))) == name


@pytest.mark.parametrize(
    ("type_name", "value", "expected"),
    [
        *(("longstr", value, None) for value in (b"classic", b"quorum", b"stream")),
        *(("longstr", value, f"\"unsupported queue type '{value.decode()}'\"") for value in (b"zz", b"", b"Classic")),
        ("signedint", 1, "{unacceptable_type,signedint}"),
        ("binary", b"classic", "{unacceptable_type,binary}"),
    ],
)
def test_queue_types(type_name: str, value: object, expected: str | None) -> None:
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
