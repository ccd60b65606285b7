"""The base class of what a route leads to: queues, and exchanges that keep messages until they are due."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import ClassVar, TypeAlias

from leveret.broker.core.message_stores.backing import Backing
from leveret.broker.core.messages.origin import Publisher
from leveret.storage.message import Message

#: What a definition is of, and virtual host and name.
Definition: TypeAlias = tuple[str, tuple[str, str]]


class Target:
    """Something that takes published messages.

    Args:
        vhost_name: Name of the virtual host.
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

    def decided(self, messages: Sequence[Message]) -> Target:
        """Return what takes messages of a transaction when it is committed. They have one envelope."""
        return self

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
