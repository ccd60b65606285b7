"""Rules 14.22 to 14.23: the empty queue name stands for the queue that the channel declared last."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pamqp import commands

from tests.conformance.fixtures import Unique
from tests.conformance.reply_texts import NO_LAST_QUEUE, no_queue
from tests.conformance.topology import drain, got, new_exchange, new_queue
from tests.support.wire import Channel, ChannelClosed, Connection

# What names a queue, by which method.
NAMING: list[tuple[type[Any], Callable[[Channel], Any]]] = [
    (commands.Queue.Bind, lambda channel: channel.queue_bind("", "amq.direct", "key")),
    (commands.Queue.Unbind, lambda channel: channel.queue_unbind("", "amq.direct", "key")),
    (commands.Queue.Purge, lambda channel: channel.queue_purge("")),
    (commands.Queue.Delete, lambda channel: channel.queue_delete("")),
    (commands.Basic.Get, lambda channel: channel.get("")),
    (commands.Basic.Consume, lambda channel: channel.consume("")),
]


@pytest.mark.parametrize(("method", "operation"), NAMING)
def test_14_22_none_yet(channel: Channel, method: type[Any], operation: Callable[[Channel], Any]) -> None:
    with channel.expect_channel_close(404, NO_LAST_QUEUE, method):
        operation(channel)


@pytest.mark.parametrize(("method", "operation"), NAMING)
def test_14_22_a_refused_declaration_does_not_count(
    channel: Channel, unique: Unique, method: type[Any], operation: Callable[[Channel], Any]
) -> None:
    number, connection = channel.number, channel.connection
    with pytest.raises(ChannelClosed):
        channel.queue_declare(unique(), arguments=[("x-expires", "I", 0)])
    channel = connection.channel(number)
    with channel.expect_channel_close(404, NO_LAST_QUEUE, method):
        operation(channel)


@pytest.mark.parametrize(("method", "operation"), NAMING)
def test_14_22_it_is_missed_before_the_channel(
    connection: Connection, method: type[Any], operation: Callable[[Channel], Any]
) -> None:
    channel = connection.attach(7)
    with channel.expect_channel_close(404, NO_LAST_QUEUE, method):
        operation(channel)
    connection.channel(7).sync()


@pytest.mark.parametrize(("method", "operation"), NAMING)
def test_14_22_it_is_missed_on_a_closing_channel_too(
    channel: Channel, method: type[Any], operation: Callable[[Channel], Any]
) -> None:
    channel.answer_close = False
    for _ in range(2):
        channel.closed = None
        with channel.expect_channel_close(404, NO_LAST_QUEUE, method):
            operation(channel)
    channel.send(commands.Channel.CloseOk)
    channel.connection.channel(channel.number).sync()


def test_14_22_every_method_takes_it(channel: Channel, unique: Unique) -> None:
    exchange = new_exchange(channel, unique)
    queue = unique()
    channel.queue_declare(queue)
    channel.queue_bind("", exchange, "key")
    channel.publish(exchange, "key", b"one")
    assert got(channel, "", no_ack=True).body == b"one"
    tag = channel.consume("", no_ack=True).consumer_tag
    channel.publish(exchange, "key", b"two")
    assert channel.next_delivery().body == b"two"
    channel.cancel(tag)
    channel.publish(exchange, "key", b"three")
    assert channel.queue_purge("").message_count == 1
    channel.queue_unbind("", exchange, "key")
    channel.publish(exchange, "key", b"unrouted")
    assert channel.queue_delete("").message_count == 0


@pytest.mark.parametrize("way", ["plain", "passive", "nowait", "redeclared"])
def test_14_22_set_by_every_declaration(channel: Channel, unique: Unique, way: str) -> None:
    queue = new_queue(channel, unique, b"mine")
    if way == "nowait":
        queue = unique()
        channel.queue_declare(queue, nowait=True)
        channel.publish("", queue, b"mine")
    else:
        new_queue(channel, unique)
        channel.queue_declare(queue, passive=way == "passive")
    assert got(channel, "").body == b"mine"


def test_14_22_set_by_a_server_named_declaration(channel: Channel) -> None:
    queue = channel.queue_declare("", exclusive=True).queue
    channel.publish("", queue, b"mine")
    assert drain(channel, "") == [b"mine"]


def test_14_22_it_belongs_to_the_channel(channel: Channel, unique: Unique) -> None:
    new_queue(channel, unique)
    other = channel.connection.channel()
    with other.expect_channel_close(404, NO_LAST_QUEUE, commands.Basic.Get):
        other.get("")


@pytest.mark.parametrize("by_name", [False, True])
def test_14_22_it_survives_deletion(channel: Channel, unique: Unique, vhost: str, by_name: bool) -> None:
    queue = new_queue(channel, unique)
    channel.queue_delete(queue if by_name else "")
    with channel.expect_channel_close(404, no_queue(queue, vhost), commands.Queue.Purge):
        channel.queue_purge("")


def test_14_23_both_names_empty(channel: Channel, unique: Unique) -> None:
    exchange = new_exchange(channel, unique)
    queue = new_queue(channel, unique)
    channel.queue_bind("", exchange, "")
    channel.publish(exchange, queue, b"by name")
    channel.publish(exchange, "", b"by empty key")
    assert drain(channel, queue) == [b"by name"]
    channel.queue_unbind("", exchange, "")
    channel.publish(exchange, queue, b"unbound")
    assert drain(channel, queue) == []


def test_14_23_named_queue_with_an_empty_key(channel: Channel, unique: Unique) -> None:
    exchange = new_exchange(channel, unique)
    queue = new_queue(channel, unique)
    channel.queue_bind(queue, exchange, "")
    channel.publish(exchange, queue, b"by name")
    channel.publish(exchange, "", b"by empty key")
    assert drain(channel, queue) == [b"by empty key"]


def test_14_23_unnamed_queue_with_a_key(channel: Channel, unique: Unique) -> None:
    exchange = new_exchange(channel, unique)
    queue = new_queue(channel, unique)
    channel.queue_bind("", exchange, "key")
    channel.publish(exchange, queue, b"by name")
    channel.publish(exchange, "key", b"by key")
    assert drain(channel, queue) == [b"by key"]
