"""Stores with a level for each priority: by priority alone, and with levels for messages that were returned."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from typing import Final

from leveret.storage.event_format import EventDetails, EventKind
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

    def drop(
        self, count: int, body_bytes: int, kind: EventKind = EventKind.MAXLEN, expired_at: int = 0
    ) -> tuple[int, int]:
        """Remove messages from the head permanently."""
        dropped, left = 0, body_bytes
        while dropped < count and left > 0 and (level := self._head()) >= 0:
            store = self.levels[level]
            part, part_bytes = store.drop(count - dropped, left, kind, expired_at)
            dropped, left = dropped + part, left - part_bytes
            if store.ready_count:
                # A limit is reached, its next message has not expired, or it has done enough for one call.
                break
        return dropped, body_bytes - left

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
        make_store: Callable[[int], Level],
        levels: Mapping[int, Level] | None = None,
        max_priority: int = 0,
    ) -> None:
        super().__init__(max_priority, make_store, levels)
        self.first_returned = first_returned_level(max_priority)

    def append_returned(self, messages: Sequence[Message], body_bytes: int) -> None:
        """Append messages after earlier returned ones of their priority, before all others of it.

        Args:
            messages: Messages in order, with the same envelope and body length.
            body_bytes: Sum of their body lengths.
        """
        self._append(self._returned_level(messages[0]), messages, body_bytes)

    def ordered_levels(self) -> list[tuple[int, Level]]:
        """Return the levels, those of returned messages last: they come from the others, although delivered first."""
        return sorted(self.levels.items())

    def place_of(self, entry: Entry) -> tuple[int, int]:
        """Return the level of a message of this store, and its number there."""
        if _is_returned(entry):
            return self._returned_level(entry[1]), entry[0] - _FIRST_RETURNED
        return self._level(entry[1]), entry[0]

    def _returned_level(self, message: Message) -> int:
        """Return the level of a message that has returned."""
        return self.first_returned + self._level(message)

    def _head(self) -> int:
        """Return the level of the highest priority with ready messages, that of the returned ones first; -1 if none."""
        first = self.first_returned
        while self._used:
            returned = self._used >> first
            level = max(returned, self._used & ((1 << first) - 1)).bit_length() - 1
            if returned >> level & 1:
                level += first
            if self.levels[level].ready_count:
                return level
            self._used &= ~(1 << level)
        return -1

    def _outward(self, level: int, entries: list[Entry]) -> list[Entry]:
        """Return entries of a level; returned messages have all been delivered before, and get the highest numbers."""
        if level < self.first_returned:
            return entries
        return [(seq + _FIRST_RETURNED, message, True) for seq, message, _ in entries]

    def _by_level(self, entries: Sequence[Entry]) -> dict[int, list[Entry]]:
        groups: dict[int, list[Entry]] = {}
        for entry in entries:
            if _is_returned(entry):
                level = self._returned_level(entry[1])
                entry = entry[0] - _FIRST_RETURNED, entry[1], entry[2]
            else:
                level = self._level(entry[1])
            groups.setdefault(level, []).append(entry)
        return groups


def _is_returned(entry: Entry) -> bool:
    return entry[0] >= _FIRST_RETURNED


#: The highest priority; higher ones are reduced to it.
STRICT_PRIORITY_MAX: Final = 31
#: Priority of a message that has none.
_DEFAULT: Final = 4
#: Where a content header says whether it has the property, and how.
_FLAGS_AT: Final = 12
_HAS_PRIORITY: Final = 0x08


class StrictPriorityStore(ReturnsStore):
    """A store for each used priority, and one for returned messages of all priorities, which are delivered first.

    Source: https://www.rabbitmq.com/docs/4.3/quorum-queues#priorities

    Args:
        make_store: Creates the store of a level.
        levels: Existing stores by level.
    """

    __slots__ = ()

    def __init__(self, make_store: Callable[[int], Level], levels: Mapping[int, Level] | None = None) -> None:
        super().__init__(make_store, levels, STRICT_PRIORITY_MAX)

    def append(self, messages: Sequence[Message], body_bytes: int, longest: int | None = None) -> None:
        """Append messages, each at the tail of its priority: 0 is another one than none, with which it may come."""
        if messages[0].envelope is messages[-1].envelope:
            self._append(self._level(messages[0]), messages, body_bytes, longest)
            return
        for level, group in groupby(messages, self._level):
            part = list(group)
            sizes = [len(message.body) for message in part]
            self._append(level, part, sum(sizes), max(sizes))

    def _level(self, message: Message) -> int:
        header = message.envelope.header
        if len(header) > _FLAGS_AT and header[_FLAGS_AT] & _HAS_PRIORITY:
            return min(message.envelope.priority, STRICT_PRIORITY_MAX)
        return _DEFAULT

    def _returned_level(self, message: Message) -> int:
        return self.first_returned

    def _head(self) -> int:
        """Return the level of the returned messages if there are some, else the highest priority; -1 if none."""
        first = self.first_returned
        while self._used:
            level = first if self._used >> first else self._used.bit_length() - 1
            if self.levels[level].ready_count:
                return level
            self._used &= ~(1 << level)
        return -1
