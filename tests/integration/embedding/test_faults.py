"""Alarms and lost connections on demand, and snapshots to which a test goes back."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import aio_pika
import pika
import pytest
from pika.exceptions import AMQPError, NackError

from leveret import Leveret, LeveretThread
from leveret.broker.testing.environment import NotRunningError
from tests.integration.embedding.clients import channel_of, publish_durably, ready

# -- alarms -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("resource", ["memory", "disk"])
def test_an_alarm_blocks_publishers(broker: LeveretThread, resource: str) -> None:
    reasons: list[str] = []
    ends: list[bool] = []
    with pika.BlockingConnection(pika.URLParameters(broker.url)) as connection:
        connection.add_on_connection_blocked_callback(lambda _, frame: reasons.append(frame.method.reason))
        connection.add_on_connection_unblocked_callback(lambda *_: ends.append(True))
        channel = connection.channel()
        channel.queue_declare("q")
        with broker.faults.alarm(resource):
            channel.basic_publish("", "q", b"late")
            process_until(connection, lambda: bool(reasons))
            with channel_of(broker.url) as other:
                # Others are served; the message waits.
                assert ready(other, "q") == 0
            assert not ends
        process_until(connection, lambda: bool(ends))
    assert reasons == [f"low on {resource}"]
    assert [each.body for each in broker.wait_until(lambda: broker.messages("q"))] == [b"late"]


def process_until(connection: pika.BlockingConnection, condition: Callable[[], bool]) -> None:
    """Let pika call its callbacks until a condition holds."""
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        connection.process_data_events(0.05)


def test_alarms_overlap(broker: LeveretThread) -> None:
    with channel_of(broker.url) as channel:
        channel.queue_declare("q")
        with broker.faults.alarm():
            with broker.faults.alarm(), broker.faults.alarm("disk"):
                pass
            assert broker._broker.running().broker.alarms.resources == {"memory"}
        assert not broker._broker.running().broker.alarms.any
        publish_durably(channel, "q", b"1")


def test_an_alarm_ends_with_its_broker(broker: LeveretThread) -> None:
    with broker.faults.alarm():
        broker.restart()
        with channel_of(broker.url) as channel:
            channel.queue_declare("q")
            publish_durably(channel, "q", b"1")
    with LeveretThread() as other, other.faults.alarm():
        other.stop()
    with (
        pytest.raises(ValueError, match="there are alarms of memory and disk, not of 'cpu'"),
        broker.faults.alarm("cpu"),
    ):
        pass


# -- lost connections -------------------------------------------------------------------------------------


def test_connections_are_lost(broker: LeveretThread) -> None:
    channels = [pika.BlockingConnection(pika.URLParameters(broker.url)).channel() for _ in range(3)]
    channels[0].queue_declare("q", durable=True)
    channels[0].confirm_delivery()
    publish_durably(channels[0], "q", b"1")
    channels[1].basic_get("q")
    assert broker.faults.drop_connections() == 3
    for channel in channels:
        with pytest.raises(AMQPError):
            channel.queue_declare("q", passive=True)
    assert broker.faults.drop_connections() == 0
    with channel_of(broker.url) as channel:
        method, _, body = channel.basic_get("q")
        assert (body, method.redelivered) == (b"1", True)


# -- snapshots --------------------------------------------------------------------------------------------


def test_going_back(broker: LeveretThread) -> None:
    with channel_of(broker.url) as channel:
        channel.queue_declare("orders", durable=True, arguments={"x-max-priority": 3})
        channel.exchange_declare("shop", "topic", durable=True)
        channel.queue_bind("orders", "shop", "#")
        for body in (b"1", b"2"):
            channel.basic_publish("shop", "new", body, pika.BasicProperties(delivery_mode=2))
    url = broker.url
    snapshot = broker.snapshot()
    for _ in range(3):
        with channel_of(url) as channel:
            assert ready(channel, "orders") == 2
            channel.basic_get("orders", auto_ack=True)
            publish_durably(channel, "orders", b"3")
            channel.queue_delete("orders")
            channel.queue_declare("other", durable=True)
        broker.restore(snapshot)
        assert broker.url == url
        assert [each.body for each in broker.messages("orders")] == [b"1", b"2"]
        assert [each.body for each in broker.published("shop")] == [b"1", b"2"]
        with pytest.raises(LookupError):
            broker.messages("other")
    # After a reset, and after a death, too.
    broker.reset()
    broker.restore(snapshot)
    broker.kill()
    broker.restore(snapshot)
    assert len(broker.messages("orders")) == 2
    snapshot.remove()
    with pytest.raises(ValueError, match="the snapshot was removed"):
        broker.restore(snapshot)
    assert len(broker.messages("orders")) == 2


def test_a_snapshot_has_its_time(broker: LeveretThread) -> None:
    with channel_of(broker.url) as channel:
        channel.queue_declare("q", durable=True, arguments={"x-message-ttl": 3_600_000})
        publish_durably(channel, "q", b"1")
    broker.clock.advance(3000)
    snapshot = broker.snapshot()
    broker.clock.advance(1000)
    assert broker.messages("q") == []
    broker.restore(snapshot)
    assert len(broker.messages("q")) == 1
    broker.clock.advance(1000)
    assert broker.messages("q") == []


def test_clients_that_are_there(broker: LeveretThread) -> None:
    snapshot = broker.snapshot()
    with channel_of(broker.url) as channel:
        channel.queue_declare("q", arguments={"x-max-length": 1, "x-overflow": "reject-publish"})
        channel.basic_publish("", "q", b"1")
        with pytest.raises(NackError):
            channel.basic_publish("", "q", b"2")
        broker.restore(snapshot)
        with pytest.raises(AMQPError):
            ready(channel, "q")
        channel.connection.close = lambda *_: None


def test_a_directory_of_ones_own(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("not the broker's")
    with LeveretThread(tmp_path) as broker:
        with channel_of(broker.url) as channel:
            channel.queue_declare("q", durable=True)
            publish_durably(channel, "q", b"1")
        snapshot = broker.snapshot()
        with channel_of(broker.url) as channel:
            channel.queue_purge("q")
        broker.restore(snapshot)
        assert len(broker.messages("q")) == 1
    assert (tmp_path / "notes.txt").exists()
    assert not snapshot.exists
    with pytest.raises(NotRunningError):
        broker.snapshot()


async def test_in_the_loop() -> None:
    async with Leveret() as broker:
        async with await aio_pika.connect(broker.url) as connection:
            channel = await connection.channel()
            queue = await channel.declare_queue("q", durable=True)
            message = aio_pika.Message(b"1", delivery_mode=aio_pika.DeliveryMode.PERSISTENT)
            await channel.default_exchange.publish(message, "q")
            snapshot = await broker.snapshot()
            await queue.purge()
        await broker.restore(snapshot)
        assert len(broker.messages("q")) == 1
        with broker.faults.alarm():
            async with await aio_pika.connect(broker.url) as connection:
                channel = await connection.channel()
                assert (await channel.declare_queue("q", durable=True)).declaration_result.message_count == 1
        assert not broker.running().broker.alarms.any
