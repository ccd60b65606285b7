"""What the event log says about messages that no queue has taken."""

from __future__ import annotations

from leveret.broker.core.messages.origin import Publisher
from leveret.broker.core.messages.published import published_to
from leveret.protocol import properties
from leveret.protocol.properties import Properties
from leveret.storage.message import Envelope


class PublishDetails:
    """Where messages of an envelope were published to, and by whom. Implements EventDetails.

    Args:
        vhost_name: Name of the virtual host; "" if the event is of a queue or exchange, which has one.
        envelope: The envelope.
        publisher: Who has published them; None for the broker itself.
    """

    __slots__ = ("_envelope", "_publisher", "_vhost_name")

    def __init__(self, vhost_name: str, envelope: Envelope, publisher: Publisher | None) -> None:
        self._vhost_name = vhost_name
        self._envelope = envelope
        self._publisher = publisher

    def texts(self, with_id: bool) -> dict[str, str]:
        """Return exchange, routing key, message id, user and connection, as far as they are known."""
        exchange, routing_key = published_to(self._envelope)
        found = {"exchange": exchange, "routing_key": routing_key}
        if self._vhost_name:
            found["vhost"] = self._vhost_name
        message_id = Properties(self._envelope.header).text(properties.MESSAGE_ID) if with_id else None
        if message_id is not None:
            found["message_id"] = message_id
        if self._publisher is not None:
            origin = self._publisher.origin
            found["user_name"] = origin.user
            if origin.connection:
                found["connection_name"] = origin.connection
        return found
