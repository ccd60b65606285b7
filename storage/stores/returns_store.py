"""A message store that delivers returned messages first, in the order of their return."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from leveret.storage.event_format import EventKind
from leveret.storage.interface import Entry, MessageStore
from leveret.storage.message import Message
from leveret.storage.stores.priority_store import PriorityStore

#: Levels of new messages and of returned ones. On disk they are priorities.
_FRESH: Final = 0
_RETURNED: Final = 1
#: Added to the sequence numbers of returned messages to distinguish them.
_FIRST_RETURNED: Final = 1 << 62


class ReturnsStore(PriorityStore):
    """A store of returned messages, served first, and one of all others. Implements MessageStore.

    Args:
        make_store: Creates the store of a level, 0 or 1.
        levels: Existing stores by level.
    """

    __slots__ = ()

    def __init__(
        self, make_store: Callable[[int], MessageStore], levels: Mapping[int, MessageStore] | None = None
    ) -> None:
        def make(level: int) -> MessageStore:
            return Returned(make_store(level)) if level else make_store(level)

        found = {level: Returned(store) if level else store for level, store in (levels or {}).items()}
        super().__init__(_RETURNED, make, found)

    def append_returned(self, messages: Sequence[Message], body_bytes: int) -> None:
        """Append messages after earlier returned ones, before all others.

        Args:
            messages: Messages in order, with the same envelope and body length.
            body_bytes: Sum of their body lengths.
        """
        self._append(_RETURNED, messages, body_bytes)

    def place_of(self, entry: Entry) -> tuple[int, int]:
        """Return the level of a message of this store, and its number there."""
        return (_RETURNED, entry[0] - _FIRST_RETURNED) if entry[0] >= _FIRST_RETURNED else (_FRESH, entry[0])

    def _level(self, message: Message) -> int:
        return _FRESH

    def _by_level(self, entries: Sequence[Entry]) -> dict[int, list[Entry]]:
        groups: dict[int, list[Entry]] = {}
        for entry in entries:
            groups.setdefault(_RETURNED if entry[0] >= _FIRST_RETURNED else _FRESH, []).append(entry)
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

    def note(self, kind: EventKind, count: int, body_bytes: int, flags: int = 0) -> None:
        """Log an event about messages that are not in the store."""
        self.store.note(kind, count, body_bytes, flags)

    def purge(self) -> int:
        """Remove all ready messages; return their number."""
        return self.store.purge()

    def close(self) -> None:
        """Discard all contents."""
        self.store.close()


def _tagged(entries: Sequence[Entry]) -> list[Entry]:
    return [(seq + _FIRST_RETURNED, message, redelivered) for seq, message, redelivered in entries]


def _untagged(entries: Sequence[Entry]) -> list[Entry]:
    return [(seq - _FIRST_RETURNED, message, redelivered) for seq, message, redelivered in entries]
