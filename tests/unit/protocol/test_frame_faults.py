from __future__ import annotations

import struct

import pytest

from leveret.protocol.constants import BASIC_ACK, BASIC_PUBLISH
from leveret.protocol.faults import ConnectionFault, WireFault
from leveret.protocol.frame_reader import ChannelFrames, MethodReceived
from leveret.protocol.methods import INDEX, encode_method
from leveret.protocol.properties import encode_content_header
from tests.support.amqp_strategies import frame, message_frames, publish_frame
from tests.support.frame_reading import (
    DECLARE,
    FRAME_MAX,
    HEARTBEAT,
    MISSING_BODY,
    MISSING_HEADER,
    MISSING_METHOD,
    OPEN,
    PUBLISH,
    TOO_MUCH_BODY,
    contents_of,
    feed,
    message,
    one_by_one,
    read,
    reader,
)
from tests.support.reference_reader import flatten


def check_fault(octets: bytes, text: str, method: int = 0, *, discards_input: bool = False, before: int = 0) -> None:
    """Check the fault that the last frame is answered with, however the bytes come.

    Args:
        octets: What the peer sends.
        text: The whole reply text.
        method: class-id << 16 | method-id that is to blame.
        discards_input: Nothing behind it is read.
        before: How many events come before it.
    """
    for pieces in ([octets], one_by_one(octets)):
        of = reader()
        events = feed(pieces, of)
        assert flatten(events)[before:] == [("fault", text, method, discards_input)]
        assert isinstance(events[-1], ConnectionFault)
        assert int(events[-1].code) in (501, 505, 541)
        # Reading continues after the frame, unless the rest cannot be parsed.
        assert flatten(feed([OPEN], of)) == ([] if discards_input else read(OPEN))


# -- faults -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("at", [0, 1, 2, 5, 8])
@pytest.mark.parametrize("size", [0, 1, 16, 100])
def test_a_wrong_end_octet_in_a_run(at: int, size: int) -> None:
    messages = [message("k", bytes((65 + number,)) * size) for number in range(9)]
    messages[at] = messages[at][:-1] + b"\x00"
    octets = b"".join(messages)
    expected = [(1, "k", bytes((65 + number,)) * size) for number in range(at)]
    for pieces in ([octets], one_by_one(octets)):
        *events, fault = flatten(feed(pieces))
        assert contents_of(events) == expected
        assert fault[0] == "fault"
        assert fault[1].startswith(f"FRAME_ERROR - type {3 if size else 2}, ")
        assert fault[1].endswith(": {invalid_frame_end_marker,0}")
        assert fault[2:] == (0, True)


def test_a_wrong_end_octet_in_a_run_of_acks() -> None:
    acks = [encode_method(1, BASIC_ACK, tag, False) for tag in range(6)]
    acks[3] = acks[3][:-1] + b"\xcd"
    for pieces in ([b"".join(acks)], one_by_one(b"".join(acks))):
        *events, fault = flatten(feed(pieces))
        assert events == [("ack", 1, tag) for tag in range(3)]
        text = "FRAME_ERROR - type 1, all octets = <<0,60,0,80,0,0,0,0,0,0,0,3,0>>: {invalid_frame_end_marker,205}"
        assert fault == ("fault", text, 0, True)


@pytest.mark.parametrize("size", [FRAME_MAX - 8, FRAME_MAX - 7, FRAME_MAX])
def test_framing_may_come_on_top_of_frame_max(size: int) -> None:
    body = bytes(size)
    octets = b"".join(message_frames(1, PUBLISH, encode_content_header(0), [body]))
    assert contents_of(read(octets, octets)) == [(1, "key", body)] * 2
    assert contents_of(flatten(feed(one_by_one(octets)))) == [(1, "key", body)]


