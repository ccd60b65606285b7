"""A store that hands out messages of higher priority first."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from storage.event_format import EventKind
from storage.interface import Entry, MessageStore
from storage.message import Message


class PriorityStore:
    """One store a priority that has been used. It implements MessageStore.

    The head is the oldest message of the highest priority: it is consumed, dropped and expires first. Which
    priorities have messages is a bit each, so the cost does not grow with their number.

    Args:
        max_priority: Messages of higher priority count as of this one, 1..255.
        make_store: Makes the store of one priority.
        levels: Stores that there are already, by priority.

    Attributes:
        levels: The store of each priority that has been used.
    """

    __slots__ = ("_make_store", "_max_priority", "_used", "levels", "ready_bytes", "ready_count")

    def __init__(
        self,
        max_priority: int,
        make_store: Callable[[int], MessageStore],
        levels: Mapping[int, MessageStore] | None = None,
    ) -> None:
        self._max_priority = max_priority
        self._make_store = make_store
        self.levels = dict(levels or {})
        self.ready_count = sum(store.ready_count for store in self.levels.values())
        self.ready_bytes = sum(store.ready_bytes for store in self.levels.values())
        #: Bit n is set while priority n has ready messages.
        self._used = sum(1 << level for level, store in self.levels.items() if store.ready_count)

    def append(self, messages: Sequence[Message], body_bytes: int, longest: int | None = None) -> None:
        """Put messages at the tail of their priority, which all of them share."""
        self._append(self._level(messages[0]), messages, body_bytes, longest)

    def take(self, count: int, body_bytes: int) -> list[Entry]:
        """Take messages from the head."""
        entries: list[Entry] = []
        while self._used and len(entries) < count:
            store = self._head()
            bytes_before = store.ready_bytes
            entries += store.take(count - len(entries), body_bytes)
            body_bytes -= self._taken(store, bytes_before)
            if body_bytes <= 0:
                break
        self.ready_count -= len(entries)
        return entries

    def take_expired(self, now: int, count: int) -> list[Entry]:
        """Take messages from the head that have expired."""
        entries: list[Entry] = []
        while self._used and len(entries) < count:
            store = self._head()
            bytes_before = store.ready_bytes
            expired = store.take_expired(now, count - len(entries))
            self._taken(store, bytes_before)
            entries += expired
            if store.ready_count:
                break
        self.ready_count -= len(entries)
        return entries

    def drop(self, count: int, body_bytes: int, kind: EventKind = EventKind.MAXLEN) -> tuple[int, int]:
        """Forget messages at the head for good; not more than one turn has time for."""
        dropped, left = 0, body_bytes
        while self._used and dropped < count and left > 0:
            store = self._head()
            bytes_before = store.ready_bytes
            part, _ = store.drop(count - dropped, left, kind)
            left -= self._taken(store, bytes_before)
            dropped += part
            if store.ready_count:
                break
        self.ready_count -= dropped
        return dropped, body_bytes - left

    def drop_expired(self, now: int, count: int) -> tuple[int, int]:
        """Forget messages at the head for good as long as they have expired."""
        dropped = dropped_bytes = 0
        while self._used and dropped < count:
            store = self._head()
            bytes_before = store.ready_bytes
            part, _ = store.drop_expired(now, count - dropped)
            dropped_bytes += self._taken(store, bytes_before)
            dropped += part
            if store.ready_count:
                break
        self.ready_count -= dropped
        return dropped, dropped_bytes

    def peek(self) -> Message | None:
        """The message at the head, without taking it."""
        return self._head().peek() if self._used else None

    def requeue(self, entries: Sequence[Entry]) -> None:
        """Put taken messages back where they were."""
        for level, group in self._by_level(entries).items():
            store = self.levels[level]
            bytes_before = store.ready_bytes
            store.requeue(group)
            self._used |= 1 << level
            self.ready_bytes += store.ready_bytes - bytes_before
        self.ready_count += len(entries)

    def settle(self, entries: Sequence[Entry], kind: EventKind = EventKind.ACK, flags: int = 0) -> None:
        """Forget taken messages for good."""
        for level, group in self._by_level(entries).items():
            self.levels[level].settle(group, kind, flags)

    def note(self, kind: EventKind, count: int, body_bytes: int, flags: int = 0) -> None:
        """Note what became of messages that are not in the store, without their priority."""
        level = min(self.levels, default=0)
        if level not in self.levels:
            self.levels[level] = self._make_store(level)
        self.levels[level].note(kind, count, body_bytes, flags)

    def purge(self) -> int:
        """Forget all ready messages; return how many they were."""
        purged = sum(store.purge() for store in self.levels.values())
        self._used = self.ready_count = self.ready_bytes = 0
        return purged

    def close(self) -> None:
        """Forget everything."""
        for store in self.levels.values():
            store.close()
        self._used = self.ready_count = self.ready_bytes = 0

    def _append(self, level: int, messages: Sequence[Message], body_bytes: int, longest: int | None = None) -> None:
        if level not in self.levels:
            self.levels[level] = self._make_store(level)
        self.levels[level].append(messages, body_bytes, longest)
        self._used |= 1 << level
        self.ready_count += len(messages)
        self.ready_bytes += body_bytes

    def _level(self, message: Message) -> int:
        return min(message.envelope.priority, self._max_priority)

    def _head(self) -> MessageStore:
        return self.levels[self._used.bit_length() - 1]

    def _taken(self, store: MessageStore, bytes_before: int) -> int:
        """Account for what the head store has just given; return its body bytes."""
        taken_bytes = bytes_before - store.ready_bytes
        self.ready_bytes -= taken_bytes
        if not store.ready_count:
            self._used &= ~(1 << (self._used.bit_length() - 1))
        return taken_bytes

    def _by_level(self, entries: Sequence[Entry]) -> dict[int, list[Entry]]:
        groups: dict[int, list[Entry]] = {}
        for entry in entries:
            groups.setdefault(self._level(entry[1]), []).append(entry)
        return groups
