"""Rules 1.1.1 to 1.1.14: declaring limits, beyond what `test_queue_arguments` has."""

from __future__ import annotations

from itertools import cycle

import pytest
from pamqp import commands

from tests.conformance.bounded import bounded, limits, outcomes, refill
from tests.conformance.fixtures import Refuse, Unique
from tests.conformance.topology import counts, drain, new_queue, numbered
from tests.support.tables import Triple
from tests.support.wire import Channel

DECLARE = commands.Queue.Declare
LENGTH, BYTES = "x-max-length", "x-max-length-bytes"


def test_1_1_1_without_a_limit_everything_stays(channel: Channel, unique: Unique) -> None:
    queue = new_queue(channel, unique)
    refill(channel, queue, *numbered(300))
    assert drain(channel, queue) == numbered(300)


@pytest.mark.parametrize(
    ("length", "size", "left"),
    [(3, None, [b"7", b"8", b"9"]), (None, 2, [b"8", b"9"]), (3, 2, [b"8", b"9"]), (1, 2, [b"9"])],
)
def test_1_1_1_any_combination(
    channel: Channel, unique: Unique, length: int | None, size: int | None, left: list[bytes]
) -> None:
    queue = bounded(channel, unique, length, size)
    refill(channel, queue, *numbered(9))
    assert drain(channel, queue) == left


@pytest.mark.parametrize(
    ("key", "letter"), [(key, letter) for letter, key in zip("bBsuIilL", cycle([LENGTH, BYTES]), strict=False)]
)
def test_1_1_2_every_integer_type(channel: Channel, unique: Unique, key: str, letter: str) -> None:
    queue = new_queue(channel, unique, arguments=[(key, letter, 2)])
    refill(channel, queue, *numbered(4))
    assert drain(channel, queue) == [b"3", b"4"]


@pytest.mark.parametrize(
    ("key", "letter", "value"),
    [
        (LENGTH, "b", 127),
        (BYTES, "B", 255),
        (LENGTH, "s", 2**15 - 1),
        (BYTES, "u", 2**16 - 1),
        (LENGTH, "I", 2**31 - 1),
        (BYTES, "i", 2**32 - 1),
        (LENGTH, "l", 2**63 - 1),
        (BYTES, "l", 2**63 - 1),
    ],
)
def test_1_1_2_any_value_from_zero(channel: Channel, unique: Unique, key: str, letter: str, value: int) -> None:
    queue = new_queue(channel, unique, arguments=[(key, letter, value)])
    refill(channel, queue, *numbered(4))
    assert drain(channel, queue) == numbered(4)


@pytest.mark.parametrize(
    ("key", "letter", "value", "printed"),
    [
        (LENGTH, "b", -128, "-128"),
        (BYTES, "s", -2, "-2"),
        (LENGTH, "I", -(2**31), "-2147483648"),
        (BYTES, "l", -(2**63), "-9223372036854775808"),
        (LENGTH, "L", 2**64 - 1, "-1"),
    ],
)
def test_1_1_5_negative_values_are_named_as_sent(
    refuse: Refuse, key: str, letter: str, value: int, printed: str
) -> None:
    refuse(key, f": {{value_negative,{printed}}}", arguments=[(key, letter, value)])


@pytest.mark.parametrize("key", [LENGTH, BYTES])
def test_1_1_6_zero_means_that_nothing_stays(channel: Channel, unique: Unique, key: str) -> None:
    queue = new_queue(channel, unique, arguments=[(key, "I", 0)])
    refill(channel, queue, *numbered(3))
    assert counts(channel, queue) == (0, 0)


def test_1_1_9_the_first_of_equal_keys_holds(channel: Channel, unique: Unique) -> None:
    queue = new_queue(channel, unique, arguments=[(LENGTH, "I", 1), (LENGTH, "I", 3), (LENGTH, "I", 2)])
    refill(channel, queue, *numbered(5))
    assert drain(channel, queue) == [b"5"]
    channel.queue_declare(queue, arguments=limits(1))


def test_1_1_9_the_last_of_equal_keys_is_not_even_validated(channel: Channel, unique: Unique) -> None:
    queue = new_queue(channel, unique, arguments=[(LENGTH, "I", 1), (LENGTH, "S", "none")])
    refill(channel, queue, *numbered(5))
    assert drain(channel, queue) == [b"5"]


@pytest.mark.parametrize(
    "argument",
    [("max-length", "I", 1), ("X-Max-Length", "I", 1), ("x-max-length ", "I", 1), ("x-foo", "S", "bar")],
    ids=str,
)
def test_1_1_10_unknown_arguments_do_nothing(channel: Channel, unique: Unique, argument: Triple) -> None:
    queue = new_queue(channel, unique, arguments=[argument])
    refill(channel, queue, *numbered(3))
    assert drain(channel, queue) == numbered(3)


def test_1_1_12_all_arguments_of_a_classic_queue_at_once(channel: Channel, unique: Unique) -> None:
    arguments: list[Triple] = [
        ("x-expires", "I", 600_000),
        ("x-message-ttl", "I", 600_000),
        *limits(2, 100, "reject-publish", letters="none", priority=5),
        ("x-queue-mode", "S", "lazy"),
        ("x-queue-version", "I", 1),
        ("x-single-active-consumer", "t", 1),
        ("x-queue-type", "S", "classic"),
        ("x-queue-master-locator", "S", "client-local"),
    ]
    queue = new_queue(channel, unique, arguments=arguments)
    assert outcomes(channel, queue, *numbered(3)) == [True, True, False]


@pytest.mark.parametrize("broken", ["{}\n", "\r\n{}", "{}\r"])
def test_1_1_14_limits_of_a_name_with_line_ends(channel: Channel, unique: Unique, broken: str) -> None:
    queue = unique()
    channel.queue_declare(broken.format(queue), arguments=limits(1))
    refill(channel, queue, *numbered(3))
    assert drain(channel, queue) == [b"3"]
