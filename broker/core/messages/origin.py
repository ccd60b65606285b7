"""Who has published a message and where to, read from its raw form, and what the event log says about it."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from leveret.protocol import properties
from leveret.protocol.faults import precondition_failed
from leveret.protocol.field_table import TYPE_NAMES, FieldTable, find
from leveret.protocol.properties import Properties
from leveret.storage.message import Envelope


class Origin(NamedTuple):
    """The publisher or consumer of a message.

    Args:
        connection: Name of the connection.
        channel: Number of the channel.
        user: Name of the user.
    """

    connection: str
    channel: int
    user: str


class Publisher(Protocol):
    """Who publishes messages; a queue asks only about those that it refuses."""

    @property
    def origin(self) -> Origin:
        """Its connection and user."""

    @property
    def is_told(self) -> bool:
        """Whether it learns that a message is refused, as with publisher confirms."""


class AnsweredPublisher(NamedTuple):
    """A publisher that learns from the answer what has become of a message: over HTTP, or a job of the broker."""

    origin: Origin
    is_told: bool = True


def published_to(envelope: Envelope) -> tuple[str, str]:
    """Return exchange and routing key of a message; bytes that are not UTF-8 become surrogate escapes."""
    octets = envelope.route
    split = 1 + octets[0]
    exchange, routing_key = octets[1:split], octets[split + 1 :]
    return exchange.decode("utf-8", "surrogateescape"), routing_key.decode("utf-8", "surrogateescape")


def read_extra_keys(headers: FieldTable, name: str) -> list[str]:
    """Return the routing keys of a CC or BCC header; elements that are not strings are skipped.

    Raises:
        ChannelFault: PRECONDITION_FAILED (406).
    """
    field = find(headers, name)
    if field is None:
        return []
    if field.kind != "A":
        kind = TYPE_NAMES[field.kind]
        raise precondition_failed(f'invalid message: {{unacceptable_type_in_header,"{name}",{kind}}}')
    return [element.value.decode("utf-8", "surrogateescape") for element in field.value if element.kind == "S"]


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
