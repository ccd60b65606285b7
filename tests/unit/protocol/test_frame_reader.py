from __future__ import annotations

import struct
import tracemalloc
from typing import Any, TypeAlias

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from leveret.protocol.constants import BASIC_ACK, BASIC_PUBLISH, MESSAGE_SIZE_CAP
from leveret.protocol.faults import AmqpFault, WireFault
from leveret.protocol.frame_reader import AckRun, FrameReader, MethodReceived, PublishRun, VariedRun
from leveret.protocol.methods import METHODS, encode_method
from leveret.protocol.properties import encode_content_header
from tests.support.amqp_strategies import (
    arguments_of,
    content_headers,
    cuts,
    frame,
    message_frames,
    method_frames,
    mutations,
    publish_frame,
    streams,
)
from tests.support.examples import examples
from tests.support.frame_reading import (
    DECLARE,
    HEARTBEAT,
    MISSING_HEADER,
    MISSING_METHOD,
    OPEN,
    PUBLISH,
    contents_of,
    feed,
    message,
    one_by_one,
    read,
    reader,
)
from tests.support.reference_reader import ReferenceReader, flatten


@settings(max_examples=examples(300))
@given(frames=streams(), data=st.data())
def test_any_split_gives_what_a_naive_reader_reads(frames: list[bytes], data: st.DataObject) -> None:
    octets = b"".join(frames)
    expected = ReferenceReader().read(octets)
    assert read(octets) == expected
    assert flatten(feed(data.draw(cuts(octets)))) == expected


@given(frames=streams())
def test_frame_by_frame_and_octet_by_octet(frames: list[bytes]) -> None:
    octets = b"".join(frames)
    expected = ReferenceReader().read(octets)
    assert flatten(feed(frames)) == expected
    assert flatten(feed(one_by_one(octets))) == expected


@given(frames=streams(), data=st.data())
def test_stepwise_gives_the_same_one_event_at_a_time(frames: list[bytes], data: st.DataObject) -> None:
    octets = b"".join(frames)
    assert flatten(feed(data.draw(cuts(octets)), reader(stepwise=True))) == read(octets)


def test_a_new_reader_is_stepwise_and_takes_4096_octets() -> None:
    of = FrameReader()
    assert of.stepwise
    assert of.frame_max == 4096
    of.receive(OPEN + HEARTBEAT + DECLARE + PUBLISH)
    assert [len(of.events()) for _ in range(3)] == [1, 1, 0]


@settings(max_examples=examples(200))
@given(frame_octets=method_frames(st.integers(1, 65535)))
def test_every_method(frame_octets: bytes) -> None:
    (event,) = feed(one_by_one(frame_octets))
    assert isinstance(event, MethodReceived)
    assert encode_method(event.channel, event.method.index, *event.arguments) == frame_octets
    assert flatten(feed([frame_octets])) == flatten([event])


