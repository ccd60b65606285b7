"""Who has published or consumes messages."""

from __future__ import annotations

from typing import NamedTuple, Protocol


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
