"""Moves messages to another queue while a request waits, for example to retry dead-lettered messages."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from leveret.broker.core.queues.queue import Queue
from leveret.broker.core.scheduling.time_slice import TimeSlice
from leveret.broker.operations.jobs.job import new_counts
from leveret.broker.operations.jobs.options import JobOptions
from leveret.broker.operations.jobs.plans import FULL, NO_QUEUE
from leveret.broker.operations.jobs.returning import ReturnWork
from leveret.broker.operations.principal import Principal


class MoveEnd(Enum):
    """The reason why a move has ended."""

    EMPTY = "the source has no more messages"
    LIMIT = "the limit is reached"
    TARGET_FULL = "the target is full"
    DELETED = "one of the queues was deleted"


class Move(ReturnWork):
    """A move of messages between two queues, which ends when the target is full.

    Messages keep their exchange, routing key and properties; their TTL starts again in the target. Messages that arrive
    after the start are not moved, and those that the filter skips stay as they are.

    Args:
        principal: Who moves them.
        source: The source queue.
        options: The target, which is not the source, the filter and the limit.
        ends: See ReturnWork.

    Attributes:
        end: The reason why the move has ended; None while it continues.
    """

    def __init__(self, principal: Principal, source: Queue, options: JobOptions, ends: Mapping[int, int]) -> None:
        super().__init__(principal, source, options, ends, new_counts())
        self._limit = options.limit
        self.end: MoveEnd | None = None

    @property
    def unreadable(self) -> str | None:
        """Why messages are left that the filter cannot check; None if there are none."""
        left = self.counts.left.items()
        reasons = [f"{count} not checked: {problem}" for (problem, _), count in left if problem not in (FULL, NO_QUEUE)]
        return "; ".join(reasons) or None

    def _look(self, most: int, takes: bool, time_slice: TimeSlice) -> int:
        if self.source.deleted:
            self.end, self.is_over = MoveEnd.DELETED, True
            return 0
        count = super()._look(most, takes, time_slice)
        self.end = self._find_end()
        self.is_over = self.end is not None
        return count

    def _find_end(self) -> MoveEnd | None:
        problems = {problem for problem, _ in self.counts.left}
        if FULL in problems:
            return MoveEnd.TARGET_FULL
        if NO_QUEUE in problems:
            return MoveEnd.DELETED
        if not self.is_over:
            return None
        return MoveEnd.LIMIT if self._limit is not None and self.counts.returned >= self._limit else MoveEnd.EMPTY
