"""Messages of a store that live on elsewhere, and stay in its files until they are safe there."""

from __future__ import annotations

from collections import deque

from leveret.storage.event_format import DEAD_LETTERED, EventKind
from leveret.storage.stores.settlement import SettledRun


def lives_on(kind: EventKind, flags: int) -> bool:
    """Whether messages that leave a store for this reason are in another one, or in the same one under new numbers."""
    return bool(flags & DEAD_LETTERED) or kind in (EventKind.RETURNED, EventKind.MOVED)


class Leaving:
    """Runs of settled messages, in the order in which they were settled.

    To whoever uses the store they are gone. On disk they are forgotten once their copies are there.

    Attributes:
        count: Messages.
        body_bytes: Sum of their body lengths.
        uncovered: Runs, the last ones, whose copies no commit group has yet.
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
            run: Messages that are in the files of the durable stream.
            kind: Why they leave.
            flags: As in the event log.
        """
        self._runs.append((run, kind, flags))
        self.count += run.end - run.first
        self.body_bytes += run.body_bytes
        self.uncovered += 1

    def cover(self) -> int:
        """The copies of all of them are in a commit group; return of how many runs that is said for the first time."""
        covered, self.uncovered = self.uncovered, 0
        return covered

    def pop(self) -> tuple[SettledRun, EventKind, int]:
        """Remove the oldest run; there must be one."""
        run, kind, flags = self._runs.popleft()
        self.count -= run.end - run.first
        self.body_bytes -= run.body_bytes
        return run, kind, flags

    def clear(self) -> None:
        """Forget all."""
        self._runs.clear()
        self.count = self.body_bytes = self.uncovered = 0
