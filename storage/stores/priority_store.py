"""A message store that delivers messages of higher priority first."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from leveret.storage.event_details import EventDetails
from leveret.storage.event_format import EventKind
from leveret.storage.interface import Entry, Level, Seen
from leveret.storage.message import Message


class PriorityStore:
    """One store per used priority. Implements MessageStore.

    The head is the oldest message of the highest priority: it is consumed, dropped and expires first. Ready counts are
    always read from the stores, because a store may remove damaged messages on any read. Each store has sequence
    numbers of its own, so an entry belongs to the store of its message's priority.

    Args:
        max_priority: Maximum priority, 1..255; higher ones are reduced to it.
        make_store: Creates the store of a priority.
        levels: Existing stores by priority.

    Attributes:
        levels: Stores by used priority.
        max_priority: Maximum priority.
    """

    __slots__ = ("_make_store", "_used", "levels", "max_priority")

    def __init__(
        self,
        max_priority: int,
        make_store: Callable[[int], Level],
        levels: Mapping[int, Level] | None = None,
    ) -> None:
        self.max_priority = max_priority
        self._make_store = make_store
        self.levels = dict(levels or {})
        #: Bit n is set if priority n may have ready messages.
        self._used = 0
        self.look_again()

    @property
    def ready_count(self) -> int:
        """Ready messages."""
        return sum([store.ready_count for store in self.levels.values()]) if self._used else 0

    @property
    def ready_bytes(self) -> int:
        """Body bytes of the ready messages."""
        return sum([store.ready_bytes for store in self.levels.values()]) if self._used else 0

    def append(self, messages: Sequence[Message], body_bytes: int, longest: int | None = None) -> None:
        """Append messages, all of the same priority, at the tail of that priority."""
        self._append(self._level(messages[0]), messages, body_bytes, longest)

    def take(self, count: int, body_bytes: int) -> tuple[list[Entry], int]:
        """Take messages from the head."""
        entries: list[Entry] = []
        left = body_bytes
        while len(entries) < count and left > 0 and (level := self._head()) >= 0:
            taken, taken_bytes = self.levels[level].take(count - len(entries), left)
            taken = self._outward(level, taken)
            left -= taken_bytes
            entries = entries + taken if entries else taken
        return entries, body_bytes - left

    def take_expired(self, now: int, count: int) -> list[Entry]:
        """Take messages from the head that have expired."""
        entries: list[Entry] = []
        while len(entries) < count and (level := self._head()) >= 0:
            store = self.levels[level]
            entries += self._outward(level, store.take_expired(now, count - len(entries)))
            if store.ready_count:
                # Its next message has not expired.
                break
        return entries

    def drop(self, count: int, body_bytes: int, kind: EventKind = EventKind.MAXLEN) -> tuple[int, int]:
        """Remove messages from the head permanently."""
        dropped, left = 0, body_bytes
        while dropped < count and left > 0 and (level := self._head()) >= 0:
            store = self.levels[level]
            part, part_bytes = store.drop(count - dropped, left, kind)
            dropped, left = dropped + part, left - part_bytes
            if store.ready_count:
                # A limit is reached, or the store has done enough for one call.
                break
        return dropped, body_bytes - left

    def drop_expired(self, now: int, count: int) -> tuple[int, int]:
        """Remove expired messages from the head permanently."""
        dropped = dropped_bytes = 0
        while dropped < count and (level := self._head()) >= 0:
            store = self.levels[level]
            part, part_bytes = store.drop_expired(now, count - dropped)
            dropped, dropped_bytes = dropped + part, dropped_bytes + part_bytes
            if store.ready_count:
                # Its next message has not expired, or it has done enough for one call.
                break
        return dropped, dropped_bytes

    def peek(self) -> Message | None:
        """Return the message at the head without taking it."""
        while (level := self._head()) >= 0:
            message = self.levels[level].peek()
            if message is not None:
                return message
        return None

    def requeue(self, entries: Sequence[Entry]) -> None:
        """Return taken messages to their positions."""
        for level, group in self._by_level(entries).items():
            self.levels[level].requeue(group)
            self._used |= 1 << level

    def settle(self, entries: Sequence[Entry], kind: EventKind = EventKind.ACK, flags: int = 0) -> None:
        """Remove taken messages permanently."""
        for level, group in self._by_level(entries).items():
            self.levels[level].settle(group, kind, flags)

    def note(
        self, kind: EventKind, count: int, body_bytes: int, flags: int = 0, details: EventDetails | None = None
    ) -> None:
        """Log an event about messages that are not in the store: by the store of the lowest used priority."""
        level = min(self.levels, default=0)
        if level not in self.levels:
            self.levels[level] = self._make_store(level)
        self.levels[level].note(kind, count, body_bytes, flags, details)

    def purge(self) -> int:
        """Remove all ready messages; return their number."""
        purged = sum(store.purge() for store in self.levels.values())
        self._used = 0
        return purged

    def close(self) -> None:
        """Discard all contents."""
        for store in self.levels.values():
            store.close()
        self._used = 0

    def ordered_levels(self) -> list[tuple[int, Level]]:
        """Return the levels, the highest priority first."""
        return sorted(self.levels.items(), reverse=True)

    def place_of(self, entry: Entry) -> tuple[int, int]:
        """Return the level of a message of this store, and its number there."""
        return self._level(entry[1]), entry[0]

    def pick(self, level: int, seen: Sequence[Seen]) -> list[Entry]:
        """Take ready messages, wherever they stand."""
        return self._outward(level, self.levels[level].pick(level, seen))

    def oldest_ready(self) -> int:
        """Return when the oldest ready message of all levels arrived."""
        return _lowest([store.oldest_ready() for store in self.levels.values()])

    def oldest_taken(self) -> int:
        """Return when the oldest taken message of all levels arrived."""
        return _lowest([store.oldest_taken() for store in self.levels.values()])

    def arrival(self, entry: Entry) -> int:
        """Return when a message of the store arrived."""
        level, number = self.place_of(entry)
        return self.levels[level].arrival((number, entry[1], entry[2]))

    def look_again(self) -> None:
        """Look for ready messages in all levels: some that could not be read may be ready again."""
        self._used = sum(1 << level for level, store in self.levels.items() if store.ready_count)

    def _append(self, level: int, messages: Sequence[Message], body_bytes: int, longest: int | None = None) -> None:
        if level not in self.levels:
            self.levels[level] = self._make_store(level)
        self.levels[level].append(messages, body_bytes, longest)
        self._used |= 1 << level

    def _level(self, message: Message) -> int:
        return min(message.envelope.priority, self.max_priority)

    def _head(self) -> int:
        """Return the highest priority with ready messages; -1 if there are none."""
        while self._used:
            level = self._used.bit_length() - 1
            if self.levels[level].ready_count:
                return level
            self._used &= ~(1 << level)
        return -1

    def _outward(self, level: int, entries: list[Entry]) -> list[Entry]:
        """Return entries of a level with the numbers that they have in this store."""
        return entries

    def _by_level(self, entries: Sequence[Entry]) -> dict[int, list[Entry]]:
        groups: dict[int, list[Entry]] = {}
        for entry in entries:
            groups.setdefault(self._level(entry[1]), []).append(entry)
        return groups


def _lowest(times: list[int]) -> int:
    return min([time for time in times if time], default=0)
