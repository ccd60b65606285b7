"""In-memory message: raw bytes as received, neither decoded nor re-encoded."""

from __future__ import annotations

from typing import Final

from leveret.storage.compiler_hints import mypyc_attr


@mypyc_attr(acyclic=True)
class Envelope:
    """Routing data and properties of a message, shared by messages with equal ones.

    Args:
        route: Exchange and routing key, two consecutive encoded short strings.
        header: The content-header payload as received.
        persistent: Whether delivery-mode is 2.
        priority: The priority property, 0..255; 0 if absent.
        expiration_ms: The expiration property in milliseconds; None if absent.
        dead: Whether it was dead-lettered, so that its x-death header was written by the broker.
        blind_keys: Routing keys of its BCC header, which has been removed.
        delivery_count: Number of returns to a queue with a delivery count, also in the header; None if the queue does
            not count them.
        deferred_expiry: Expiry of a message that waits for its retry, in microseconds since 1970; 0 for none. The
            expiry of the message is then the time when it is due.
    """

    __slots__ = (
        "blind_keys", "dead", "deferred_expiry", "delivery_count", "expiration_ms", "header", "persistent", "priority",
        "route",
    )  # fmt: skip

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
        deferred_expiry: int = 0,
    ) -> None:
        self.route = route
        self.header = header
        self.persistent = persistent
        self.priority = priority
        self.expiration_ms = expiration_ms
        self.dead = dead
        self.blind_keys = blind_keys
        self.delivery_count = delivery_count
        self.deferred_expiry = deferred_expiry

    def changed(self, header: bytes, delivery_count: int | None, deferred_expiry: int = 0) -> Envelope:
        """Return a copy with another header, delivery count and deferred expiry."""
        return Envelope(
            self.route,
            header,
            self.persistent,
            self.priority,
            self.expiration_ms,
            self.dead,
            self.blind_keys,
            delivery_count,
            deferred_expiry,
        )


#: The envelope of no message, where there has not been one yet.
NO_ENVELOPE: Final = Envelope(b"", b"")


@mypyc_attr(acyclic=True)
class Message:
    """An immutable message, shared by all queues it is routed to.

    Args:
        envelope: Routing data and properties.
        body: The message body.

    Attributes:
        expires_at: Expiry in its queue, in microseconds since 1970; 0 for never.
    """

    __slots__ = ("body", "envelope")

    expires_at: int = 0

    def __init__(self, envelope: Envelope, body: bytes) -> None:
        self.envelope = envelope
        self.body = body


@mypyc_attr(acyclic=True)
class TimedMessage(Message):
    """A message with an expiry: one queue's copy, as the time depends on queue and arrival.

    Args:
        envelope: Routing data and properties.
        body: The message body.
        expires_at: Expiry in microseconds since 1970.
    """

    __slots__ = ("expires_at",)

    def __init__(self, envelope: Envelope, body: bytes, expires_at: int) -> None:
        self.envelope = envelope
        self.body = body
        self.expires_at = expires_at


@mypyc_attr(acyclic=True)
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
