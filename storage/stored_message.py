"""A message as it comes out of a store on disk."""

from __future__ import annotations

from leveret.storage.message import Envelope, Message


class StoredMessage(Message):
    """A message of one store, which says when it came there.

    Args:
        envelope: What it says about itself.
        body: Its body.
        expires_at: When it expires, in microseconds since 1970; 0 for never.
        arrived_at: When it came, in microseconds since 1970.
    """

    __slots__ = ("arrived_at", "expires_at")

    def __init__(self, envelope: Envelope, body: bytes, expires_at: int, arrived_at: int) -> None:
        self.envelope = envelope
        self.body = body
        self.expires_at = expires_at
        self.arrived_at = arrived_at
