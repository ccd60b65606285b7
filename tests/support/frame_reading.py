"""Helpers for tests of the frame reader: feed bytes, collect events, encode common frames."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from leveret.protocol.constants import MESSAGE_SIZE_CAP
from leveret.protocol.frame_reader import Event, FrameReader
from leveret.protocol.methods import INDEX, encode_method
from leveret.protocol.properties import encode_content_header
from tests.support.amqp_strategies import frame, message_frames, publish_frame
from tests.support.reference_reader import Plain, flatten

FRAME_MAX = 8192
OPEN = encode_method(1, INDEX["channel.open"], "")
HEARTBEAT = frame(8, 0, b"")
PUBLISH = publish_frame(1, "x", "key")
DECLARE = encode_method(1, INDEX["queue.declare"], 0, "q", False, False, False, False, False, ())
MISSING_HEADER = "UNEXPECTED_FRAME - expected content header for class 60, got non content header frame instead"
MISSING_BODY = "UNEXPECTED_FRAME - expected content body, got non content body frame instead"
MISSING_METHOD = "UNEXPECTED_FRAME - expected method frame, got non method frame instead"
TOO_MUCH_BODY = "FRAME_ERROR - content body frame exceeds remaining content size"


def reader(max_message_size: int = MESSAGE_SIZE_CAP, *, stepwise: bool = False) -> FrameReader:
    """Return a reader after tuning."""
    made = FrameReader(max_message_size)
    made.frame_max = FRAME_MAX
    made.stepwise = stepwise
    return made


def drain(of: FrameReader) -> list[Event]:
    """Return all events of the bytes received so far."""
    found: list[Event] = []
    while events := of.events():
        faults = [event for event in events if isinstance(event, Exception)]
        # A fault is the last event of its list.
        assert not faults or events.index(faults[0]) == len(events) - 1
        assert not of.stepwise or len(events) == 1
        found += events
    return found


def feed(pieces: Iterable[bytes], of: FrameReader | None = None) -> list[Event]:
    """Return all events of bytes that arrive in pieces."""
    of = of or reader()
    found: list[Event] = []
    for piece in pieces:
        of.receive(piece)
        found += drain(of)
    return found


def read(*octets: bytes) -> list[Plain]:
    """Return all events of bytes that arrive at once, with runs split."""
    return flatten(feed([b"".join(octets)]))


def one_by_one(octets: bytes) -> list[bytes]:
    """Split bytes into single ones, so that no run is complete in one piece."""
    return [octets[at : at + 1] for at in range(len(octets))]


def message(key: str, body: bytes, channel: int = 1) -> bytes:
    """Return the frames of a message with a single body frame."""
    return b"".join(
        message_frames(channel, publish_frame(channel, "x", key), encode_content_header(0), [body] if body else [])
    )


def contents_of(events: Iterable[Plain]) -> list[tuple[Any, ...]]:
    """Return channel, routing key and body of messages."""
    return [(event[1], event[3], event[8]) for event in events]
