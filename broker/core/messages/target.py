"""The base class of what a route leads to: queues, and exchanges that keep messages until they are due."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Iterable, Sequence
from typing import ClassVar, Protocol, TypeAlias

from leveret.broker.core.messages.origin import Publisher
from leveret.storage.backings import Backing
from leveret.storage.message import Message

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
