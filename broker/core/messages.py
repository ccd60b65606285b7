"""Messages as the core sees them: who has published them and where to, and what a route leads to."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Iterable, Sequence
from typing import ClassVar, NamedTuple, Protocol, TypeAlias

from leveret.protocol import properties
from leveret.protocol.faults import precondition_failed
from leveret.protocol.field_table import TYPE_NAMES, FieldTable, find
from leveret.protocol.properties import Properties
from leveret.storage.backings import Backing
from leveret.storage.message import Envelope, Message


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


#: Kind of a definition, and virtual host and name.
Definition: TypeAlias = tuple[str, tuple[str, str]]


class Remembering(Protocol):
    """What has to remember the messages of a route, besides its targets."""

    def remember(self, messages: Sequence[Message]) -> None:
        """Remember messages, which have one envelope."""


class Target:
    """Something that takes published messages.

    Args:
        name: Name of the queue or exchange.
        stored: See below.

    Attributes:
        definition_kind: ``queue`` or ``exchange``: the kind of its definition.
        vhost_name: Name of the virtual host.
        name: Name of the queue or exchange.
        stored: Where its messages are kept, as far as confirms depend on it.
        accepts_varied: What takes_varied() returns.
        deleted: Whether it is deleted, and takes no messages.
    """

    __slots__ = ("accepts_varied", "deleted", "name", "stored", "vhost_name")

    definition_kind: ClassVar[str]

    def __init__(self, vhost_name: str, name: str, stored: Backing) -> None:
        self.vhost_name = vhost_name
        self.name = name
        self.stored = stored
        self.accepts_varied = True
        self.deleted = False

    def takes_varied(self) -> bool:
        """Return whether publish_varied() is equivalent to a publish() of each message."""
        return self.accepts_varied

    def definitions(self) -> list[Definition]:
        """Return the definitions on which confirms of its messages depend."""
        return [(self.definition_kind, (self.vhost_name, self.name))]

    def queue_names(self) -> list[str]:
        """Return the names of the queues that it is or leads to."""
        return []

    def without(self, names: Collection[str | None]) -> Target | None:
        """Return the same without some queues, by their names; None if nothing is left."""
        return self

    def decided(self, messages: Sequence[Message]) -> Target:
        """Return what takes messages of a transaction when it is committed. They have one envelope."""
        return self

    def remember(self, messages: Sequence[Message]) -> None:
        """Remember messages that reach nothing behind it, if it remembers any."""

    @abstractmethod
    def publish(self, messages: Sequence[Message], body_bytes: int, publisher: Publisher | None = None) -> int:
        """Take messages.

        Args:
            messages: Messages in order of arrival, with one envelope and of one size.
            body_bytes: Sum of their body lengths.
            publisher: Who publishes them; None for the broker itself.
        Returns:
            Number of messages accepted from the front; the remaining ones were refused.
        """

    @abstractmethod
    def publish_varied(self, messages: Sequence[Message], body_bytes: int, longest: int) -> None:
        """Take messages with different headers and sizes; requires takes_varied().

        Args:
            messages: Messages in order of arrival, with one priority and one delivery mode, and without expiration.
            body_bytes: Sum of their body lengths.
            longest: Length of the longest body.
        """


def names_of(targets: Iterable[Target]) -> list[str]:
    """Return the names of the queues that targets are or lead to."""
    return [name for target in targets for name in target.queue_names()]


def leave_out(targets: Iterable[Target], names: Collection[str | None]) -> tuple[Target, ...]:
    """Return targets without some queues, by their names."""
    kept = [target.without(names) for target in targets]
    return tuple([target for target in kept if target is not None])
