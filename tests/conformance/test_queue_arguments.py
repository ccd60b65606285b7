"""Rules 14.8 to 14.16: the arguments of classic queues – what is valid, and what counts as equal."""

from __future__ import annotations

from itertools import cycle
from typing import Any

import pytest
from pamqp import commands

from tests.conformance.fixtures import Refuse, Unique
from tests.conformance.reply_texts import inequivalent
from tests.conformance.topology import counts, new_queue
from tests.support.tables import Triple
from tests.support.wire import Channel

DECLARE = commands.Queue.Declare
INTEGERS = ["x-expires", "x-message-ttl", "x-max-length", "x-max-length-bytes", "x-max-priority"]
STRINGS = ["x-dead-letter-routing-key", "x-overflow", "x-queue-mode", "x-queue-type"]
MAX_TTL = 315_360_000_000

# In the order in which they are compared (4.10): key, current, received, both as printed.
COMPARED: list[tuple[Triple, Triple, str, str]] = [
    (("x-expires", "I", 60000), ("x-expires", "I", 60001), "'60000'", "'60001'"),
    (("x-message-ttl", "I", 1), ("x-message-ttl", "l", 2), "'1'", "'2'"),
    (("x-dead-letter-exchange", "S", "a"), ("x-dead-letter-exchange", "S", "b"), "'a'", "'b'"),
    (("x-dead-letter-routing-key", "S", "a"), ("x-dead-letter-routing-key", "S", "b"), "'a'", "'b'"),
    (("x-max-length", "I", 1), ("x-max-length", "I", 2), "'1'", "'2'"),
    (("x-max-length-bytes", "I", 1), ("x-max-length-bytes", "I", 2), "'1'", "'2'"),
    (("x-max-priority", "I", 1), ("x-max-priority", "I", 2), "'1'", "'2'"),
    (("x-overflow", "S", "drop-head"), ("x-overflow", "S", "reject-publish"), "'drop-head'", "'reject-publish'"),
    (("x-queue-mode", "S", "default"), ("x-queue-mode", "S", "lazy"), "'default'", "'lazy'"),
    (("x-queue-version", "I", 1), ("x-queue-version", "I", 2), "'1'", "'2'"),
    (("x-single-active-consumer", "t", 1), ("x-single-active-consumer", "t", 0), "'true'", "'false'"),
]
VALID: list[list[Triple]] = [
    [("x-overflow", "S", "drop-head")],
    [("x-overflow", "S", "reject-publish")],
    [("x-overflow", "S", "reject-publish-dlx")],
    [("x-expires", "I", 600_000)],
    [("x-expires", "l", MAX_TTL)],
    [("x-message-ttl", "I", 0)],
    [("x-message-ttl", "l", MAX_TTL)],
    [("x-max-length", "I", 0)],
    [("x-max-length", "l", 1 << 62)],
    [("x-max-length-bytes", "I", 0)],
    [("x-max-priority", "I", 0)],
    [("x-max-priority", "s", 255)],
    [("x-single-active-consumer", "t", 1)],
    [("x-single-active-consumer", "t", 0)],
    [("x-queue-type", "S", "classic")],
    [("x-queue-mode", "S", "lazy")],
    [("x-queue-mode", "S", "default")],
    [("x-queue-version", "I", 1)],
    [("x-queue-version", "I", 2)],
    [("x-queue-master-locator", "S", "client-local")],
    [("x-dead-letter-exchange", "S", "")],
    [("x-dead-letter-exchange", "S", "missing"), ("x-dead-letter-routing-key", "S", "key")],
    [("foo", "S", "bar"), ("x-foo", "A", []), ("x-ha-policy", "S", "all")],
]
# Arguments, the key that is named, the reason (4.13).
INVALID: list[tuple[list[Triple], str]] = [
    ([("x-message-ttl", "l", MAX_TTL + 1)], f"{{value_too_large,{MAX_TTL + 1}}}"),
    ([("x-expires", "l", MAX_TTL + 1)], f"{{value_too_large,{MAX_TTL + 1}}}"),
    ([("x-expires", "I", 0)], "{value_zero,0}"),
    ([("x-max-priority", "I", 256)], "{max_value_exceeded,256}"),
    ([("x-overflow", "S", "zz")], "invalid_overflow"),
    ([("x-overflow", "S", "")], "invalid_overflow"),
    ([("x-queue-type", "S", "zz")], "\"unsupported queue type 'zz'\""),
    ([("x-queue-mode", "S", "zz")], "\"unsupported queue mode 'zz'\""),
    ([("x-queue-version", "I", 3)], "\"unsupported queue version '3'\""),
    ([("x-dead-letter-routing-key", "S", "key")], "routing_key_but_no_dlx_defined"),
    ([("x-single-active-consumer", "S", "true")], "{unacceptable_type,longstr}"),
    ([("x-single-active-consumer", "I", 1)], "{unacceptable_type,signedint}"),
]
TYPE_NAMES: list[tuple[str, Any, str]] = [
    ("S", "5", "longstr"),
    ("d", 5.0, "double"),
    ("f", 5.0, "float"),
    ("t", 1, "bool"),
    ("T", 5, "timestamp"),
    ("F", [], "table"),
    ("A", [], "array"),
    ("x", b"5", "binary"),
    ("D", (0, 5), "decimal"),
    ("V", None, "void"),
]
OF_OTHER_TYPES: list[Triple] = [
    ("x-delivery-limit", "I", 1),
    ("x-max-age", "S", "1h"),
    ("x-queue-leader-locator", "S", "client-local"),
    ("x-quorum-initial-group-size", "I", 1),
    ("x-dead-letter-strategy", "S", "at-most-once"),
    ("x-max-in-memory-length", "I", 1),
    ("x-stream-max-segment-size-bytes", "I", 1000),
]


