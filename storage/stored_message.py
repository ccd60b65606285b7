"""A message read from a store on disk."""

from __future__ import annotations

from leveret.storage.message import Envelope, Message


class StoredMessage(Message):
    """A message of one store, with its arrival time.

    Args:
        envelope: Routing data and properties.
        body: The message body.
        expires_at: Expiry in microseconds since 1970; 0 for never.
        arrived_at: Arrival in microseconds since 1970.
    """

    __slots__ = ("arrived_at", "expires_at")

    def __init__(self, envelope: Envelope, body: bytes, expires_at: int, arrived_at: int) -> None:
        self.envelope = envelope
        self.body = body
        self.expires_at = expires_at
        self.arrived_at = arrived_at
