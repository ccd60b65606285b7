"""Interface of a message store."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeAlias

from leveret.storage.event_details import EventDetails
from leveret.storage.event_format import EventKind
from leveret.storage.message import Message

#: A message taken from a store: sequence number, message, redelivered flag.
#: Sequence numbers increase in the order of arrival and are never reused.
Entry: TypeAlias = tuple[int, Message, bool]


def mark_returned(entries: list[Entry]) -> list[Entry]:
    """Return entries with the redelivered flag set for messages with a delivery count (requeued at the tail)."""
    return [(seq, each, redelivered or each.envelope.delivery_count is not None) for seq, each, redelivered in entries]


class MessageStore(Protocol):
    """The ordered messages of one queue.

    A message is *ready* from append() until take(), and *taken* from then until settle() or requeue().
    """

    @property
    def ready_count(self) -> int:
        """Number of ready messages."""

    @property
    def ready_bytes(self) -> int:
        """Body bytes of the ready messages."""

    def append(self, messages: Sequence[Message], body_bytes: int, longest: int | None = None) -> None:
        """Append messages at the tail.

        Args:
            messages: Messages in queue order, all of the same priority and delivery mode.
            body_bytes: Sum of their body lengths.
            longest: Length of the longest body; None if all bodies have the same length.
        """

    def take(self, count: int, body_bytes: int) -> tuple[list[Entry], int]:
        """Take messages from the head.

        Damaged messages are removed, so fewer messages than ready_count may be returned, even none.

        Args:
            count: Maximum number of messages, at least 1.
            body_bytes: Stop when the bodies taken have reached this many bytes.
        Returns:
            The oldest ready messages, oldest first, and the sum of their body lengths; no messages only if none is
            ready.
        """

    def take_expired(self, now: int, count: int) -> list[Entry]:
        """Take expired messages from the head, up to the first one that has not expired.

        Args:
            now: Microseconds since 1970.
            count: Maximum number of messages, at least 1.
        """

    def drop(self, count: int, body_bytes: int, kind: EventKind = EventKind.MAXLEN) -> tuple[int, int]:
        """Remove messages from the head permanently.

        Args:
            count: Maximum number of messages, at least 1.
            body_bytes: Stop when the bodies dropped have reached this many bytes.
            kind: The reason.
        Returns:
            The number of messages dropped and the sum of their body lengths.
        """

    def drop_expired(self, now: int, count: int) -> tuple[int, int]:
        """Remove expired messages from the head permanently; see drop().

        Args:
            now: Microseconds since 1970.
            count: Maximum number of messages, at least 1.
        """

    def peek(self) -> Message | None:
        """Return the message at the head without taking it; None if none is ready."""

    def requeue(self, entries: Sequence[Entry]) -> None:
        """Return taken messages to their positions, marked as redelivered.

        Args:
            entries: Entries in any order.
        """

    def settle(self, entries: Sequence[Entry], kind: EventKind = EventKind.ACK, flags: int = 0) -> None:
        """Remove taken messages permanently.

        Args:
            entries: Entries in any order; fastest in order of sequence number.
            kind: The reason.
            flags: leveret.storage.event_format.DEAD_LETTERED, or 0.
        """

    def note(
        self, kind: EventKind, count: int, body_bytes: int, flags: int = 0, details: EventDetails | None = None
    ) -> None:
        """Log an event about messages that are not in the store.

        Args:
            kind: The kind of event.
            count: Number of messages.
            body_bytes: Sum of their body lengths.
            flags: Event flags, see leveret.storage.event_format.
            details: Where they were published to, and by whom, of kind REFUSED.
        """

    def purge(self) -> int:
        """Remove all ready messages; return their number."""

    def close(self) -> None:
        """Discard all contents: the queue has been deleted."""