def test_a_body_in_many_small_frames_takes_no_more_than_itself() -> None:
    of, count = reader(), 20_000
    feed([PUBLISH + frame(2, 1, encode_content_header(2 * count))], of)
    piece = frame(3, 1, b"xy") * 1000
    tracemalloc.start()
    try:
        feed([piece] * (count // 1000 - 1), of)
        assert tracemalloc.get_traced_memory()[0] < 4 * count
    finally:
        tracemalloc.stop()
    (run,) = feed([piece], of)
    assert isinstance(run, PublishRun)
    assert run.bodies == [b"xy" * count]


@given(arguments=arguments_of(METHODS[BASIC_PUBLISH]), header=content_headers(), data=st.data())
def test_every_message(arguments: tuple[Any, ...], header: bytes, data: st.DataObject) -> None:
    route = encode_method(7, BASIC_PUBLISH, *arguments)
    chunks = data.draw(st.lists(st.binary(max_size=40), max_size=3).filter(lambda drawn: not drawn or drawn[-1] != b""))
    octets = b"".join(message_frames(7, route, header, chunks))
    events = feed(data.draw(cuts(octets)))
    assert flatten(events) == read(octets)
    (run,) = events
    assert isinstance(run, PublishRun)
    _, exchange, routing_key, mandatory, immediate = arguments
    publish = run.publish
    assert (publish.exchange, publish.routing_key) == (exchange, routing_key)
    assert (publish.mandatory, publish.immediate) == (mandatory, immediate)
    assert publish.route == route[13:-2]
    assert run.header[12:] == header[12:]
    assert int.from_bytes(run.header[4:12], "big") == len(run.bodies[0])
    assert run.bodies == [b"".join(chunks)]
    assert (run.channel, publish.memo) == (7, None)


def test_names_in_a_publish_need_not_be_utf_8() -> None:
    route = encode_method(1, BASIC_PUBLISH, 0, b"\xff", b"k\xc3", True, True)
    (event,) = read(*message_frames(1, route, encode_content_header(0), []))
    assert event[2:7] == ("\udcff", "k\udcc3", True, True, b"\x01\xff\x02k\xc3")


@pytest.mark.parametrize("size", [0, 1, 16, 5000])
def test_equal_messages_make_one_run(size: int) -> None:
    bodies = [bytes((number,)) * size for number in range(50)]
    (run,) = feed([b"".join(message("k", body) for body in bodies)])
    assert isinstance(run, PublishRun)
    assert run.bodies == bodies


def test_equal_publishes_and_headers_are_one_object() -> None:
    first, second = feed([message("k", b"123"), message("k", b"456")])
    assert isinstance(first, PublishRun)
    assert isinstance(second, PublishRun)
    assert first is not second
    assert first.publish is second.publish
    assert first.header is second.header


def test_single_acks_make_one_run() -> None:
    frames = [encode_method(3, BASIC_ACK, tag, False) for tag in range(1, 100)]
    (run,) = feed([b"".join(frames)])
    assert isinstance(run, AckRun)
    assert (run.channel, run.tags) == (3, list(range(1, 100)))


@given(
    acks=st.lists(
        st.tuples(st.sampled_from([1, 2, 0x100, 0xFFFF]), st.sampled_from([0, 1, 255, 256, 2**32, 2**63, 2**64 - 1])),
        min_size=1,
    ),
    data=st.data(),
)
def test_acks_of_any_channels_and_tags(acks: list[tuple[int, int]], data: st.DataObject) -> None:
    octets = b"".join(encode_method(channel, BASIC_ACK, tag, False) for channel, tag in acks)
    expected = [("ack", channel, tag) for channel, tag in acks]
    assert read(octets) == expected
    assert flatten(feed(data.draw(cuts(octets)))) == expected


def test_acks_within_a_content_are_refused() -> None:
    ack = encode_method(1, BASIC_ACK, 1, False)
    events = read(ack, PUBLISH, encode_method(2, BASIC_ACK, 1, False), ack)
    assert events == [("ack", 1, 1), ("ack", 2, 1), ("fault", MISSING_HEADER, BASIC_PUBLISH, False)]


def test_an_ack_of_many_ends_the_run() -> None:
    acks = [encode_method(3, BASIC_ACK, tag, tag == 3) for tag in range(1, 6)]
    first, many, last = feed([b"".join(acks)])
    assert isinstance(first, AckRun)
    assert isinstance(last, AckRun)
    assert (first.tags, last.tags) == ([1, 2], [4, 5])
    assert flatten([many]) == [("method", 3, BASIC_ACK, (3, True))]


# Each pair of messages differs in one thing: body, size, key, channel.
Sent: TypeAlias = tuple[str, bytes, int]
KINDS: list[Sent] = [
    ("a", b"xxx", 1),
    ("a", b"yyy", 1),
    ("a", b"", 1),
    ("a", b"1234", 1),
    ("b", b"xxx", 1),
    ("a", b"xxx", 2),
]


@pytest.mark.parametrize("first", KINDS)
@pytest.mark.parametrize("between", KINDS)
@pytest.mark.parametrize("last", KINDS)
def test_a_run_never_takes_over_what_came_before_it(first: Sent, between: Sent, last: Sent) -> None:
    sent = [first, between, last]
    wanted = [(channel, key, body) for key, body, channel in sent]
    assert contents_of(read(*(message(*each) for each in sent))) == wanted
    # The same with the one in the middle cut into two body frames.
    key, body, channel = between
    if body:
        route = publish_frame(channel, "x", key)
        split = message_frames(channel, route, encode_content_header(0), [body[:1], body[1:]])
        assert contents_of(read(message(*first), *split, message(*last), message(*last))) == [*wanted, wanted[2]]


def test_ever_new_routing_keys_are_forgotten_again() -> None:
    of = reader()
    keys = [f"k{number % 4099}" for number in range(5000)]
    assert contents_of(flatten(feed([message(key, b"x") for key in keys], of))) == [(1, key, b"x") for key in keys]
    assert len(of._publishes) <= 4096


def test_contents_of_other_channels_may_come_in_between() -> None:
    first = message_frames(1, publish_frame(1, "x", "one"), encode_content_header(0), [b"12", b"34"])
    second = message_frames(2, publish_frame(2, "x", "two"), encode_content_header(0), [b"ab", b"cd"])
    mixed = [each for pair in zip(first, second, strict=True) for each in pair]
    ack = encode_method(3, BASIC_ACK, 1, False)
    between = [each for part in mixed for each in (part, HEARTBEAT, ack)]
    events = [event for event in read(*between) if event[0] != "ack"]
    assert contents_of(events) == [(1, "one", b"1234"), (2, "two", b"abcd")]


def test_equal_messages_while_another_content_is_open() -> None:
    open_content = message_frames(2, publish_frame(2, "x", "open"), encode_content_header(0), [b"abc"])
    events = read(message("k", b"1"), *open_content[:2], message("k", b"2"), message("k", b"3"), open_content[2])
    assert contents_of(events) == [(1, "k", b"1"), (1, "k", b"2"), (1, "k", b"3"), (2, "open", b"abc")]


def test_empty_body_frames_in_a_body_are_fine() -> None:
    frames = message_frames(1, PUBLISH, encode_content_header(0), [b"", b"ab", b"", b"c", b""])
    # The last empty one comes behind a body that is whole.
    assert contents_of(read(*frames[:-1])) == [(1, "key", b"abc")]
    assert read(*frames)[1:] == [("fault", MISSING_METHOD, 0, False)]


@pytest.mark.parametrize("size", [10, 11, 30])
def test_a_body_above_the_limit_is_read_and_dropped(size: int) -> None:
    # The session answers it (12.29), by the size in the header.
    body = bytes(size)
    for chunks in ([body], [body[:4], body[4:]]):
        frames = message_frames(1, PUBLISH, encode_content_header(0), chunks)
        for pieces in ([b"".join(frames)], one_by_one(b"".join(frames))):
            events = flatten(feed([*pieces, message("next", b"x")], reader(10)))
            assert contents_of(events) == [(1, "key", body if size <= 10 else b""), (1, "next", b"x")]
            assert int.from_bytes(events[0][7][4:12], "big") == size


def test_the_largest_body_may_be_announced() -> None:
    header = encode_content_header(MESSAGE_SIZE_CAP)
    assert read(PUBLISH, frame(2, 1, header), frame(3, 1, b"abc")) == []


def check_broken(octets: bytes, pieces: list[bytes], *, stepwise: bool = False) -> None:
    """Check that bytes give the same events however they come, and only faults for mistakes."""
    at_once, piecewise = feed([octets], reader(stepwise=stepwise)), feed(pieces, reader(stepwise=stepwise))
    assert flatten(at_once) == flatten(piecewise)
    for event in at_once:
        assert isinstance(event, MethodReceived | PublishRun | VariedRun | AckRun | AmqpFault | WireFault)
        if isinstance(event, PublishRun):
            sizes = {len(body) for body in event.bodies}
            assert sizes == {int.from_bytes(event.header[4:12], "big")}


@settings(max_examples=examples(500))
@given(frames=streams(), data=st.data())
def test_changed_streams_give_the_same_however_they_come(frames: list[bytes], data: st.DataObject) -> None:
    octets = data.draw(mutations(b"".join(frames)))
    check_broken(octets, one_by_one(octets))
    check_broken(octets, data.draw(cuts(octets)), stepwise=True)


@settings(max_examples=examples(200))
@given(frames=streams(), data=st.data())
def test_frames_out_of_order_are_answered_as_by_a_naive_reader(frames: list[bytes], data: st.DataObject) -> None:
    shuffled = list(data.draw(st.permutations(frames)))
    # It stops at the first mistake.
    expected = ReferenceReader().read(b"".join(shuffled))
    assert read(*shuffled)[: len(expected)] == expected


@settings(max_examples=examples(300))
@given(octets=st.binary(max_size=200))
@example(octets=b"\x01\0\x01\0\0\0\x07\0\x3c\0\x28\0\0\0\xce")
def test_any_bytes(octets: bytes) -> None:
    check_broken(octets, one_by_one(octets))


@settings(max_examples=examples(300))
@given(
    frames=st.lists(
        st.builds(
            lambda kind, channel, head, rest: frame(kind, channel, head + rest),
            st.sampled_from((1, 1, 1, 2, 3, 8)),
            st.sampled_from((0, 1, 1, 256)),
            st.sampled_from([struct.pack(">I", index) for index in sorted(METHODS)] + [b"", b"\0\x3c\0\0" + b"\0" * 7]),
            st.binary(max_size=24),
        ),
        max_size=8,
    )
)
def test_whole_frames_with_any_payload(frames: list[bytes]) -> None:
    octets = b"".join(frames)
    check_broken(octets, one_by_one(octets))
