"""Moved messages, which stay in their old store's files until their copies are synced."""

from __future__ import annotations

from collections import deque

from leveret.storage.event_format import DEAD_LETTERED, EventKind
from leveret.storage.stores.settlement import SettledRun


def lives_on(kind: EventKind, flags: int) -> bool:
    """Return whether messages settled for this reason have copies, elsewhere or under new numbers."""
    return bool(flags & DEAD_LETTERED) or kind in (EventKind.RETURNED, EventKind.MOVED)


class Leaving:
    """Runs of moved messages, in the order in which they were settled.

    They are gone for users of the store. On disk they are settled after their copies have been synced.

    Attributes:
        count: Number of messages.
        body_bytes: Sum of their body lengths.
        uncovered: Number of newest runs whose copies are in no commit group yet.
    """

    __slots__ = ("_runs", "body_bytes", "count", "uncovered")

    def __init__(self) -> None:
        self._runs: deque[tuple[SettledRun, EventKind, int]] = deque()
        self.count = self.body_bytes = self.uncovered = 0

    def __len__(self) -> int:
        return len(self._runs)

    def add(self, run: SettledRun, kind: EventKind, flags: int) -> None:
        """Add a run.

        Args:
            run: Messages in the files of the durable stream.
            kind: The reason.
            flags: Event flags.
        """
        self._runs.append((run, kind, flags))
        self.count += run.end - run.first
        self.body_bytes += run.body_bytes
        self.uncovered += 1

    def cover(self) -> int:
        """Mark all runs as covered by a commit group; return how many of them were not covered before."""
        covered, self.uncovered = self.uncovered, 0
        return covered

    def pop(self) -> tuple[SettledRun, EventKind, int]:
        """Remove and return the oldest run. There must be one."""
        run, kind, flags = self._runs.popleft()
        self.count -= run.end - run.first
        self.body_bytes -= run.body_bytes
        return run, kind, flags

    def clear(self) -> None:
        """Remove all runs."""
        self._runs.clear()
        self.count = self.body_bytes = self.uncovered = 0
