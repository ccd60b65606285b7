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
    """

    __slots__ = ("expiration_ms", "header", "persistent", "priority", "route")

    def __init__(
        self,
        route: bytes,
        header: bytes,
        persistent: bool = False,
        priority: int = 0,
        expiration_ms: int | None = None,
    ) -> None:
        self.route = route
        self.header = header
        self.persistent = persistent
        self.priority = priority
        self.expiration_ms = expiration_ms


class Message:
    """One message. It is never changed, so that all queues it is routed to share it.

    Args:
        envelope: What it says about itself.
        body: Its body.
    """

    __slots__ = ("body", "envelope")

    def __init__(self, envelope: Envelope, body: bytes) -> None:
        self.envelope = envelope
        self.body = body
