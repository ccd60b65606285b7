"""Streams without sockets: when messages are delivered, to whom, and when they are removed."""

from __future__ import annotations

import pytest

from leveret.broker.core.queues.stream_queue import StreamQueue
from leveret.policies.policy import Policy
from leveret.policies.stream_arguments import Begin, StreamPlace
from leveret.protocol.field_table import longstr
from leveret.storage.message import Message
from tests.support.fake_consumer import FakeConsumer
from tests.support.messages import ENVELOPE
from tests.support.queues import declare_stream, settle
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


def test_every_consumer_gets_all_messages() -> None:
    broker = StreamBroker()
    broker.publish(*numbered(5))
    consumers = [attach(broker, tag=str(each)) for each in range(3)]
    broker.publish(*numbered(5, 5))
    assert [each.received for each in consumers] == [numbered(10)] * 3
    assert offsets(consumers[0].held) == list(range(10))
    assert broker.stream.ready_count() == 10
    assert broker.stream.counters.delivered == 30


def test_a_message_is_delivered_when_it_is_synced() -> None:
    broker = StreamBroker(commits_later=True)
    consumer = attach(broker)
    broker.publish("a")
    assert consumer.received == []
    broker.engine._commits.wait()
    broker.advance(0)
    assert consumer.received == ["a"]


def test_a_consumer_that_begins_with_the_next_gets_no_older_ones() -> None:
    broker = StreamBroker()
    broker.publish("old")
    consumer = attach(broker, StreamPlace(Begin.NEXT))
    broker.publish("new")
    assert consumer.received == ["new"]


@pytest.mark.parametrize(
    ("offset", "first"),
    [
        (StreamPlace(Begin.OFFSET, -7), 0),
        (StreamPlace(Begin.OFFSET, 3), 3),
        (StreamPlace(Begin.OFFSET, 12), 12),
        (StreamPlace(Begin.LAST), 6),
        (StreamPlace(Begin.TIME, 1_000_000_000), 0),
        (StreamPlace(Begin.TIME, 1_010_000_000), 3),
        (StreamPlace(Begin.TIME, 1_021_000_000), 9),
        (StreamPlace(Begin.AGE, 15_000_000), 3),
        (StreamPlace(Begin.AGE, 1_000_000_000_000), 0),
    ],
)
def test_places(offset: StreamPlace, first: int) -> None:
    broker = StreamBroker()
    for start in (0, 3, 6):
        broker.publish(*numbered(3, start))
        broker.advance(10)
    broker.loop.now = 1020
    consumer = attach(broker, offset)
    broker.publish(*numbered(5, 9))
    assert offsets(consumer.held) == list(range(first, 14))


def test_credit_and_acknowledgement() -> None:
    broker = StreamBroker()
    broker.publish(*numbered(10))
    consumer = attach(broker, room=2)
    assert consumer.received == numbered(2)
    consumer.acknowledge(1)
    broker.loop.run()
    assert consumer.received == numbered(3)
    assert broker.stream.counters.acknowledged == 1
    entries, consumer.held = consumer.held, []
    settle(consumer, entries, "reject")
    consumer.unblock()
    broker.loop.run()
    assert consumer.received == numbered(5)
    consumer.requeue(0, 1)
    consumer.unblock()
    broker.loop.run()
    assert consumer.received == numbered(7)
    assert broker.stream.ready_count() == 10


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


def test_policies_apply_at_once() -> None:
    broker = StreamBroker(arguments=(SMALL, number("x-max-length-bytes", 1_000_000)))
    for body in numbered(100):
        broker.publish(body.ljust(100))
    policies = broker.vhost.policies
    policies.set(Policy("p", "s", {"max-length-bytes": 3000}), operator=False)
    broker.loop.run()
    first = broker.stream.stream.offsets[0]
    assert 60 < first < 95
    assert broker.stream.figures().disk_bytes <= 3000
    policies.set(Policy("p", "s", {"max-length-bytes": 3000, "max-length": 1}), operator=False)
    assert broker.stream.settings.max_length_bytes == 1_000_000


def test_a_policy_names_the_segments_of_new_streams_only() -> None:
    broker = StreamBroker()
    broker.vhost.policies.set(Policy("p", ".*", {"stream-max-segment-size-bytes": 5000}), operator=False)
    assert broker.stream.backing.stream_segment_bytes == 500_000_000
    later = declare_stream(broker.vhost, "t", SMALL)
    assert isinstance(later, StreamQueue)
    assert later.backing.stream_segment_bytes == 5000
