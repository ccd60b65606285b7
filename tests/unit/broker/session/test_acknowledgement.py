"""Delivery tags and acknowledgements, with prefetch and transactions."""

from __future__ import annotations

import pytest
from pamqp import commands

from leveret.broker.core.queues.queue import Queue
from tests.support.memory_broker import MemoryBroker, MemoryClient, method, publish
from tests.support.transport import BODY


@pytest.fixture
def client(broker: MemoryBroker) -> MemoryClient:
    """Channel 1 for the test, channel 2 to publish; a queue q with the messages 1 to 6."""
    opened = broker.open(channels=2)
    opened.call(1, commands.Queue.Declare, queue="q")
    opened.send(*(publish(2, "q", str(number).encode()) for number in range(1, 7)))
    return opened


@pytest.fixture
def queue(broker: MemoryBroker, client: MemoryClient) -> Queue:
    return broker.vhost.queues["q"]


def bodies(client: MemoryClient) -> str:
    """Return the received bodies, of one letter each."""
    return "".join(each.payload.decode() for each in client.frames() if each.type == BODY)


def ack(tag: int, *, multiple: bool = False) -> bytes:
    return method(1, commands.Basic.Ack, delivery_tag=tag, multiple=multiple)


class TestTransactions:
    @pytest.fixture(autouse=True)
    def transactional(self, client: MemoryClient) -> None:
        client.call(1, commands.Tx.Select)

    def test_closing_the_channel_discards_the_transaction(self, client: MemoryClient, queue: Queue) -> None:
        client.send(method(1, commands.Basic.Get, queue="q"), ack(1), publish(1, "q", b"7"))
        client.call(1, commands.Channel.Close, reply_code=200, reply_text="", class_id=0, method_id=0)
        assert (queue.store.ready_count, queue.unacked_count) == (6, 0)