def test_the_largest_header_frame() -> None:
    largest = encode_content_header(3)[:12] + b"\x20\x00" + struct.pack(">I", FRAME_MAX - 18) + bytes(FRAME_MAX - 18)
    assert len(largest) == FRAME_MAX
    for header in (largest, largest + b"\0"):
        octets = PUBLISH + frame(2, 1, header) + frame(3, 1, b"abc")
        for pieces in ([octets], one_by_one(octets)):
            (event,) = flatten(feed(pieces))
            if header is largest:
                assert event[7:] == (largest, b"abc")
            else:
                text = f"FRAME_ERROR - type 2, all octets = <<>>: {{frame_too_large,{FRAME_MAX + 1},{FRAME_MAX - 8}}}"
                assert event == ("fault", text, 0, True)


@pytest.mark.parametrize("extra", [b"\0", b"zz", b"\0" * 20])
@pytest.mark.parametrize("channel", [1, 2, 256, 257, 511])
@pytest.mark.parametrize("name", ["basic.ack", "basic.nack", "basic.publish", "queue.declare", "channel.open"])
def test_trailing_arguments(name: str, channel: int, extra: bytes) -> None:
    # On channels whose number looks like the beginning of a frame too.
    values = {"basic.ack": (7, False), "basic.nack": (7, False, False), "basic.publish": (0, "", "k", False, False),
              "queue.declare": (0, "q", *[False] * 5, ()), "channel.open": ("",)}[name]  # fmt: skip
    arguments = encode_method(channel, INDEX[name], *values)[11:-1] + extra
    octets = frame(1, channel, struct.pack(">I", INDEX[name]) + arguments)
    text = f"FRAME_ERROR - cannot decode <<{','.join(map(str, arguments))}>>"
    check_fault(octets, text, INDEX[name])
    ack = encode_method(channel, BASIC_ACK, 1, False)
    check_fault(ack + octets, text, INDEX[name], before=1)


@pytest.mark.parametrize("size", range(14))
@pytest.mark.parametrize("name", ["basic.ack", "basic.publish"])
def test_truncated_arguments(name: str, size: int) -> None:
    arguments = encode_method(1, INDEX[name], *((7, False) if name == "basic.ack" else (0, "ex", "ke", True, False)))
    cut = arguments[11:-1][:size]
    if len(cut) == len(arguments) - 12:
        return
    text = f"FRAME_ERROR - cannot decode <<{','.join(map(str, cut))}>>"
    check_fault(frame(1, 1, struct.pack(">I", INDEX[name]) + cut), text, INDEX[name])


def test_text_that_is_no_utf_8() -> None:
    octets = encode_method(1, INDEX["queue.delete"], 0, b"\xff", False, False, False)
    check_fault(octets, "FRAME_ERROR - Malformed UTF-8 in shortstr")


# -- channel 0 ----------------------------------------------------------------------------------------------


def close(text: bytes, extra: bytes = b"") -> bytes:
    """A frame of connection.close on channel 0."""
    name = bytes((len(text),)) + text
    return frame(1, 0, struct.pack(">IH", INDEX["connection.close"], 200) + name + b"\0" * 4 + extra)


BAD_TABLE = struct.pack(">IH", INDEX["queue.declare"], 0) + b"\x01q\0\0\0\0\x04\x01aZ\0"


@pytest.mark.parametrize(
    "octets",
    [
        close(b"ok", b"z"),
        close(b"\xff", b"z"),
        frame(1, 0, struct.pack(">I", INDEX["connection.close"])),
        frame(1, 0, struct.pack(">IQB", BASIC_ACK, 7, 0) + b"z"),
        frame(1, 0, struct.pack(">I", BASIC_PUBLISH) + b"zz"),
        frame(1, 0, BAD_TABLE),
        frame(1, 0, BAD_TABLE + b"z"),
    ],
)
def test_what_cannot_be_decoded_on_channel_0_is_an_internal_error(octets: bytes) -> None:
    check_fault(octets, "INTERNAL_ERROR")


def test_bad_text_on_channel_0_is_blamed_on_its_method() -> None:
    check_fault(close(b"\xff"), "FRAME_ERROR - Malformed UTF-8 in shortstr", INDEX["connection.close"])
    declare = struct.pack(">IH", INDEX["queue.declare"], 0) + b"\x01\xff\0\0\0\0\0"
    check_fault(frame(1, 0, declare), "FRAME_ERROR - Malformed UTF-8 in shortstr", INDEX["queue.declare"])


