"""Filters of streams: exactly the wanted messages, in order, with any credit."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from leveret.broker.core.queues.stream_queue import StreamFilter, filter_value
from leveret.policies.stream_arguments import Begin, StreamPlace
from leveret.protocol.field_table import FieldTable, FieldValue, longstr
from leveret.protocol.properties import HEADERS, encode_content_header, encode_headers
from leveret.storage.message import Envelope, Message
from tests.support.examples import examples
from tests.support.fake_consumer import FakeConsumer
from tests.support.stepping_clock import SteppingClock
from tests.support.streams import StreamBroker, offsets

FIRST = StreamPlace(Begin.FIRST)
KEY = "x-stream-filter-value"


def header_of(*headers: tuple[str, FieldValue]) -> bytes:
    table: FieldTable = headers
    return encode_content_header(0, {HEADERS: encode_headers(table)})


def message(value: str | None, body: bytes) -> Message:
    headers = [("tenant", longstr("x")), *([] if value is None else [(KEY, longstr(value))])]
    return Message(Envelope(b"\x00\x01s", header_of(*headers), True), body)


def publish(broker: StreamBroker, *values: str | None) -> None:
    """Publish messages with these values, each with its offset as body, in one turn."""
    start = broker.stream.stream.offsets[1]
    for number, value in enumerate(values, start):
        broker.stream.publish([message(value, b"%d" % number)], len(b"%d" % number))
    broker.loop.run()


def attach(
    broker: StreamBroker, *values: str, unfiltered: bool = False, room: int = 1000, name: str = ""
) -> FakeConsumer:
    consumer = FakeConsumer(broker.stream, "c", room)
    wanted = StreamFilter(frozenset(value.encode() for value in values), unfiltered)
    broker.stream.add_consumer(consumer, FIRST, name, wanted)
    broker.loop.run()
    return consumer


def test_values() -> None:
    assert filter_value(header_of((KEY, longstr("eu")))) == b"eu"
    assert filter_value(header_of(("a", FieldValue("F", ((KEY, longstr("inner")),))), (KEY, longstr("eu")))) == b"eu"
    assert filter_value(header_of((KEY, longstr("")))) is None
    assert filter_value(header_of((KEY, FieldValue("I", 5)))) is None
    assert filter_value(header_of(("x-stream-filter-valu", longstr("eu")))) is None
    assert filter_value(encode_content_header(0, {})) is None


def test_a_filter_that_matches_nothing_leaves_time_for_others() -> None:
    clock = SteppingClock()
    broker = StreamBroker(slice_clock=clock)
    publish(broker, *["b"] * 4000, "a")
    consumer = FakeConsumer(broker.stream)
    broker.stream.add_consumer(consumer, FIRST, "", StreamFilter(frozenset((b"a",)), False))
    broker.stream.deliver()
    assert consumer.received == []
    assert broker.stream.scheduled
    broker.loop.run()
    assert consumer.received == ["4000"]


def test_a_name_goes_on_behind_what_it_does_not_want() -> None:
    broker = StreamBroker()
    publish(broker, "a", *["b"] * 3000)
    consumer = attach(broker, "a", name="n")
    consumer.acknowledge()
    broker.loop.run()
    publish(broker, *["b"] * 1500)
    assert broker.stream.names.by_name["n"].next > 3000
    broker.stream.remove_consumer(consumer)
    publish(broker, "a")
    again = FakeConsumer(broker.stream)
    broker.stream.add_consumer(again, None, "n", StreamFilter(frozenset((b"a",)), False))
    broker.loop.run()
    assert again.received == ["4501"]


def test_a_name_does_not_go_on_behind_what_it_has_just_got() -> None:
    broker = StreamBroker()
    publish(broker, *["b"] * 1500, "a", *["b"] * 10)
    consumer = attach(broker, "a", name="n")
    assert consumer.received == ["1500"]
    assert broker.stream.names.by_name["n"].next <= 1501
    consumer.acknowledge()
    assert broker.stream.names.by_name["n"].next > 1501


def test_a_consumer_that_waits_keeps_its_filter() -> None:
    broker = StreamBroker()
    first, second = attach(broker, "a", name="n"), attach(broker, "b", name="n")
    publish(broker, "a", "b", "a")
    assert (first.received, second.received) == (["0", "2"], [])
    broker.stream.remove_consumer(first)
    broker.loop.run()
    assert second.received == ["1"]


@settings(max_examples=examples(100))
@given(
    values=st.lists(st.sampled_from(["a", "b", "c", None, ""]), max_size=60),
    wanted=st.sets(st.sampled_from("abc"), min_size=1),
    unfiltered=st.booleans(),
    room=st.integers(1, 10),
    data=st.data(),
)
def test_any_mix(values: list[str | None], wanted: set[str], unfiltered: bool, room: int, data: st.DataObject) -> None:
    broker = StreamBroker()
    at = data.draw(st.integers(0, len(values)))
    publish(broker, *values[:at])
    consumer = attach(broker, *wanted, unfiltered=unfiltered, room=room)
    publish(broker, *values[at:])
    expected = [number for number, value in enumerate(values) if (value in wanted if value else unfiltered)]
    seen = []
    while consumer.held:
        assert len(consumer.held) <= room
        count = data.draw(st.integers(1, len(consumer.held)))
        seen += offsets(consumer.held[:count])
        consumer.acknowledge(count)
        broker.loop.run()
    assert seen == expected


def test_a_consumer_that_left_leaves_neither_its_filter_nor_its_place() -> None:
    broker = StreamBroker()
    publish(broker, "a", "b")
    consumer = attach(broker, "a", room=1)
    broker.stream.remove_consumer(consumer)
    assert not broker.stream.stream.keeps_tail
    consumer.unblock()
    publish(broker, "a")
    assert consumer.received == ["0"]
    broker.stream.add_consumer(other := FakeConsumer(broker.stream, "c", 1000), FIRST)
    broker.loop.run()
    assert other.received == ["0", "1", "2"]
