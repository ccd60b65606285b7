from __future__ import annotations

from typing import Any

import pytest
from pamqp import commands

from leveret.protocol.faults import ConnectionFault, ReplyCode
from tests.support.memory_broker import CLOSE, CLOSE_OK, MemoryBroker, MemoryClient, kinds, method, publish
from tests.support.transport import METHOD, frame

#: What a message of these tests has, and how many of them a client may leave unread.
SIZE, UNREAD_MAX = 1 << 20, 32
GET = method(1, commands.Basic.Get, queue="q")
REQUEUE = method(1, commands.Basic.Nack, delivery_tag=0, multiple=True, requeue=True)


def drain(client: MemoryClient, broker: MemoryBroker) -> list[Any]:
    """Read output until there is no more; return the kinds of the methods."""
    client.transport.unread = 0
    client.connection.resume_writing()
    broker.loop.run()
    return kinds(client.methods())


class TestAlarms:
    def test_reading_from_a_publisher_pauses_until_the_alarm_is_cleared(
        self, broker: MemoryBroker, client: MemoryClient
    ) -> None:
        broker.broker.alarms.set("memory")
        client.call(1, commands.Queue.Declare, queue="still answered")
        client.send(publish(1, "q", b"one"), publish(1, "q", b"two"), method(1, commands.Queue.Declare, queue="late"))
        assert client.only(commands.Connection.Blocked).reason == "low on memory"
        assert not client.transport.reading
        assert broker.vhost.queues["q"].store.ready_count == 0
        broker.broker.alarms.set("disk")
        broker.broker.alarms.clear("memory")
        broker.loop.run()
        assert client.frames() == []
        broker.broker.alarms.clear("disk")
        broker.loop.run()
        assert kinds(client.methods()) == [commands.Connection.Unblocked, commands.Queue.DeclareOk]
        assert client.transport.reading
        assert broker.vhost.queues["q"].store.ready_count == 2

    def test_a_client_without_the_capability_is_not_notified(self, broker: MemoryBroker) -> None:
        client = broker.open(capabilities=())
        broker.broker.alarms.set("disk")
        client.send(publish(1, "q", b"one"))
        assert not client.transport.reading
        broker.broker.alarms.clear("disk")
        broker.loop.run()
        assert client.frames() == []
        assert client.transport.reading

    def test_deliveries_continue(self, broker: MemoryBroker, client: MemoryClient) -> None:
        client.send(publish(1, "q", b"before"))
        broker.broker.alarms.set("memory")
        consumer = broker.open()
        came = consumer.call(1, commands.Basic.Consume, queue="q", consumer_tag="c")
        assert kinds(came) == [commands.Basic.ConsumeOk, commands.Basic.Deliver]

    def test_a_blocked_connection_may_close(self, broker: MemoryBroker, client: MemoryClient) -> None:
        broker.broker.alarms.set("memory")
        client.send(publish(1, "q", b"lost"))
        client.abort()
        broker.broker.alarms.clear("memory")
        broker.loop.run()
        assert broker.vhost.queues["q"].store.ready_count == 0
        assert len(broker.connections) == 0

    def test_a_blocked_connection_misses_no_heartbeats(self, broker: MemoryBroker) -> None:
        client = broker.open(heartbeat=10)
        broker.broker.alarms.set("memory")
        client.send(publish(1, "q", b"x"))
        broker.loop.advance(100)
        assert not client.transport.closed

    def test_a_blocked_connection_can_be_terminated(self, broker: MemoryBroker, client: MemoryClient) -> None:
        broker.broker.alarms.set("memory")
        client.send(publish(1, "q", b"lost"))
        client.frames()
        client.connection.terminate(ConnectionFault(ReplyCode.CONNECTION_FORCED, "shutdown", 0))
        assert client.only(commands.Connection.Close).reply_code == 320
        client.send(CLOSE_OK)
        assert client.transport.closed
        broker.broker.alarms.clear("memory")
        assert broker.vhost.queues["q"].store.ready_count == 0


