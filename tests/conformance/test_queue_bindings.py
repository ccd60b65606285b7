"""Rules 13.4 and 14.24 to 14.28: queue.bind and queue.unbind."""

from __future__ import annotations

from typing import Any

import pytest
from pamqp import commands

from tests.conformance.fixtures import Connect, Unique
from tests.conformance.reply_texts import DEFAULT_EXCHANGE, no_exchange, no_queue
from tests.conformance.topology import bound_queue, drain, new_exchange, new_queue
from tests.support.tables import Triple
from tests.support.wire import Channel

BIND = commands.Queue.Bind
UNBIND = commands.Queue.Unbind
ARGUMENTS: list[Triple] = [("a", "I", 1), ("b", "S", "two"), ("c", "F", [("d", "t", 1)])]
# Another binding than one with ARGUMENTS, or the same (4.25)?
COMPARED: list[tuple[str, list[Triple], bool]] = [
    ("same", ARGUMENTS, True),
    ("other order", ARGUMENTS[::-1], True),
    ("other type", [("a", "l", 1), *ARGUMENTS[1:]], False),
    ("binary", [ARGUMENTS[0], ("b", "x", b"two"), ARGUMENTS[2]], False),
    ("double", [("a", "d", 1.0), *ARGUMENTS[1:]], False),
    ("other case", [("A", "I", 1), *ARGUMENTS[1:]], False),
    ("other value", [("a", "I", 2), *ARGUMENTS[1:]], False),
    ("one less", ARGUMENTS[1:], False),
    ("one more", [*ARGUMENTS, ("e", "V", None)], False),
    ("none", [], False),
]


@pytest.mark.parametrize(("queue_exists", "exchange_exists"), [(False, True), (True, False), (False, False)])
def test_14_24_bind_of_missing_things(
    channel: Channel, unique: Unique, vhost: str, queue_exists: bool, exchange_exists: bool
) -> None:
    queue = new_queue(channel, unique) if queue_exists else unique("q")
    exchange = new_exchange(channel, unique) if exchange_exists else unique("x")
    text = no_queue(queue, vhost) if exchange_exists else no_exchange(exchange, vhost)
    with channel.expect_channel_close(404, text, BIND):
        channel.queue_bind(queue, exchange, "key")


def test_14_24_bind_is_idempotent(channel: Channel, unique: Unique) -> None:
    exchange = new_exchange(channel, unique)
    queue = bound_queue(channel, unique, exchange, "key", "key")
    channel.publish(exchange, "key", b"once")
    channel.queue_unbind(queue, exchange, "key")
    channel.publish(exchange, "key", b"never")
    assert drain(channel, queue) == [b"once"]


@pytest.mark.parametrize(("given", "same"), [row[1:] for row in COMPARED], ids=[f"{row[0]}" for row in COMPARED])
def test_14_25_identity_of_bindings(channel: Channel, unique: Unique, given: list[Any], same: bool) -> None:
    exchange = new_exchange(channel, unique)
    queue = bound_queue(channel, unique, exchange, "key", arguments=ARGUMENTS)
    channel.queue_bind(queue, exchange, "key", arguments=given)
    channel.queue_unbind(queue, exchange, "key", arguments=given)
    channel.publish(exchange, "key", b"still bound")
    assert drain(channel, queue) == [b"still bound"] * (not same)


def test_14_26_unbind_of_what_is_not_there(channel: Channel, unique: Unique) -> None:
    exchange, queue, missing = new_exchange(channel, unique), new_queue(channel, unique), unique("missing")
    channel.queue_unbind(queue, exchange, "key")
    channel.queue_unbind(missing, exchange, "key")
    channel.queue_unbind(queue, missing, "key")
    channel.queue_unbind(missing, missing, "key")


def test_14_27_default_exchange_cannot_be_bound(channel: Channel, unique: Unique) -> None:
    queue = new_queue(channel, unique)
    with channel.expect_channel_close(403, DEFAULT_EXCHANGE, BIND):
        channel.queue_bind(queue, "", "key")


