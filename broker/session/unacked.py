"""The messages of one channel that its client has yet to acknowledge."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from leveret.broker.core.consumers import Holder
from leveret.protocol.faults import precondition_failed
from leveret.storage.interface import Entry

#: Who holds which message.
Held: TypeAlias = tuple[Holder, Entry]


class Unacked(dict[int, Held]):
    """Who holds which message, by delivery tag, in any order."""

    __slots__ = ("_lowest",)

    def __init__(self) -> None:
        super().__init__()
        #: No tag below this one is outstanding.
        self._lowest = 1

    def meant(self, tag: int, multiple: bool) -> list[int]:
        """The tags that an acknowledgement means, in order; the caller takes them out.

        Args:
            tag: A delivery tag; 0 with multiple for all.
            multiple: All up to and including tag.
        Raises:
            ChannelFault: PRECONDITION_FAILED (406): the tag is not outstanding.
        """
        if tag == 0 and multiple:
            return sorted(self)
        if tag not in self:
            raise precondition_failed(f"unknown delivery tag {tag}")
        if not multiple:
            return [tag]
        # Not simply from the first key on: a dict whose first keys are gone walks over their places every time.
        lowest, self._lowest = self._lowest, tag + 1
        if tag - lowest < 2 * len(self):
            return [candidate for candidate in range(lowest, tag + 1) if candidate in self]
        return sorted([candidate for candidate in self if candidate <= tag])

    def restore(self, held: Sequence[tuple[int, Held]]) -> None:
        """Have messages outstanding again that were taken out for an acknowledgement."""
        self.update(held)
        self._lowest = min([self._lowest, *[tag for tag, _ in held]])

    def take_all(self) -> list[Held]:
        """Take out all that is outstanding; who held which message, in order of the tags."""
        held = [self[tag] for tag in sorted(self)]
        self.clear()
        return held
