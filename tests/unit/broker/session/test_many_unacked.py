"""A channel with many unacked messages: settling costs depend only on the number of settled ones."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from pamqp import commands

from leveret.broker.session.channel import Channel
from tests.support.memory_broker import MemoryBroker, MemoryClient, method, publish

_MESSAGES = 100_000
#: Seconds of CPU; what is below takes a few hundredths of that, and took several times as much when each step looked at
#: all that is outstanding. Measuring the coverage makes everything slower.
_DEADLINE = 3.0 if sys.gettrace() is None else 15.0


@contextmanager
def in_time() -> Iterator[None]:
    began = time.process_time()
    yield
    assert time.process_time() - began < _DEADLINE


@pytest.fixture
def client(broker: MemoryBroker) -> MemoryClient:
    """A client with all messages of a queue unacked."""
    opened = broker.open()
    opened.call(1, commands.Queue.Declare, queue="q")
    opened.call(1, commands.Tx.Select)
    opened.send(publish(1, "q", b"x") * _MESSAGES)
    opened.call(1, commands.Tx.Commit)
    opened.send(method(1, commands.Basic.Consume, queue="q", consumer_tag="c"))
    opened.transport.take()
    return opened


@pytest.fixture
def channel(client: MemoryClient) -> Channel:
    channel = next(iter(client.connection.channels))
    assert len(channel.unacked) == _MESSAGES
    return channel


def ack(tag: int, *, multiple: bool = False) -> bytes:
    return method(1, commands.Basic.Ack, delivery_tag=tag, multiple=multiple)


def test_rolling_back_one_acknowledgement_again_and_again(client: MemoryClient, channel: Channel) -> None:
    with in_time():
        client.send(*((ack(tag) + method(1, commands.Tx.Rollback)) for tag in range(1, 1001)))
    assert len(channel.unacked) == _MESSAGES
    assert len(client.methods()) == 1000


def test_acknowledging_all_up_to_each(client: MemoryClient, channel: Channel) -> None:
    with in_time():
        client.send(*(ack(tag, multiple=True) for tag in range(1, _MESSAGES + 1)))
    assert channel.unacked.held == {}
    assert channel.uncommitted == (0, _MESSAGES)


def test_rolling_back_brings_the_lowest_tags_back(client: MemoryClient, channel: Channel) -> None:
    client.send(ack(3, multiple=True), ack(10), method(1, commands.Tx.Rollback))
    client.send(ack(2, multiple=True))
    assert channel.uncommitted == (0, 2)
    client.send(ack(5, multiple=True))
    assert channel.uncommitted == (0, 5)
    assert min(channel.unacked.held) == 6


def test_tags_far_apart(client: MemoryClient, channel: Channel) -> None:
    """Deliveries with no-ack use delivery tags, too, so outstanding tags may be far apart."""
    client.send(*(ack(tag) for tag in range(2, _MESSAGES)))
    assert sorted(channel.unacked.held) == [1, _MESSAGES]
    client.send(ack(_MESSAGES, multiple=True))
    assert channel.unacked.held == {}


@pytest.mark.parametrize(
    "leave",
    [
        lambda client: client.call(1, commands.Channel.Close, reply_code=200, reply_text="", class_id=0, method_id=0),
        lambda client: client.abort(),
        lambda client: client.call(1, commands.Basic.Nack, delivery_tag=0, multiple=True, requeue=True),
        lambda client: client.call(1, commands.Basic.Recover, requeue=True),
    ],
    ids=["channel", "connection", "nack", "recover"],
)
def test_all_messages_are_requeued_in_order(
    broker: MemoryBroker, client: MemoryClient, channel: Channel, leave: Callable[[MemoryClient], object]
) -> None:
    """This includes messages acknowledged in a transaction that was rolled back."""
    client.send(ack(7), ack(5), method(1, commands.Tx.Rollback), method(1, commands.Basic.Cancel, consumer_tag="c"))
    with in_time():
        leave(client)
        client.send(method(1, commands.Tx.Commit))
    queue = broker.vhost.queues["q"]
    assert queue.ready_count() == _MESSAGES
    seqs = [seq for seq, _, _ in queue.store.take(20, 1 << 30)[0]]
    assert seqs == list(range(1, 21))


@pytest.mark.parametrize("requeue", [False, True])
def test_many_messages_from_basic_get(broker: MemoryBroker, requeue: bool) -> None:
    client = broker.open()
    client.call(1, commands.Queue.Declare, queue="q")
    client.send(publish(1, "q", b"x") * 50_000)
    for _ in range(50):
        client.send(method(1, commands.Basic.Get, queue="q") * 1000)
        client.transport.take()
    with in_time():
        client.send(method(1, commands.Basic.Nack, delivery_tag=0, multiple=True, requeue=requeue))
    assert broker.vhost.queues["q"].ready_count() == (50_000 if requeue else 0)