def needed(argument: Triple) -> list[Triple]:
    """Return what has to be declared along with an argument."""
    dead_letter = argument[0] == "x-dead-letter-routing-key"
    return [("x-dead-letter-exchange", "S", "dlx")] if dead_letter else []


def key_ids(rows: list[Any]) -> list[str]:
    return [str(row[0][0]) for row in rows]


@pytest.mark.parametrize(("current", "given", "was", "wanted"), COMPARED, ids=key_ids(COMPARED))
def test_14_8_another_value(
    channel: Channel, unique: Unique, vhost: str, current: Triple, given: Triple, was: str, wanted: str
) -> None:
    queue = new_queue(channel, unique, arguments=[*needed(current), current])
    text = inequivalent(str(current[0]), f"queue '{queue}'", vhost, wanted, was)
    with channel.expect_channel_close(406, text, DECLARE):
        channel.queue_declare(queue, arguments=[*needed(given), given])


@pytest.mark.parametrize(
    ("argument", "printed"),
    [
        (("x-message-ttl", "I", 60000), "the value '60000' of type 'signedint'"),
        (("x-message-ttl", "l", 60000), "the value '60000' of type 'long'"),
        (("x-max-length", "s", 6), "the value '6' of type 'short'"),
        (("x-max-length-bytes", "b", 6), "the value '6' of type 'byte'"),
        (("x-overflow", "S", "drop-head"), "the value 'drop-head' of type 'longstr'"),
        (("x-single-active-consumer", "t", 1), "the value 'true' of type 'bool'"),
    ],
)
@pytest.mark.parametrize("added", [True, False])
def test_1_2_4_and_14_8_a_value_on_one_side_only(
    channel: Channel, unique: Unique, vhost: str, argument: Triple, printed: str, added: bool
) -> None:
    queue = new_queue(channel, unique, arguments=[] if added else [argument])
    sides = (printed, "none") if added else ("none", printed)
    text = inequivalent(str(argument[0]), f"queue '{queue}'", vhost, *sides)
    with channel.expect_channel_close(406, text, DECLARE):
        channel.queue_declare(queue, arguments=[argument] if added else [])


@pytest.mark.parametrize("first", range(len(COMPARED)), ids=key_ids(COMPARED))
def test_14_10_the_first_difference_is_named(channel: Channel, unique: Unique, vhost: str, first: int) -> None:
    arguments = [row[0] for row in COMPARED]
    queue = new_queue(channel, unique, arguments=arguments)
    changed = arguments[:first] + [row[1] for row in COMPARED[first:]]
    current, _, was, wanted = COMPARED[first]
    text = inequivalent(str(current[0]), f"queue '{queue}'", vhost, wanted, was)
    with channel.expect_channel_close(406, text, DECLARE):
        channel.queue_declare(queue, arguments=list(reversed(changed)))


def test_14_10_unknown_arguments_are_not_compared(channel: Channel, unique: Unique) -> None:
    queue = new_queue(channel, unique, arguments=[("foo", "S", "bar"), ("x-foo", "I", 1)])
    channel.queue_declare(queue)
    channel.queue_declare(queue, arguments=[("foo", "V", None), ("x-ha-policy", "S", "all")])


