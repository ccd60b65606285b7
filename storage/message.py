"""A message as the broker keeps it: raw bytes, nothing decoded, nothing re-encoded."""

from __future__ import annotations


class Envelope:
    """What a message says beside its body; one object for messages that say the same.

    Args:
        route: Exchange and routing key, each as an encoded short string, one behind the other.
        header: The content-header payload as it came.
        persistent: Whether delivery-mode is 2.
        priority: The priority property, 0..255; 0 where absent.
        expiration_ms: The expiration property in milliseconds; None where absent.
        dead: It was dead-lettered: its x-death header is the broker's own.
        blind_keys: Routing keys of its BCC header, which is gone.
        delivery_count: How often it was returned to a queue that counts that; the header says it too. None where
            that is not counted.
    """

    __slots__ = ("blind_keys", "dead", "delivery_count", "expiration_ms", "header", "persistent", "priority", "route")

    def __init__(
        self,
        route: bytes,
        header: bytes,
        persistent: bool = False,
        priority: int = 0,
        expiration_ms: int | None = None,
        dead: bool = False,
        blind_keys: tuple[str, ...] = (),
        delivery_count: int | None = None,
    ) -> None:
        self.route = route
        self.header = header
        self.persistent = persistent
        self.priority = priority
        self.expiration_ms = expiration_ms
        self.dead = dead
        self.blind_keys = blind_keys
        self.delivery_count = delivery_count


class Message:
    """One message. It is never changed, so that all queues it is routed to share it.

    Args:
        envelope: What it says about itself.
        body: Its body.

    Attributes:
        expires_at: When it expires where it waits, in microseconds since 1970; 0 for never.
    """

    __slots__ = ("body", "envelope")

    expires_at: int = 0

    def __init__(self, envelope: Envelope, body: bytes) -> None:
        self.envelope = envelope
        self.body = body


class TimedMessage(Message):
    """A message that expires; the copy of one queue, as the time depends on queue and arrival.

    Args:
        envelope: What it says about itself.
        body: Its body.
        expires_at: When it expires, in microseconds since 1970.
    """

    __slots__ = ("expires_at",)

    def __init__(self, envelope: Envelope, body: bytes, expires_at: int) -> None:
        self.envelope = envelope
        self.body = body
        self.expires_at = expires_at
