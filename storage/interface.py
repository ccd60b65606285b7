"""Interface of a message store."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeAlias

from leveret.storage.event_format import EventKind
from leveret.storage.message import Message

#: A message out of a store: its sequence number, the message, whether it was delivered before.
#: Sequence numbers rise in the order of arrival and are never used again.
Entry: TypeAlias = tuple[int, Message, bool]


def mark_returned(entries: list[Entry]) -> list[Entry]:
    """Entries of a queue that puts returned messages at its tail: they too say that they were delivered before."""
    return [(seq, each, redelivered or each.envelope.delivery_count is not None) for seq, each, redelivered in entries]


class MessageStore(Protocol):
    """Keeps one queue's messages in order.

    A message is *ready* from append() until take(), and *taken* from then until settle() or requeue().
    """

    @property
    def ready_count(self) -> int:
        """Ready messages."""

    @property
    def ready_bytes(self) -> int:
        """Body bytes of the ready messages."""

    def append(self, messages: Sequence[Message], body_bytes: int, longest: int | None = None) -> None:
        """Put messages at the tail.

        Args:
            messages: In the order in which they will be taken; all with one priority and one delivery mode.
            body_bytes: Sum of their body lengths, which the caller knows anyway.
            longest: Length of the longest body; None if all have one length.
        """

    def take(self, count: int, body_bytes: int) -> tuple[list[Entry], int]:
        """Take messages from the head.

        Messages that turn out to be damaged are not ready any more after it, so that it may return less than
        ready_count promised, even nothing.

        Args:
            count: At most this many, 1 or more.
            body_bytes: No further one once the taken bodies have reached this many bytes.
        Returns:
            The oldest ready messages, oldest first, and the sum of their body lengths; no messages only if none is
            ready any more.
        """

    def take_expired(self, now: int, count: int) -> list[Entry]:
        """Take messages from the head as long as they have expired.

        Args:
            now: Microseconds since 1970.
            count: At most this many, 1 or more.
        """

    def drop(self, count: int, body_bytes: int, kind: EventKind = EventKind.MAXLEN) -> tuple[int, int]:
        """Forget messages at the head for good; not more than one turn has time for.

        Args:
            count: At most this many, 1 or more.
            body_bytes: No further one once the dropped bodies have reached this many bytes.
            kind: Why.
        Returns:
            How many they were, and the sum of their body lengths.
        """

    def drop_expired(self, now: int, count: int) -> tuple[int, int]:
        """Forget messages at the head for good as long as they have expired; see drop().

        Args:
            now: Microseconds since 1970.
            count: At most this many, 1 or more.
        """

    def peek(self) -> Message | None:
        """The message at the head, without taking it; None only if none is ready any more."""

    def requeue(self, entries: Sequence[Entry]) -> None:
        """Put taken messages back where they were; they count as delivered before.

        Args:
            entries: In any order.
        """

    def settle(self, entries: Sequence[Entry], kind: EventKind = EventKind.ACK, flags: int = 0) -> None:
        """Forget taken messages for good.

        Args:
            entries: In any order, best in that of their numbers.
            kind: Why.
            flags: leveret.storage.event_format.DEAD_LETTERED, or 0.
        """

    def note(self, kind: EventKind, count: int, body_bytes: int, flags: int = 0) -> None:
        """Note what became of messages that are not in the store.

        Args:
            kind: What.
            count: How many.
            body_bytes: Sum of their body lengths.
            flags: As in the event log.
        """

    def purge(self) -> int:
        """Forget all ready messages; return how many they were."""

    def close(self) -> None:
        """Forget everything: the queue is gone."""
