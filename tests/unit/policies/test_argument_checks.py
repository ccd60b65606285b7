from __future__ import annotations

from typing import Any, Final

import pytest

from leveret.policies.policy_keys import (
    ARGUMENTS,
    MAX_TTL_MS,
    argument_error,
    compared_arguments,
    known_arguments,
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
    "x-expires", "x-message-ttl", "x-max-length", "x-max-length-bytes", "x-max-in-memory-length",
    "x-max-in-memory-bytes", "x-max-priority", "x-queue-version", "x-quorum-initial-group-size", "x-consumer-timeout",
    "x-redelivery-limit", "x-stream-max-segment-size-bytes", "x-initial-cluster-size",
}  # fmt: skip
STRINGS: Final = {
    "x-queue-leader-locator", "x-dead-letter-exchange", "x-dead-letter-routing-key", "x-dead-letter-strategy",
    "x-delayed-retry-steps", "x-length-counts", "x-overflow", "x-queue-mode",
}  # fmt: skip
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
    "x-delayed-retry-type", "x-delayed-retry-min", "x-delayed-retry-max", "x-delivery-limit", "x-queue-type",
    "x-queue-master-locator", "x-message-deduplication",
}  # fmt: skip


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


@pytest.mark.parametrize("queue_type", ["classic", "quorum", "stream"])
def test_what_a_type_knows_is_not_foreign_to_it(queue_type: str) -> None:
    known = frozenset(known_arguments(queue_type))
    assert unsupported_argument(queue_type, known | {"x-foo", "max-length"}) is None
    for name in ARGUMENTS.keys() - known:
        assert unsupported_argument(queue_type, known | {name}) == name


@pytest.mark.parametrize("queue_type", ["classic", "quorum", "stream"])
def test_a_second_declaration_may_differ_in_deduplication_only(queue_type: str) -> None:
    known = [name for name in known_arguments(queue_type) if name != "x-message-deduplication"]
    assert list(compared_arguments(queue_type)) == known
