"""Interface of a message store."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple, Protocol, TypeAlias

from leveret.storage.event_format import EventDetails, EventKind
from leveret.storage.message import Message

#: A message taken from a store: sequence number, message, redelivered flag.
#: Sequence numbers increase in the order of arrival and are never reused.
Entry: TypeAlias = tuple[int, Message, bool]


def mark_returned(entries: list[Entry]) -> list[Entry]:
    """Return entries with the redelivered flag set for messages with a delivery count (requeued at the tail)."""
    return [(seq, each, redelivered or each.envelope.delivery_count is not None) for seq, each, redelivered in entries]


#: Why a message is not ready: it is taken, or not there any more, or its number was never used.
Absence: TypeAlias = Literal["unacked", "gone", "unknown"]


class Seen(NamedTuple):
    """A message that was looked at.

    Attributes:
        seq: Its number in its level.
        message: The message.
        is_ready: Whether it is ready; otherwise it is taken.
        redelivered: Whether it may have been delivered before; true for all that are taken.
        arrived: Its arrival in microseconds since 1970; 0 if it is unknown.
    """

    seq: int
    message: Message
    is_ready: bool
    redelivered: bool
    arrived: int


class Look(NamedTuple):
    """The result of Level.look().

    Attributes:
        seen: Messages in order of their numbers.
        end: All messages with numbers from the given one to this one, excluded, have been looked at.
        is_over: Whether there are no messages with higher numbers now.
        is_complete: Whether `seen` has them all. If not, those who hold taken messages know the missing ones.
        failure: Why the system could not read some of them, which may be readable later; None if it could.
    """

    seen: list[Seen]
    end: int
    is_over: bool
    is_complete: bool
    failure: OSError | None = None


class MessageStore(Protocol):
    """The ordered messages of one queue, in one Level or in several.

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

    def drop(
        self, count: int, body_bytes: int, kind: EventKind = EventKind.MAXLEN, expired_at: int = 0
    ) -> tuple[int, int]:
        """Remove messages from the head permanently.

        Args:
            count: Maximum number of messages, at least 1.
            body_bytes: Stop when the bodies dropped have reached this many bytes.
            expired_at: Stop at a message that has not expired at this time in microseconds since 1970; 0 for any.
        Returns:
            The number of messages dropped and the sum of their body lengths.
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
            flags: leveret.storage.event_format.DEAD_LETTERED, or 0.
        """

    def note(
        self, kind: EventKind, count: int, body_bytes: int, flags: int = 0, details: EventDetails | None = None
    ) -> None:
        """Log an event about messages that are not in the store.

        Args:
            body_bytes: Sum of their body lengths.
            flags: Event flags, see leveret.storage.event_format.
            details: Where they were published to, and by whom, of kind REFUSED.
        """

    def purge(self) -> int:
        """Remove all ready messages; return their number."""

    def close(self) -> None:
        """Discard all contents: the queue has been deleted."""

    # --- looking and picking ------------------------------------------------------------------------------------------

    def ordered_levels(self) -> list[tuple[int, Level]]:
        """Return the levels with their numbers, in an order in which messages move only forwards."""

    def place_of(self, entry: Entry) -> tuple[int, int]:
        """Return the level of a message of this store, and its number there."""

    def pick(self, level: int, seen: Sequence[Seen]) -> list[Entry]:
        """Take ready messages, wherever they stand; the others keep their order and redelivered flags.

        Args:
            level: Their level.
            seen: What look() has just shown, in order of the numbers, at least one; nothing has happened since.
        """

    # --- ages, without reading bodies ---------------------------------------------------------------------------------

    def oldest_ready(self) -> int:
        """Return when the oldest ready message arrived, in microseconds since 1970; 0 if none is ready, or unknown."""

    def oldest_taken(self) -> int:
        """Return when the oldest taken message arrived, in microseconds since 1970.

        Returns:
            0 if none is taken, or if the store does not know which ones are; then those who hold them know. See
            arrival().
        """

    def arrival(self, entry: Entry) -> int:
        """Return when a message of the store arrived, in microseconds since 1970; 0 if it is unknown."""


class Level(MessageStore, Protocol):
    """The messages of one priority, which have numbers of their own."""

    @property
    def next_seq(self) -> int:
        """Number of the next message: all messages that are there have lower ones."""

    def look(self, seq: int, count: int, body_bytes: int) -> Look:
        """Look at messages without taking them or changing anything.

        Args:
            seq: Number of the first message.
            count: Maximum number of messages, and of attempts to read some.
            body_bytes: Stop when the bodies have reached this many bytes.
        """

    def is_ready(self, seq: int) -> bool:
        """Return whether a message that was ready still is."""