@pytest.mark.parametrize("first", [True, False])
def test_14_12_classic_is_the_default_type(channel: Channel, unique: Unique, first: bool) -> None:
    classic: list[Triple] = [("x-queue-type", "S", "classic")]
    queue = new_queue(channel, unique, arguments=classic if first else [])
    channel.queue_declare(queue, arguments=[] if first else classic)


# Each type and each key; the unit tests of arguments have all pairs.
@pytest.mark.parametrize(
    ("key", "letter", "value", "type_name"),
    [(key, *row) for key, row in zip(cycle([*INTEGERS, "x-queue-version"]), TYPE_NAMES, strict=False)],
)
def test_14_13_integers(refuse: Refuse, key: str, letter: str, value: Any, type_name: str) -> None:
    refuse(key, f': "expected integer, got {type_name}"', arguments=[(key, letter, value)])


@pytest.mark.parametrize("key", INTEGERS)
def test_14_13_negative(refuse: Refuse, key: str) -> None:
    refuse(key, ": {value_negative,-1}", arguments=[(key, "I", -1)])


@pytest.mark.parametrize("key", STRINGS)
def test_14_13_strings(refuse: Refuse, key: str) -> None:
    argument: Triple = (key, "I", 1)
    refuse(key, ": {unacceptable_type,signedint}", arguments=[*needed(argument), argument])


@pytest.mark.parametrize(("arguments", "reason"), INVALID)
def test_14_13_invalid_value(refuse: Refuse, arguments: list[Triple], reason: str) -> None:
    refuse(str(arguments[0][0]), f": {reason}", arguments=arguments)


def test_14_13_the_first_invalid_argument_in_order_is_named(refuse: Refuse) -> None:
    refuse(
        "x-expires",
        ": {value_zero,0}",
        arguments=[("x-overflow", "S", "zz"), ("x-max-length", "I", -1), ("x-expires", "I", 0)],
    )


@pytest.mark.parametrize(
    ("letter", "value", "type_name"), [("I", 5, "signedint"), ("t", 1, "bool"), ("V", None, "void")]
)
def test_14_14_dead_letter_exchange_must_be_a_string(
    channel: Channel, unique: Unique, vhost: str, letter: str, value: Any, type_name: str
) -> None:
    queue = unique()
    text = (
        f"PRECONDITION_FAILED - invalid type '{type_name}' for arg 'x-dead-letter-exchange'"
        f" in queue '{queue}' in vhost '{vhost}'"
    )
    with channel.expect_channel_close(406, text, DECLARE):
        channel.queue_declare(queue, arguments=[("x-dead-letter-exchange", letter, value)])


@pytest.mark.parametrize("argument", OF_OTHER_TYPES, ids=[str(row[0]) for row in OF_OTHER_TYPES])
def test_14_15_argument_of_another_queue_type(refuse: Refuse, argument: Triple) -> None:
    refuse(str(argument[0]), " of queue type rabbit_classic_queue", arguments=[argument])


@pytest.mark.parametrize("wrong_first", [True, False])
def test_14_15_a_wrong_value_comes_before_an_argument_of_another_queue_type(refuse: Refuse, wrong_first: bool) -> None:
    arguments: list[Triple] = [("x-max-length", "I", -1), ("x-max-age", "S", "1D")]
    refuse("x-max-length", ": {value_negative,-1}", arguments=arguments if wrong_first else arguments[::-1])


@pytest.mark.parametrize("first", [0, 1, 2])
def test_14_15_of_several_the_first_one_sent_is_refused(refuse: Refuse, first: int) -> None:
    foreign: list[Triple] = [("x-max-age", "S", "1D"), ("x-delivery-limit", "I", 1), ("x-queue-leader-locator", "I", 1)]
    arguments = foreign[first:] + foreign[:first]
    refuse(str(arguments[0][0]), " of queue type rabbit_classic_queue", arguments=arguments)


@pytest.mark.parametrize(
    ("letter", "value", "reason"),
    [("I", 1, "{unacceptable_type,signedint}"), ("S", "min-masters", "invalid_queue_locator_arg")],
)
def test_14_13_the_locator_of_a_quorum_queue(refuse: Refuse, letter: str, value: Any, reason: str) -> None:
    arguments: list[Triple] = [("x-queue-type", "S", "quorum"), ("x-queue-leader-locator", letter, value)]
    refuse("x-queue-leader-locator", f": {reason}", durable=True, arguments=arguments)


@pytest.mark.parametrize("arguments", VALID)
def test_14_16_valid_arguments(channel: Channel, unique: Unique, arguments: list[Triple]) -> None:
    queue = new_queue(channel, unique, arguments=arguments)
    channel.queue_declare(queue, arguments=arguments)
    assert counts(channel, queue) == (0, 0)
