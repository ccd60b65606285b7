"""What ends goes at once: the garbage collector, which would hold everybody up, has nothing to do."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from leveret import LeveretThread
from leveret.broker.core.delays.waiting_messages import WaitingMessages
from leveret.broker.core.exchanges.types import DelayedExchange
from leveret.broker.core.queues.queue import Queue
from leveret.broker.session.channel import Channel, ChannelConsumer
from leveret.broker.session.connection import Connection
from tests.integration.waiting import wait_until
from tests.support import wire


@pytest.fixture
def broker() -> Iterator[LeveretThread]:
    with LeveretThread() as started:
        yield started


@pytest.fixture(autouse=True)
def without_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def alive(*kinds: type) -> list[str]:
    return [type(each).__name__ for each in gc.get_objects() if type(each) in kinds]


def use(broker: LeveretThread, *, politely: bool) -> None:
    connection = wire.Connection(broker.url, heartbeat=60)
    channel = connection.channel()
    for name, durable in (("transient", False), ("durable", True)):
        arguments = [("x-message-ttl", "I", 60_000), ("x-expires", "I", 60_000)]
        channel.queue_declare(name, durable=durable, arguments=arguments)
        channel.publish("", name, b"x", {"delivery_mode": 2})
        channel.consume(name)
        channel.next_delivery()
    channel.exchange_declare("late", "x-delayed-message", arguments=[("x-delayed-type", "S", "direct")])
    channel.queue_bind("transient", "late", "k")
    for delay in (1, 60_000):
        channel.publish("late", "k", b"x", {"headers": [("x-delay", "I", delay)]})
    channel.next_delivery()
    channel.confirm_select()
    with pytest.raises(wire.ChannelClosed):
        channel.queue_declare("nowhere", passive=True)
    again = connection.channel()
    again.queue_delete("transient")
    again.queue_delete("durable")
    again.exchange_delete("late")
    if politely:
        connection.close()
    else:
        connection.abort()


@pytest.mark.parametrize("politely", [True, False])
def test_connections_channels_and_queues(broker: LeveretThread, politely: bool) -> None:
    kinds = (Queue, Channel, Connection, ChannelConsumer, DelayedExchange, WaitingMessages)
    before = alive(*kinds)
    for _ in range(3):
        use(broker, politely=politely)
    wait_until(lambda: alive(*kinds) == before, "everything that ended to go")
