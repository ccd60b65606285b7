"""Messages for tests without a connection."""

from __future__ import annotations

import inspect

from leveret.storage.interface import Entry
from leveret.storage.message import Envelope, Message

#: Default exchange, routing key "q", and a content header without properties.
ENVELOPE = Envelope(b"\x00\x01q", b"\x00\x3c\x00\x00" + bytes(10))

#: Names of an envelope's attributes. A compiled class has no __slots__ that would name them.
ENVELOPE_FIELDS = [name for name, each in vars(Envelope).items() if inspect.isdatadescriptor(each)]


def message(body: bytes | str = b"") -> Message:
    """Return a message with a body."""
    return Message(ENVELOPE, body.encode() if isinstance(body, str) else body)


def size_of(messages: list[Message]) -> int:
    """Return the sum of the body lengths in bytes."""
    return sum(len(each.body) for each in messages)


def bodies(entries: list[Entry]) -> list[str]:
    """Return the bodies of entries as text, in order."""
    return [each.body.decode() for _, each, _ in entries]