@pytest.mark.parametrize(
    "octets", [publish_frame(0, "", "k"), encode_method(0, BASIC_PUBLISH, 0, "", b"\xff", True, True)]
)
def test_a_publish_on_channel_0_begins_no_content(octets: bytes) -> None:
    # 12.16 is the session's to say.
    assert read(octets, octets, OPEN) == [("method", 0, BASIC_PUBLISH, ())] * 2 + read(OPEN)


def test_acks_on_channel_0_are_methods() -> None:
    # 12.16 needs the method.
    ack = encode_method(0, BASIC_ACK, 7, False)
    assert read(ack, ack) == [("method", 0, BASIC_ACK, (7, False))] * 2


# -- heartbeats ---------------------------------------------------------------------------------------------


def test_heartbeats_say_nothing() -> None:
    assert read(HEARTBEAT * 5) == []
    assert read(HEARTBEAT, OPEN, HEARTBEAT) == read(OPEN)
    of = reader(stepwise=True)
    of.receive(HEARTBEAT + OPEN + OPEN)
    assert [len(of.events()) for _ in range(3)] == [1, 1, 0]


# -- frames out of order ------------------------------------------------------------------------------------

HEADER = frame(2, 1, encode_content_header(4))


CLOSE_OK = encode_method(0, INDEX["connection.close-ok"])


def test_a_fault_ends_only_the_content_of_its_channel() -> None:
    other = message_frames(2, publish_frame(2, "x", "k"), encode_content_header(0), [b"abc"])
    events = read(other[0], PUBLISH, DECLARE, *other[1:], message("next", b"x"))
    assert events[0] == ("fault", MISSING_HEADER, BASIC_PUBLISH, False)
    assert contents_of(events[1:]) == [(2, "k", b"abc"), (1, "next", b"x")]


def test_a_publish_inside_a_run_that_has_no_content() -> None:
    whole = message("key", b"abc")
    publish = publish_frame(1, "x", "key")
    events = read(whole, whole, publish, whole, whole)
    assert contents_of(events[:2]) == [(1, "key", b"abc")] * 2
    # The frames that follow belong to nothing, until the next publish.
    assert events[2:-1] == [
        ("fault", MISSING_HEADER, BASIC_PUBLISH, False),
        ("fault", MISSING_METHOD, 0, False),
        ("fault", MISSING_METHOD, 0, False),
    ]
    assert contents_of(events[-1:]) == [(1, "key", b"abc")]


def test_a_message_of_a_run_may_not_interrupt_its_own_channel() -> None:
    whole = message("key", b"abc")
    header = frame(2, 1, encode_content_header(6))
    events = read(whole, PUBLISH, header, frame(3, 1, b"ab"), whole)
    assert contents_of(events[:1]) == [(1, "key", b"abc")]
    assert events[1] == ("fault", MISSING_BODY, BASIC_PUBLISH, False)


@pytest.mark.parametrize("chunks", [[b"abcde"], [b"ab", b"cde"], [b"abc", b"", b"de"]])
@pytest.mark.parametrize("in_a_run", [False, True])
def test_a_body_longer_than_announced(chunks: list[bytes], in_a_run: bool) -> None:
    before = message("key", b"1234") * 2 if in_a_run else b""
    bodies = b"".join(frame(3, 1, chunk) for chunk in chunks)
    check_fault(before + PUBLISH + HEADER + bodies, TOO_MUCH_BODY, BASIC_PUBLISH, before=2 * in_a_run)


def test_a_body_shorter_than_announced_waits_for_its_rest() -> None:
    before = message("key", b"1234") * 2
    assert contents_of(read(before, PUBLISH, HEADER, frame(3, 1, b"123"))) == [(1, "key", b"1234")] * 2
    assert contents_of(read(before, PUBLISH, HEADER, frame(3, 1, b"123"), frame(3, 1, b"4")))[2:] == [
        (1, "key", b"1234")
    ]


