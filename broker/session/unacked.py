"""Unacknowledged messages of one channel."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from leveret.broker.core.queues.consumers import Holder
from leveret.protocol.faults import precondition_failed
from leveret.storage.interface import Entry

#: Holder and store entry of an unacknowledged message.
Held: TypeAlias = tuple[Holder, Entry]


class Unacked(dict[int, Held]):
    """Unacknowledged messages by delivery tag, in any order."""

    __slots__ = ("_lowest",)

    def __init__(self) -> None:
        super().__init__()
        #: No tag below this one is outstanding.
        self._lowest = 1

    def resolve(self, tag: int, multiple: bool) -> list[int]:
        """Return the delivery tags of an acknowledgement, in order; the caller removes them.

        Args:
            tag: A delivery tag; 0 with multiple means all.
            multiple: Whether all tags up to and including this one are meant.
        Raises:
            ChannelFault: PRECONDITION_FAILED (406): the tag is not outstanding.
        """
        if tag == 0 and multiple:
            return sorted(self)
        if tag not in self:
            raise precondition_failed(f"unknown delivery tag {tag}")
        if not multiple:
            return [tag]
        # Iterating from the first key would be slow: a dict scans the slots of deleted keys each time.
        lowest, self._lowest = self._lowest, tag + 1
        if tag - lowest < 2 * len(self):
            return [candidate for candidate in range(lowest, tag + 1) if candidate in self]
        return sorted([candidate for candidate in self if candidate <= tag])

    def restore(self, held: Sequence[tuple[int, Held]]) -> None:
        """Make removed messages outstanding again."""
        self.update(held)
        self._lowest = min([self._lowest, *[tag for tag, _ in held]])

    def take_all(self) -> list[Held]:
        """Remove and return all messages, in order of delivery tags."""
        held = [self[tag] for tag in sorted(self)]
        self.clear()
        return held
