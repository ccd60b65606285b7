"""Rules 1.2.1 to 1.2.10: limits when a queue is declared again, beyond what `test_queue_arguments` has."""

from __future__ import annotations

from typing import Any

import pytest
from pamqp import commands

from tests.conformance.bounded import bounded, limits, refill
from tests.conformance.fixtures import SetPolicy, Unique
from tests.conformance.reply_texts import inequivalent
from tests.conformance.topology import drain, new_queue, numbered
from tests.support.tables import Triple
from tests.support.wire import Channel

DECLARE = commands.Queue.Declare
LENGTH, BYTES = "x-max-length", "x-max-length-bytes"
keys = pytest.mark.parametrize("key", [LENGTH, BYTES])


def expect_inequivalent(
    channel: Channel, vhost: str, queue: str, arguments: list[Triple], key: str, received: str, current: str
) -> None:
    text = inequivalent(key, f"queue '{queue}'", vhost, received, current)
    with channel.expect_channel_close(406, text, DECLARE):
        channel.queue_declare(queue, arguments=arguments)


def test_1_2_1_the_order_of_arguments_is_ignored(channel: Channel, unique: Unique) -> None:
    arguments = limits(3, 10, "reject-publish", letters="none")
    queue = new_queue(channel, unique, arguments=arguments)
    channel.queue_declare(queue, arguments=list(reversed(arguments)))


@keys
def test_1_2_1_and_14_11_the_width_of_numbers_is_ignored(channel: Channel, unique: Unique, key: str) -> None:
    queue = new_queue(channel, unique, arguments=[(key, "I", 10)])
    for letter in "bBsuilL":
        channel.queue_declare(queue, arguments=[(key, letter, 10)])


@keys
@pytest.mark.parametrize(("letter", "value", "received"), [("d", 10.0, "10.0"), ("f", 10.0, "10.0"), ("S", "10", "10")])
def test_1_2_3_other_types_are_other_values(
    channel: Channel, unique: Unique, vhost: str, key: str, letter: str, value: Any, received: str
) -> None:
    queue = new_queue(channel, unique, arguments=[(key, "I", 10)])
    expect_inequivalent(channel, vhost, queue, [(key, letter, value)], key, f"'{received}'", "'10'")


@pytest.mark.parametrize(
    ("argument", "printed"),
    [
        (("x-overflow", "S", "drop-head"), "the value 'drop-head' of type 'longstr'"),
        (("x-queue-mode", "S", "default"), "the value 'default' of type 'longstr'"),
        (("x-queue-version", "I", 1), "the value '1' of type 'signedint'"),
        (("x-single-active-consumer", "t", 0), "the value 'false' of type 'bool'"),
        (("x-max-priority", "I", 0), "the value '0' of type 'signedint'"),
    ],
    ids=str,
)
@pytest.mark.parametrize("added", [False, True])
def test_1_2_5_a_default_is_not_the_same_as_none(
    channel: Channel, unique: Unique, vhost: str, argument: Triple, printed: str, added: bool
) -> None:
    queue = new_queue(channel, unique, arguments=[] if added else [argument])
    received, current = (printed, "none") if added else ("none", printed)
    arguments = [argument] if added else []
    expect_inequivalent(channel, vhost, queue, arguments, str(argument[0]), received, current)


@pytest.mark.parametrize("key", ["x-overflow", "x-dead-letter-exchange"])
def test_1_2_6_binary_and_text_of_equal_bytes_are_equal(channel: Channel, unique: Unique, key: str) -> None:
    queue = new_queue(channel, unique, arguments=[(key, "S", "drop-head")])
    channel.queue_declare(queue, arguments=[(key, "x", b"drop-head")])


@keys
@pytest.mark.parametrize(("letter", "value"), [("I", -1), ("S", "-1"), ("S", "nonsense"), ("d", -1.5)])
def test_1_2_7_an_invalid_value_is_only_compared(
    channel: Channel, unique: Unique, vhost: str, key: str, letter: str, value: Any
) -> None:
    queue = new_queue(channel, unique, arguments=[(key, "I", 10)])
    expect_inequivalent(channel, vhost, queue, [(key, letter, value)], key, f"'{value}'", "'10'")


@pytest.mark.parametrize("value", [5, 10, 20])
def test_1_2_10_policies_are_not_compared(
    channel: Channel, unique: Unique, vhost: str, policy: SetPolicy, value: int
) -> None:
    with_argument, without = bounded(channel, unique, 10), new_queue(channel, unique)
    for queue in (with_argument, without):
        policy(queue, {"max-length": value, "overflow": "reject-publish"})
    channel.queue_declare(with_argument, arguments=limits(10))
    channel.queue_declare(without)
    received = f"the value '{value}' of type 'long'"
    expect_inequivalent(channel, vhost, without, limits(value), LENGTH, received, "none")


def test_1_2_10_a_queue_declared_again_keeps_its_policy(channel: Channel, unique: Unique, policy: SetPolicy) -> None:
    queue = unique()
    policy(queue, {"max-length": 2})
    channel.queue_declare(queue, arguments=limits(10))
    channel.queue_declare(queue, arguments=limits(10))
    refill(channel, queue, *numbered(5))
    assert drain(channel, queue) == [b"4", b"5"]