# -- before and after there are channels --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("octets", "shown"),
    [
        (OPEN, "type 1, all octets = <<0,20,0,10,0>>"),
        (frame(1, 7, b"abc"), 'type 1, all octets = <<"abc">>'),
        (frame(1, 7, b"\0\x63\0\x63"), "type 1, all octets = <<0,99,0,99>>"),
        (frame(9, 7, b""), "type 9, all octets = <<>>"),
        (frame(8, 7, b""), "type 8, all octets = <<>>"),
        (message("k", b"x"), "type 1, all octets = <<0,60,0,40,0,0,1,120,1,107,0>>"),
    ],
)
def test_frames_of_channels_are_refused_unseen(octets: bytes, shown: str) -> None:
    of = reader()
    of.set_channel_frames(ChannelFrames.REFUSED)
    (fault, *_) = flatten(feed([octets], of))
    assert fault == ("fault", f"UNEXPECTED_FRAME - {shown}", 0, False)
    assert flatten(feed([CLOSE_OK], of)) == [("method", 0, INDEX["connection.close-ok"], ())]


@pytest.mark.parametrize("before", [b"", PUBLISH, PUBLISH + HEADER, message("k", b"x") * 2])
def test_frames_of_channels_are_skipped_unseen(before: bytes) -> None:
    of = reader()
    feed([before], of)
    of.set_channel_frames(ChannelFrames.SKIPPED)
    wrong = [frame(1, 1, b"abc"), frame(1, 1, b"\0\x63\0\x63"), frame(1, 1, BAD_TABLE), frame(9, 1, b"")]
    octets = b"".join([frame(3, 1, b"abcd"), *wrong, message("k", b"x") * 2, HEADER, DECLARE, CLOSE_OK])
    assert flatten(feed([octets], of)) == [("method", 0, INDEX["connection.close-ok"], ())]


# -- what drops the connection ------------------------------------------------------------------------------

NO_METHODS = [(60, 41), (10, 0), (0, 0), (99, 1), (50, 52), (65535, 65535), (30, 12), (60, 0)]


@pytest.mark.parametrize(("class_id", "method_id"), NO_METHODS)
@pytest.mark.parametrize("channel", [0, 1])
@pytest.mark.parametrize("before", [b"", PUBLISH, PUBLISH + HEADER])
def test_unknown_methods(class_id: int, method_id: int, channel: int, before: bytes) -> None:
    # Inside a content too.
    octets = before + frame(1, channel, struct.pack(">HH", class_id, method_id) + b"abc")
    for pieces in ([octets], one_by_one(octets)):
        of = reader()
        assert flatten(feed(pieces, of)) == [("wire", f"unknown method {class_id}.{method_id}")]
        assert feed([OPEN, message("k", b"x")], of) == []


def test_a_table_nested_without_end() -> None:
    entries = b""
    while len(entries) < FRAME_MAX - 100:
        entries = b"\0F" + struct.pack(">I", len(entries)) + entries
    arguments = struct.pack(">IH", INDEX["queue.declare"], 0) + b"\x01q\0" + struct.pack(">I", len(entries)) + entries
    (event,) = feed([frame(1, 1, arguments)])
    assert isinstance(event, WireFault | MethodReceived)


def test_a_deaf_reader_hears_nothing() -> None:
    of = reader()
    of.receive(PUBLISH + HEADER)
    assert of.events() == []
    of.discard_input()
    assert feed([frame(3, 1, b"1234"), OPEN, message("k", b"x")], of) == []
    assert of._data == b""


def test_bytes_behind_a_deaf_fault_are_thrown_away() -> None:
    of = reader()
    assert len(feed([frame(1, 1, b"abcd", 0) + OPEN * 3 + PUBLISH], of)) == 1
    assert feed([OPEN], of) == []


def test_bytes_that_have_been_read_are_not_kept() -> None:
    of = reader()
    for _ in range(50):
        feed([message("k", bytes(1000)), OPEN[:5]], of)
        feed([OPEN[5:]], of)
    assert len(of._data) - of._offset == 0
    assert len(of._data) < 3000
