"""Streams without sockets: when messages are delivered, to whom, and when they are removed."""

from __future__ import annotations

from leveret.broker.core.queues.stream_queue import StreamQueue
from leveret.policies.policy import Policy
from leveret.policies.stream_arguments import Begin, StreamPlace
from leveret.protocol.field_table import longstr
from leveret.storage.message import Message
from tests.support.fake_consumer import FakeConsumer
from tests.support.messages import ENVELOPE
from tests.support.queues import declare_stream
from tests.support.stepping_clock import SteppingClock
from tests.support.streams import StreamBroker, number, offsets

FIRST = StreamPlace(Begin.FIRST)


def attach(broker: StreamBroker, offset: StreamPlace = FIRST, room: int = 1000, tag: str = "c") -> FakeConsumer:
    """Add a consumer, and end the turn."""
    consumer = FakeConsumer(broker.stream, tag, room)
    broker.stream.add_consumer(consumer, offset)
    broker.loop.run()
    return consumer


def numbered(count: int, start: int = 0) -> list[str]:
    return [str(each) for each in range(start, start + count)]


def test_a_message_is_delivered_when_it_is_synced() -> None:
    broker = StreamBroker(commits_later=True)
    consumer = attach(broker)
    broker.publish("a")
    assert consumer.received == []
    broker.engine._commits.wait()
    broker.advance(0)
    assert consumer.received == ["a"]


def test_long_deliveries_leave_time_for_others() -> None:
    clock = SteppingClock()
    broker = StreamBroker(slice_clock=clock)
    broker.publish(*numbered(3000))
    consumer = FakeConsumer(broker.stream, "c", 5000)
    broker.stream.add_consumer(consumer, FIRST)
    broker.stream.deliver()
    assert 0 < len(consumer.received) < 3000
    broker.loop.run()
    assert consumer.received == numbered(3000)


def test_consumers_that_leave_and_a_deleted_stream() -> None:
    broker = StreamBroker()
    broker.publish(*numbered(3))
    leaving, staying = attach(broker, tag="leaving"), attach(broker, tag="staying")
    broker.stream.remove_consumer(leaving)
    broker.publish("3")
    assert leaving.received == numbered(3)
    broker.vhost.delete_queue(broker.stream)
    broker.loop.run()
    assert (leaving.cancellations, staying.cancellations) == (0, 1)
    leaving.acknowledge(3)
    staying.acknowledge(4)
    assert not broker.engine.queues


def test_a_full_disk_delays_delivery() -> None:
    broker = StreamBroker()
    consumer = attach(broker)
    broker.publish("a")
    broker.files.room = 0
    broker.publish("b")
    assert consumer.received == ["a"]
    broker.files.room = None
    broker.advance(2)
    assert consumer.received == ["a", "b"]
    broker.publish("c")
    assert consumer.received == ["a", "b", "c"]


def test_a_restart() -> None:
    broker = StreamBroker(arguments=(number("x-stream-max-segment-size-bytes", 1000),))
    for body in numbered(30):
        broker.publish(body)
    assert broker.stores.close()
    # The definitions are not stored here: the stream is found by its name.
    again = StreamBroker(broker.files, now=broker.loop.now)
    assert again.stream.ready_count() == 30
    assert again.stream.backing.stream_segment_bytes == 1000
    assert offsets(attach(again).held) == list(range(30))


def test_a_damaged_queue_file_loses_nothing() -> None:
    broker = StreamBroker()
    broker.publish("before")
    qid = broker.stream.backing.qid
    broker.files.stop()
    broker.files.unlink(f"/data/q/{qid:08x}/QUEUE.json")
    # It has lost its name: the definitions know its number.
    damaged = StreamBroker(broker.files, name="other", now=broker.loop.now, qids={"s": qid})
    restored = damaged.vhost.queues["s"]
    assert isinstance(restored, StreamQueue)
    restored.publish([Message(ENVELOPE, b"after")], 5)
    damaged.loop.run()
    assert restored.backing.stream_segment_bytes == 500_000_000
    broker.files.stop()
    again = StreamBroker(broker.files, now=broker.loop.now)
    assert attach(again).received == ["before", "after"]


# -- retention --------------------------------------------------------------------------------------------

SMALL = number("x-stream-max-segment-size-bytes", 1000)


def test_length_is_looked_at_when_a_segment_is_full() -> None:
    broker = StreamBroker(arguments=(SMALL, number("x-max-length-bytes", 3000)))
    for body in numbered(200):
        broker.publish(body.ljust(100))
        assert broker.stream.figures().disk_bytes < 4500
    first, end = broker.stream.stream.offsets
    assert end == 200
    assert 150 < first < 190
    assert broker.stream.counters.outlived == first
    assert not broker.stream.counters.dropped


def test_age_is_looked_at_every_few_seconds() -> None:
    broker = StreamBroker(arguments=(SMALL, ("x-max-age", longstr("1m"))))
    for body in numbered(50):
        broker.publish(body.ljust(100))
    broker.advance(50)
    assert broker.stream.stream.offsets == (0, 50)
    broker.advance(20)
    first, end = broker.stream.stream.offsets
    assert end == 50
    assert 35 < first < 50


def test_a_policy_names_the_segments_of_new_streams_only() -> None:
    broker = StreamBroker()
    broker.vhost.policies.set(Policy("p", ".*", {"stream-max-segment-size-bytes": 5000}), operator=False)
    assert broker.stream.backing.stream_segment_bytes == 500_000_000
    later = declare_stream(broker.vhost, "t", SMALL)
    assert isinstance(later, StreamQueue)
    assert later.backing.stream_segment_bytes == 5000
