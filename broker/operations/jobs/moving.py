"""Moves messages to another queue while a request waits, for example to retry dead-lettered messages."""

from __future__ import annotations

from enum import Enum
from typing import Final

from leveret.broker.core.queues.queue import Queue
from leveret.broker.operations.jobs.job import new_counts
from leveret.broker.operations.jobs.options import JobOptions
from leveret.broker.operations.jobs.plans import FULL, NO_QUEUE
from leveret.broker.operations.jobs.returning import ReturnWork
from leveret.broker.operations.jobs.runner import ends_of
from leveret.broker.operations.principal import Principal

#: Maximum messages of one step.
_STEP_MESSAGES: Final = 256


class MoveEnd(Enum):
    """The reason why a move has ended."""

    EMPTY = "the source has no more messages"
    LIMIT = "the limit is reached"
    TARGET_FULL = "the target is full"
    DELETED = "one of the queues was deleted"


class Move:
    """A move of messages between two queues.

    The caller repeats step(), and waits until the messages are durable, until the move has ended. Messages keep their
    exchange, routing key and properties; their TTL starts again in the target. Messages that arrive after the start
    are not moved, and those that the filter skips stay as they are.

    Args:
        principal: Who moves them.
        source: The source queue.
        options: The target, which is not the source, the filter and the limit.

    Attributes:
        end: The reason why the move has ended; None while it continues.
    """

    def __init__(self, principal: Principal, source: Queue, options: JobOptions) -> None:
        self._source = source
        self._limit = options.limit
        self._work = ReturnWork(principal, source, options, ends_of(source), new_counts())
        self.end: MoveEnd | None = None

    @property
    def moved(self) -> int:
        """Number of messages moved so far."""
        return self._work.counts.returned

    @property
    def scanned(self) -> int:
        """Number of messages examined so far."""
        return self._work.counts.scanned

    def step(self) -> None:
        """Move a batch of messages, for a time slice at most."""
        most = self.moved + _STEP_MESSAGES
        time_slice = self._source.host.turn.slice()
        while self.end is None and self.moved < most:
            if self._source.deleted:
                self.end = MoveEnd.DELETED
                return
            self._work.step(most - self.moved)
            self.end = self._find_end()
            if time_slice.is_over():
                return

    def _find_end(self) -> MoveEnd | None:
        problems = {problem for problem, _ in self._work.counts.left}
        if FULL in problems:
            return MoveEnd.TARGET_FULL
        if NO_QUEUE in problems:
            return MoveEnd.DELETED
        if not self._work.is_over:
            return None
        return MoveEnd.LIMIT if self._limit is not None and self.moved >= self._limit else MoveEnd.EMPTY