class TestClientsThatDoNotRead:
    @pytest.fixture(autouse=True)
    def _message(self, client: MemoryClient) -> None:
        """Publish a message."""
        client.send(publish(1, "q", bytes(SIZE)))

    def test_replies_in_one_turn_are_bounded(self, broker: MemoryBroker, client: MemoryClient) -> None:
        client.feed((GET + REQUEUE) * 200)
        assert not client.transport.reading
        client.connection.pause_writing()
        client.transport.unread = 33 * SIZE
        broker.loop.run()
        assert len(client.transport.written) < 34 * SIZE
        assert not client.transport.reading

    def test_all_requests_are_answered_once_the_client_reads(self, broker: MemoryBroker, client: MemoryClient) -> None:
        client.feed((GET + REQUEUE) * 70)
        client.connection.pause_writing()
        client.transport.unread = 33 * SIZE
        broker.loop.run()
        came = kinds(client.methods())
        assert 30 <= len(came) < 35
        came += drain(client, broker)
        assert came == [commands.Basic.GetOk] * 70
        assert client.transport.reading
        client.call(1, commands.Basic.Qos)

    def test_replies_of_many_turns_are_bounded(self, broker: MemoryBroker, client: MemoryClient) -> None:
        client.connection.pause_writing()
        turns = 0
        while client.transport.reading and turns < 50:
            turns += 1
            client.feed((GET + REQUEUE) * 2)
            if client.transport.reading:
                broker.loop.run()
                client.transport.unread = len(client.transport.written)
        assert 15 <= turns <= 18
        assert drain(client, broker).count(commands.Basic.GetOk) == 2 * turns

    def test_returned_messages_count(self, broker: MemoryBroker, client: MemoryClient) -> None:
        client.connection.pause_writing()
        returned = publish(1, "nowhere", bytes(10 * SIZE), mandatory=True)
        for _ in range(3):
            client.send(returned)
            client.transport.unread = len(client.transport.written)
        assert client.transport.reading
        client.feed(returned)
        client.transport.unread = 40 * SIZE
        broker.loop.run()
        assert client.transport.reading
        client.feed(method(1, commands.Basic.Qos))
        assert not client.transport.reading

    def test_reading_continues_in_the_next_turn_if_the_client_reads_everything(
        self, broker: MemoryBroker, client: MemoryClient
    ) -> None:
        client.feed((GET + REQUEUE) * 100)
        assert not client.transport.reading
        broker.loop.run()
        assert client.transport.reading
        assert kinds(client.methods()) == [commands.Basic.GetOk] * 100

    @pytest.mark.parametrize("lost", [False, True])
    def test_paused_connections_can_be_closed(self, broker: MemoryBroker, client: MemoryClient, lost: bool) -> None:
        client.feed((GET + REQUEUE) * 100)
        if lost:
            client.abort()
        else:
            client.connection.terminate(ConnectionFault(ReplyCode.CONNECTION_FORCED, "shutdown", 0))
            assert client.transport.reading
            assert client.methods()[-1].kind is commands.Connection.Close
            client.send(CLOSE_OK)
        assert client.transport.closed
        assert len(broker.connections) == 0
        assert broker.vhost.queues["q"].ready_count() == 1

    def test_paused_connections_miss_no_heartbeats(self, broker: MemoryBroker) -> None:
        client = broker.open(heartbeat=10)
        client.feed((GET + REQUEUE) * 100)
        client.connection.pause_writing()
        client.transport.unread = 33 * SIZE
        broker.loop.advance(100)
        assert not client.transport.closed
        drain(client, broker)
        broker.loop.advance(31)
        assert client.transport.closed

    def test_an_alarm_while_output_is_overfull(self, broker: MemoryBroker, client: MemoryClient) -> None:
        client.feed((GET + REQUEUE) * 40 + publish(1, "q", b"x"))
        assert not client.transport.reading
        broker.broker.alarms.set("memory")
        broker.loop.run()
        came = kinds(client.methods())
        assert came == [commands.Basic.GetOk] * 40 + [commands.Connection.Blocked]
        assert not client.transport.reading
        broker.broker.alarms.clear("memory")
        assert client.transport.reading


class TestDroppedSockets:
    @pytest.mark.parametrize(
        "octets",
        [CLOSE, method(1, commands.Basic.Qos, prefetch_size=1), frame(METHOD, 1, b"\x00\x63\x00\x63")],
        ids=["closed by the client", "closed by the server", "dropped"],
    )
    def test_a_client_that_reads_nothing_does_not_keep_its_socket(
        self, broker: MemoryBroker, client: MemoryClient, octets: bytes
    ) -> None:
        client.connection.pause_writing()
        client.transport.unread = SIZE
        client.send(octets)
        broker.loop.advance(30.1)
        assert client.transport.closed
        broker.loop.advance(3)
        assert client.transport.aborted
        assert len(broker.connections) == 0

    def test_a_client_that_missed_heartbeats_does_not_keep_its_socket(self, broker: MemoryBroker) -> None:
        client = broker.open(heartbeat=1)
        client.call(1, commands.Queue.Declare, queue="mine", exclusive=True)
        client.transport.unread = SIZE
        broker.loop.advance(3)
        assert client.transport.closed
        assert "mine" not in broker.vhost.queues
        broker.loop.advance(3.1)
        assert len(broker.connections) == 0

    def test_a_client_that_reads_to_the_end_gets_all_output(self, broker: MemoryBroker, client: MemoryClient) -> None:
        client.transport.unread = SIZE
        client.send(method(1, commands.Queue.Declare, queue="x") + frame(METHOD, 1, b"\x00\x63\x00\x63"))
        client.only(commands.Queue.DeclareOk)
        assert client.transport.closed
        assert not client.transport.aborted

    def test_a_client_that_has_read_all_output_is_reset(self, broker: MemoryBroker, client: MemoryClient) -> None:
        client.send(method(1, commands.Queue.Declare, queue="x") + frame(METHOD, 1, b"\x00\x63\x00\x63"))
        client.only(commands.Queue.DeclareOk)
        assert client.transport.aborted
