"""The interface between a shovel and its ends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol

from leveret.policies.amqp_uri import AmqpUri

#: Messages that a shovel has on their way at most if its prefetch count is no limit, and bytes of those not sent yet.
WINDOW: Final = 2048
WINDOW_BYTES: Final = 16 << 20


class Delivered(NamedTuple):
    """A message from the source.

    Attributes:
        tag: Its delivery tag; each is one more than the last.
        route: Exchange and routing key as encoded short strings.
        header: The payload of its content header.
    """

    tag: int
    route: bytes
    header: bytes
    body: bytes


class Outgoing(NamedTuple):
    """A message for the destination; see Delivered."""

    route: bytes
    header: bytes
    body: bytes


class EndFault(Exception):
    """An end has failed.

    Args:
        reason: Why, as RabbitMQ prints it; it has no password.
        is_refused: Whether it could not be connected to at all.
    """

    def __init__(self, reason: str, is_refused: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
        self.is_refused = is_refused


class Owner(Protocol):
    """The shovel, as its ends see it."""

    @property
    def name(self) -> str:
        """Name of the shovel."""

    def delivered(self, messages: Sequence[Delivered]) -> None:
        """Take messages from the source."""

    def room(self) -> int:
        """Return how many further messages it takes."""

    def answered(self, number: int, multiple: bool, accepted: bool) -> None:
        """Note the confirm or the refusal of a message.

        Args:
            number: Its number, of those that were published, from 1 on.
            multiple: Whether all before it that are not answered are meant, too.
            accepted: Whether the destination has taken it.
        """

    def writable(self) -> None:
        """Note that the destination takes messages again."""

    def failed(self, fault: EndFault) -> None:
        """Note that an end has failed."""


class End(Protocol):
    """An end that is connected, and has its queue and bindings.

    Attributes:
        uri: Which broker it is.
    """

    uri: AmqpUri

    async def close(self) -> None:
        """Close it. What is not settled returns to the source's queue."""

    def abort(self) -> None:
        """Drop it, as the death of the process does."""


class Source(End, Protocol):
    """Where messages come from."""

    message_count: int

    async def consume(self, arguments: Mapping[str, Any]) -> None:
        """Begin to deliver messages.

        Args:
            arguments: Arguments of the consumer, as JSON.
        Raises:
            EndFault: It is refused.
        """

    def settle(self, tags: Sequence[int]) -> None:
        """Acknowledge messages, in order of their tags."""

    def give_back(self, tags: Sequence[int]) -> None:
        """Return messages to the queue."""

    def resume(self) -> None:
        """Deliver again: there is room()."""


class Destination(End, Protocol):
    """Where messages go."""

    @property
    def is_blocked(self) -> bool:
        """Whether it takes none for now; writable() follows."""

    def publish(self, first: int, messages: Sequence[Outgoing]) -> None:
        """Publish messages; answered() follows for each if they are confirmed.

        Args:
            first: Number of the first one.
        Raises:
            EndFault: It is refused.
        """
