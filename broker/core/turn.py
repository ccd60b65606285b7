"""Batches deliveries and writes: runs once per event-loop iteration, after all input has been handled."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Protocol

from leveret.broker.core.time_slice import TimeSlice

log = logging.getLogger("leveret.turn")


class Delivering(Protocol):
    """A queue that may have something to deliver.

    Attributes:
        scheduled: Whether it waits for the end of the turn; the turn resets it.
    """

    scheduled: bool

    def deliver(self) -> None:
        """Hand ready messages to consumers that can take them."""


class Flushing(Protocol):
    """A connection that has something to send.

    Attributes:
        scheduled: Whether it waits for the end of the turn; the turn resets it.
    """

    scheduled: bool

    def flush(self) -> None:
        """Send confirms, then write all output at once."""


class Turn:
    """Collects queues and connections that have work, and does it in one callback.

    Queues deliver before connections write, so that what a turn read is answered in the same turn.

    Args:
        call_soon: The loop's call_soon, or a stand-in that runs the callback later.
        before_writing: Called before connections write: what they tell their clients must be durable by then.
        clock: Microseconds, for slices of time; without one they are never over.
    """

    __slots__ = (
        "_again", "_before_writing", "_call_soon", "_clock", "_connections", "_pending", "_queues", "_slice",
    )  # fmt: skip

    def __init__(
        self,
        call_soon: Callable[[Callable[[], None]], object],
        before_writing: Callable[[], None] = lambda: None,
        clock: Callable[[], int] = lambda: 0,
    ) -> None:
        self._call_soon = call_soon
        self._before_writing = before_writing
        self._clock = clock
        #: That of the turn which ends now.
        self._slice: TimeSlice | None = None
        self._queues: list[Delivering] = []
        self._connections: list[Flushing] = []
        self._pending = False
        #: Another turn has been asked for while this one ends.
        self._again = False

    def slice(self) -> TimeSlice:
        """The time for what can be left to the next turn: while a turn ends, all its queues share one slice."""
        return self._slice or TimeSlice(self._clock)

    def end_later(self) -> None:
        """Have a turn end soon: there is something to be made durable."""
        self._again = True
        if not self._pending:
            self._pending = True
            self._call_soon(self.end)

    def deliver_later(self, queue: Delivering) -> None:
        """Let a queue deliver at the end of this turn."""
        if not queue.scheduled:
            queue.scheduled = True
            self._queues.append(queue)
            if not self._pending:
                self._pending = True
                self._call_soon(self.end)

    def flush_later(self, connection: Flushing) -> None:
        """Let a connection write at the end of this turn."""
        if not connection.scheduled:
            connection.scheduled = True
            self._connections.append(connection)
            if not self._pending:
                self._pending = True
                self._call_soon(self.end)

    def end(self) -> None:
        """Deliver and write. What this itself makes queues deliver is left to the next turn.

        One that fails must not hold up the others: it is a mistake of ours, and logged as such.
        """
        queues, self._queues = self._queues, []
        self._slice = TimeSlice(self._clock)
        for queue in queues:
            queue.scheduled = False
            try:
                queue.deliver()
            except Exception:
                log.exception("internal error while a queue delivered")
        self._slice = None
        # What asked for it until now is done here.
        self._again = False
        try:
            self._before_writing()
        except Exception:
            log.exception("internal error while the turn was made durable")
        connections, self._connections = self._connections, []
        for connection in connections:
            connection.scheduled = False
            try:
                connection.flush()
            except Exception:
                log.exception("internal error while a connection was written to")
        self._pending = self._again or bool(self._queues or self._connections)
        if self._pending:
            self._call_soon(self.end)
