"""Messages for tests without a connection."""

from __future__ import annotations

from leveret.storage.interface import Entry
from leveret.storage.message import Envelope, Message

#: Default exchange, routing key "q", and a content header without properties.
ENVELOPE = Envelope(b"\x00\x01q", b"\x00\x3c\x00\x00" + bytes(10))


def message(body: bytes | str = b"") -> Message:
    """Return a message with a body."""
    return Message(ENVELOPE, body.encode() if isinstance(body, str) else body)


def size_of(messages: list[Message]) -> int:
    """Return the sum of the body lengths in bytes."""
    return sum(len(each.body) for each in messages)


def bodies(entries: list[Entry]) -> list[str]:
    """Return the bodies of entries as text, in order."""
    return [each.body.decode() for _, each, _ in entries]
