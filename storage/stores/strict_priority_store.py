"""The message store of a quorum queue that has the priorities of RabbitMQ 4.3."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from typing import Final

from leveret.storage.interface import Level
from leveret.storage.message import Message
from leveret.storage.stores.returns_store import ReturnsStore

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
