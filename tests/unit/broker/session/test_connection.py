from __future__ import annotations

import logging

import pytest
from pamqp import commands

from leveret.broker.session.channel_table import HANDLERS
from leveret.protocol.methods import INDEX
from tests.support.memory_broker import CLOSE, MemoryBroker, MemoryClient, kinds, method, publish
from tests.support.transport import BODY, HEARTBEAT, Frame, frame


def closed(client: MemoryClient) -> tuple[int, str, tuple[int, int]]:
    """Return code, text and method of the received connection.close, and check that it came alone."""
    came = client.only(commands.Connection.Close)
    return came.reply_code, came.reply_text, (came.class_id, came.method_id)


class TestClosedByTheClient:
    def test_a_short_heartbeat_shortens_the_wait(self, broker: MemoryBroker) -> None:
        client = broker.open(heartbeat=5)
        client.send(CLOSE)
        client.frames()
        broker.loop.advance(4.9)
        assert not client.transport.closed
        broker.loop.advance(0.2)
        assert client.transport.closed
        assert client.frames() == [], "no heartbeats after the close"


class TestFaultsOfOurs:
    def test_an_internal_error_closes_one_connection_and_is_logged_once(
        self,
        monkeypatch: pytest.MonkeyPatch,
        caplog: pytest.LogCaptureFixture,
        broker: MemoryBroker,
        client: MemoryClient,
    ) -> None:
        def fail(*_: object) -> None:
            raise ZeroDivisionError

        other = broker.open()
        monkeypatch.setitem(HANDLERS, INDEX["basic.qos"], fail)
        with caplog.at_level(logging.ERROR):
            client.send(method(1, commands.Basic.Qos), method(1, commands.Basic.Qos))
        assert closed(client) == (541, "INTERNAL_ERROR", (60, 10))
        assert [record.exc_info is not None for record in caplog.records].count(True) == 1
        assert kinds(other.call(1, commands.Queue.Declare, queue="other")) == [commands.Queue.DeclareOk]


class TestChannels:
    def test_the_node_has_a_limit_too(self) -> None:
        broker = MemoryBroker(channel_max_per_node=3)
        first, second = broker.open(), broker.open(channels=2)
        second.send(method(4, commands.Channel.Open))
        assert "number of channels opened on node" in closed(second)[1]
        first.abort()
        assert broker.broker.connections.channel_count == 0
        assert broker.broker.connections.channels_by_user["guest"] == 0


class TestLost:
    def test_a_lost_connection_releases_all_resources(self, broker: MemoryBroker, client: MemoryClient) -> None:
        client.call(1, commands.Queue.Declare, queue="mine", exclusive=True)
        client.send(*(publish(1, "q", bytes((number,))) for number in range(3)))
        client.call(1, commands.Basic.Consume, queue="q", consumer_tag="c")
        queue = broker.vhost.queues["q"]
        assert (queue.unacked_count, len(queue.consumers)) == (3, 1)
        client.abort()
        assert (queue.unacked_count, queue.store.ready_count, len(queue.consumers)) == (0, 3, 0)
        assert list(broker.vhost.queues) == ["q"]
        assert (broker.broker.connections.channel_count, broker.broker.connections.by_vhost["/"]) == (0, 0)
        assert len(broker.connections) == 0
        assert broker.loop.pending_timers == 0

    def test_incomplete_publishes_of_a_lost_connection_are_discarded(
        self, broker: MemoryBroker, client: MemoryClient
    ) -> None:
        client.call(1, commands.Tx.Select)
        client.send(publish(1, "q", b"held"), publish(1, "q", b"half")[:-3])
        client.abort()
        assert broker.vhost.queues["q"].store.ready_count == 0


class TestOutput:
    def test_a_slow_reader_gets_no_more_until_it_catches_up(self, broker: MemoryBroker, client: MemoryClient) -> None:
        client.call(1, commands.Basic.Consume, queue="q", consumer_tag="c", no_ack=True)
        client.connection.pause_writing()
        client.send(*(publish(1, "q", b"x") for _ in range(5)))
        assert client.frames() == []
        assert broker.vhost.queues["q"].store.ready_count == 5
        assert kinds(client.call(1, commands.Basic.Qos)) == [commands.Basic.QosOk]
        client.connection.resume_writing()
        broker.loop.run()
        assert kinds(client.methods()) == [commands.Basic.Deliver] * 5

    def test_a_backlog_goes_out_over_several_turns_completely_and_in_order(
        self, broker: MemoryBroker, client: MemoryClient
    ) -> None:
        bodies = [bytes((number,)) * 60_000 for number in range(40)]
        client.send(*(publish(1, "q", body) for body in bodies))
        writes = client.transport.writes
        client.send(method(1, commands.Basic.Consume, queue="q", consumer_tag="c"))
        assert client.transport.writes - writes > 2
        frames = client.frames()
        assert b"".join(each.payload for each in frames if each.type == BODY) == b"".join(bodies)


def session() -> list[bytes]:
    """Return the input of a session with many kinds of requests; each element follows the replies to the last."""
    consume = method(2, commands.Basic.Consume, queue="s", consumer_tag="c")
    return [
        b"".join(
            (
                method(1, commands.Confirm.Select),
                method(1, commands.Queue.Declare, queue="s"),
                publish(1, "s", b"one"),
                publish(1, "s", b"two", content_type="text/plain"),
                publish(1, "s", b""),
                publish(1, "s", b"big" * 50_000),
                publish(1, "nowhere", b"back", mandatory=True),
                frame(HEARTBEAT, 0, b""),
                method(2, commands.Channel.Open),
                consume,
            )
        ),
        b"".join(
            (
                method(2, commands.Basic.Ack, delivery_tag=1),
                method(2, commands.Basic.Ack, delivery_tag=2),
                method(2, commands.Basic.Nack, delivery_tag=4, multiple=True, requeue=False),
                publish(1, "s", b"x") * 3,
            )
        ),
        b"".join(
            (
                *(method(2, commands.Basic.Ack, delivery_tag=tag) for tag in (5, 6, 7)),
                method(2, commands.Basic.Cancel, consumer_tag="c"),
                method(1, commands.Queue.Delete, queue="s"),
                method(2, commands.Basic.Ack, delivery_tag=8),
                method(2, commands.Queue.Declare, queue="ignored"),
                CLOSE,
            )
        ),
    ]


def per_channel(frames: list[Frame]) -> dict[int, list[tuple[int, bytes]]]:
    """Return the frames by channel, except confirms, which depend on the turns."""
    confirm = INDEX["basic.ack"].to_bytes(4, "big")
    found: dict[int, list[tuple[int, bytes]]] = {}
    for each in frames:
        if not each.payload.startswith(confirm):
            found.setdefault(each.channel, []).append((each.type, each.payload))
    return found


@pytest.mark.parametrize("turns", ["one", "one a piece"])
def test_the_result_does_not_depend_on_how_input_is_split(turns: str) -> None:
    results = []
    for size in (13, 1000, 1 << 20):
        broker = MemoryBroker()
        client = broker.open()
        for octets in session():
            for at in range(0, len(octets), size):
                client.feed(octets[at : at + size])
                if turns == "one a piece":
                    broker.loop.run()
            broker.loop.run()
        results.append(per_channel(client.frames()))
        assert broker.vhost.queues == {}
    assert all(result == results[0] for result in results)
    assert [len(results[0][number]) for number in (0, 1, 2)] == [1, 6, 25]
