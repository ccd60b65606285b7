"""A message store that delivers returned messages first, in the order of their return."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from leveret.storage.event_details import EventDetails
from leveret.storage.event_format import EventKind
from leveret.storage.interface import Entry, MessageStore
from leveret.storage.message import Message
from leveret.storage.stores.priority_store import PriorityStore

#: The highest priority of a store that keeps returned messages apart: levels on disk are numbers up to 255.
RETURNS_PRIORITY_MAX: Final = 126
#: Level of the returned messages of priority 0, in a store with priorities and in one without.
_RETURNED_BY_PRIORITY: Final = 128
_RETURNED: Final = 1
#: Level, on disk, of the messages that wait before they return, which are in no store of this kind.
_WAITING_BY_PRIORITY: Final = 255
_WAITING: Final = 2
#: Added to the sequence numbers of returned messages to distinguish them.
_FIRST_RETURNED: Final = 1 << 62


def first_returned_level(max_priority: int) -> int:
    """Return the level of the returned messages of priority 0.

    Args:
        max_priority: The highest priority, up to RETURNS_PRIORITY_MAX; 0 without priorities.
    """
    return _RETURNED_BY_PRIORITY if max_priority else _RETURNED


def waiting_level(max_priority: int) -> int:
    """Return the level on disk of the messages that wait before they return; see first_returned_level()."""
    return _WAITING_BY_PRIORITY if max_priority else _WAITING


class ReturnsStore(PriorityStore):
    """For each priority a store of returned messages, served first, and one of all others. Implements MessageStore.

    Args:
        make_store: Creates the store of a level.
        levels: Existing stores by level.
        max_priority: The highest priority, up to RETURNS_PRIORITY_MAX; 0 without priorities.

    Attributes:
        first_returned: Level of the returned messages of priority 0; of others their priority is added.
    """

    __slots__ = ("first_returned",)

    def __init__(
        self,
        make_store: Callable[[int], MessageStore],
        levels: Mapping[int, MessageStore] | None = None,
        max_priority: int = 0,
    ) -> None:
        first = first_returned_level(max_priority)

        def make(level: int) -> MessageStore:
            return Returned(make_store(level)) if level >= first else make_store(level)

        found = {level: Returned(store) if level >= first else store for level, store in (levels or {}).items()}
        super().__init__(max_priority, make, found)
        self.first_returned = first

    def append_returned(self, messages: Sequence[Message], body_bytes: int) -> None:
        """Append messages after earlier returned ones of their priority, before all others of it.

        Args:
            messages: Messages in order, with the same envelope and body length.
            body_bytes: Sum of their body lengths.
        """
        self._append(self.first_returned + self._level(messages[0]), messages, body_bytes)

    def place_of(self, entry: Entry) -> tuple[int, int]:
        """Return the level of a message of this store, and its number there."""
        level = self._level(entry[1])
        return (self.first_returned + level, entry[0] - _FIRST_RETURNED) if _is_returned(entry) else (level, entry[0])

    def _head(self) -> MessageStore | None:
        """Return the store of the highest priority with ready messages; that of the returned ones first."""
        first = self.first_returned
        while self._used:
            returned = self._used >> first
            level = max(returned, self._used & ((1 << first) - 1)).bit_length() - 1
            if returned >> level & 1:
                level += first
            store = self.levels[level]
            if store.ready_count:
                return store
            self._used &= ~(1 << level)
        return None

    def _by_level(self, entries: Sequence[Entry]) -> dict[int, list[Entry]]:
        groups: dict[int, list[Entry]] = {}
        for entry in entries:
            level = self._level(entry[1])
            groups.setdefault(self.first_returned + level if _is_returned(entry) else level, []).append(entry)
        return groups


class Returned:
    """The store of returned messages, with sequence numbers above all others. Implements MessageStore.

    Args:
        store: The wrapped store.

    Attributes:
        store: The wrapped store.
    """

    __slots__ = ("store",)

    def __init__(self, store: MessageStore) -> None:
        self.store = store

    @property
    def ready_count(self) -> int:
        """Ready messages."""
        return self.store.ready_count

    @property
    def ready_bytes(self) -> int:
        """Body bytes of the ready messages."""
        return self.store.ready_bytes

    def tagged(self, entries: Sequence[Entry]) -> list[Entry]:
        """Return entries of the wrapped store with the numbers that this one gives them."""
        return _tagged(entries)

    def append(self, messages: Sequence[Message], body_bytes: int, longest: int | None = None) -> None:
        """Put messages at the tail."""
        self.store.append(messages, body_bytes, longest)

    def take(self, count: int, body_bytes: int) -> tuple[list[Entry], int]:
        """Take messages from the head."""
        entries, taken_bytes = self.store.take(count, body_bytes)
        return _tagged(entries), taken_bytes

    def take_expired(self, now: int, count: int) -> list[Entry]:
        """Take messages from the head that have expired."""
        return _tagged(self.store.take_expired(now, count))

    def drop(self, count: int, body_bytes: int, kind: EventKind = EventKind.MAXLEN) -> tuple[int, int]:
        """Remove messages from the head permanently."""
        return self.store.drop(count, body_bytes, kind)

    def drop_expired(self, now: int, count: int) -> tuple[int, int]:
        """Remove expired messages from the head permanently."""
        return self.store.drop_expired(now, count)

    def peek(self) -> Message | None:
        """Return the message at the head without taking it."""
        return self.store.peek()

    def requeue(self, entries: Sequence[Entry]) -> None:
        """Return taken messages to their positions."""
        self.store.requeue(_untagged(entries))

    def settle(self, entries: Sequence[Entry], kind: EventKind = EventKind.ACK, flags: int = 0) -> None:
        """Remove taken messages permanently."""
        self.store.settle(_untagged(entries), kind, flags)

    def note(
        self, kind: EventKind, count: int, body_bytes: int, flags: int = 0, details: EventDetails | None = None
    ) -> None:
        """Log an event about messages that are not in the store."""
        self.store.note(kind, count, body_bytes, flags, details)

    def purge(self) -> int:
        """Remove all ready messages; return their number."""
        return self.store.purge()

    def close(self) -> None:
        """Discard all contents."""
        self.store.close()


def _is_returned(entry: Entry) -> bool:
    return entry[0] >= _FIRST_RETURNED


def _tagged(entries: Sequence[Entry]) -> list[Entry]:
    """Return entries with the numbers of returned messages, which have all been delivered before."""
    return [(seq + _FIRST_RETURNED, message, True) for seq, message, _ in entries]


def _untagged(entries: Sequence[Entry]) -> list[Entry]:
    return [(seq - _FIRST_RETURNED, message, redelivered) for seq, message, redelivered in entries]