def test_14_27_default_exchange_cannot_be_unbound(channel: Channel, unique: Unique) -> None:
    queue = new_queue(channel, unique)
    with channel.expect_channel_close(403, DEFAULT_EXCHANGE, UNBIND):
        channel.queue_unbind(queue, "", queue)


@pytest.mark.parametrize(
    ("letter", "value", "problem"),
    [
        ("I", 5, "Invalid x-match field type signedint (value 5); expected longstr"),
        ("t", 1, "Invalid x-match field type bool (value true); expected longstr"),
        ("S", "foo", 'Invalid x-match field value <<"foo">>; expected all, any, all-with-x, or any-with-x'),
        ("S", "", "Invalid x-match field value <<>>; expected all, any, all-with-x, or any-with-x"),
        ("S", "ALL", 'Invalid x-match field value <<"ALL">>; expected all, any, all-with-x, or any-with-x'),
    ],
)
def test_14_28_invalid_x_match(channel: Channel, unique: Unique, letter: str, value: Any, problem: str) -> None:
    exchange, queue = new_exchange(channel, unique, "headers"), new_queue(channel, unique)
    with channel.expect_channel_close(406, f"PRECONDITION_FAILED - {problem}", BIND):
        channel.queue_bind(queue, exchange, "", arguments=[("x-match", letter, value)])


@pytest.mark.parametrize("type_", ["direct", "fanout", "topic"])
def test_14_28_x_match_means_nothing_elsewhere(channel: Channel, unique: Unique, type_: str) -> None:
    exchange = new_exchange(channel, unique, type_)
    queue = bound_queue(channel, unique, exchange, "key", arguments=[("x-match", "S", "foo")])
    channel.publish(exchange, "key", b"routed")
    assert drain(channel, queue) == [b"routed"]


def test_14_24_bindings_go_with_the_queue(channel: Channel, unique: Unique) -> None:
    exchange = new_exchange(channel, unique)
    queue = bound_queue(channel, unique, exchange, "key")
    channel.queue_delete(queue)
    channel.queue_declare(queue)
    channel.publish(exchange, "key", b"unrouted")
    assert drain(channel, queue) == []
    channel.exchange_delete(exchange, if_unused=True)


def test_14_24_any_connection_may_bind_a_shared_queue(channel: Channel, connect: Connect, unique: Unique) -> None:
    exchange, queue = new_exchange(channel, unique), new_queue(channel, unique)
    connect().channel().queue_bind(queue, exchange, "key")
    channel.publish(exchange, "key", b"routed")
    assert drain(channel, queue) == [b"routed"]


def test_13_4_line_ends_are_removed_from_names_in_bind(channel: Channel, unique: Unique) -> None:
    exchange, queue = new_exchange(channel, unique), new_queue(channel, unique)
    channel.queue_bind(queue + "\n", "\r" + exchange, "key")
    channel.publish(exchange, "key", b"routed")
    channel.queue_unbind("\r\n" + queue, exchange + "\n", "key")
    channel.publish(exchange, "key", b"unrouted")
    assert drain(channel, queue) == [b"routed"]


def test_13_4_line_ends_are_removed_from_queue_names(channel: Channel, unique: Unique) -> None:
    queue = unique()
    assert channel.queue_declare(f"\n{queue}\r").queue == queue
    channel.queue_declare(queue + "\n", passive=True)
    channel.publish("", queue, b"kept")
    assert channel.queue_delete(queue + "\r\n").message_count == 1


@pytest.mark.parametrize(
    ("method", "operation"),
    [(commands.Basic.Get, "get"), (commands.Basic.Consume, "consume"), (commands.Queue.Purge, "queue_purge")],
)
def test_13_4_line_ends_stay_elsewhere(
    channel: Channel, unique: Unique, vhost: str, method: type[Any], operation: str
) -> None:
    queue = new_queue(channel, unique)
    with channel.expect_channel_close(404, no_queue(queue + "\n", vhost), method):
        getattr(channel, operation)(queue + "\n")
