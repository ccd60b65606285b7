"""A message store that delivers returned messages first, in the order of their return."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from leveret.storage.interface import Entry, Level
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
