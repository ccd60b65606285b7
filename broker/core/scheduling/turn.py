"""Time slices and turns: deliveries and writes run once per event-loop iteration, after all input has been handled."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final, Protocol

#: Length in microseconds: long enough for many messages, too short for clients to notice.
SLICE_MICROSECONDS: Final = 5_000
#: Messages published in one slice: they are written to disk at the end of the turn, which takes time, too.
_SLICE_MESSAGES: Final = 4096


class TimeSlice:
    """A time slice of some milliseconds that begins when it is created.

    Long work checks it after every small step, and continues in a later slice once it is over.

    Args:
        clock: Monotonic time in microseconds, such as Timers.monotonic.
        messages: Number of messages to publish at most; see count_published().
    """

    __slots__ = ("_clock", "_end", "_messages_left")

    def __init__(self, clock: Callable[[], int], messages: int = _SLICE_MESSAGES) -> None:
        self._clock = clock
        self._end = clock() + SLICE_MICROSECONDS
        self._messages_left = messages

    def count_published(self, messages: int) -> None:
        """Note that messages have been published, which may have to be written at the end of the turn."""
        self._messages_left -= messages

    def is_over(self) -> bool:
        """Check whether the remaining work has to wait for a later slice."""
        return self._messages_left <= 0 or self._clock() >= self._end


def _stopped_clock() -> int:
    return 0


#: A time slice that is never over, for work that has to be finished at once.
UNLIMITED: Final = TimeSlice(_stopped_clock, 1 << 62)


class Unfinished(Exception):
    """An event needs work that takes longer than a time slice. No later event of its sender may precede this work.

    Args:
        step: Runs one slice of the work; returns whether the work is finished.
        is_handled: Whether only this work is left; otherwise the event must be handled again after it.
    """

    def __init__(self, step: Callable[[], bool], is_handled: bool = False) -> None:
        super().__init__("handling the event is not finished")
        self.step = step
        self.is_handled = is_handled


log = logging.getLogger("leveret.turn")


class Delivering(Protocol):
    """A queue that may have messages to deliver.

    Attributes:
        scheduled: Whether it is scheduled for the end of the turn; reset by Turn.
    """

    scheduled: bool

    def deliver(self) -> None:
        """Deliver ready messages to consumers with credit."""


class Flushing(Protocol):
    """A connection that has output to send."""

    def flush(self) -> None:
        """Send confirms, then write all output at once."""


class Turn:
    """Collects queues and connections with work, and processes them in one callback.

    Queues deliver before connections write, so that input is answered in the same turn.

    Args:
        call_soon: The loop's call_soon.
        clock: Monotonic time in microseconds, for time slices; by default they are never over.

    Attributes:
        before_writing: Called between deliveries and writes, to make durable what connections confirm to clients; not
            at the end of a turn that only sends confirms of what is durable already.
    """

    __slots__ = (
        "_again", "_call_soon", "_clock", "_connections", "_has_work", "_is_stopped", "_pending", "_queues", "_slice",
        "before_writing",
    )  # fmt: skip

    def __init__(
        self,
        call_soon: Callable[[Callable[[], None]], object],
        clock: Callable[[], int] = lambda: 0,
    ) -> None:
        self._call_soon = call_soon
        self.before_writing: list[Callable[[], None]] = []
        self._clock = clock
        #: The time slice of the current end of a turn.
        self._slice: TimeSlice | None = None
        self._queues: list[Delivering] = []
        self._connections: list[Flushing] = []
        self._pending = False
        #: Whether end_later() was called while the turn ends.
        self._again = False
        #: Whether there may be something to make durable.
        self._has_work = False
        self._is_stopped = False

    def stop(self) -> None:
        """Do nothing any more: the stores are closed, and the process may go on with others."""
        self._is_stopped = True
        self.before_writing.clear()

    @property
    def is_pending(self) -> bool:
        """Whether the end of a turn is scheduled."""
        return self._pending

    def slice(self) -> TimeSlice:
        """Return the time slice for work that can be continued later; at the end of a turn all queues share one."""
        return self._slice or TimeSlice(self._clock)

    def share_slice(self, work: Callable[[TimeSlice], None]) -> None:
        """Do work for one time slice, which is that of everything it causes, too: of evictions, say.

        Args:
            work: Called with the slice.
        """
        before = self._slice
        shared = self._slice = before or TimeSlice(self._clock)
        try:
            work(shared)
        finally:
            self._slice = before

    def end_later(self) -> None:
        """Schedule the end of a turn, to make changes durable."""
        self._again = self._has_work = True
        if not self._pending:
            self._pending = True
            self._call_soon(self.end)

    def deliver_later(self, queue: Delivering) -> None:
        """Schedule a queue to deliver at the end of this turn."""
        if not queue.scheduled:
            queue.scheduled = self._has_work = True
            self._queues.append(queue)
            if not self._pending:
                self._pending = True
                self._call_soon(self.end)

    def flush_later(self, connection: Flushing) -> None:
        """Schedule a connection, which is not scheduled yet, to write at the end of this turn."""
        self._has_work = True
        self.confirm_later(connection)

    def confirm_later(self, connection: Flushing) -> None:
        """Schedule a connection as flush_later() does, if it only confirms what is durable already."""
        self._connections.append(connection)
        if not self._pending:
            self._pending = True
            self._call_soon(self.end)

    def end(self) -> None:
        """Deliver and write. Deliveries that this triggers are left to the next turn.

        An exception of one of them is logged as an internal error and does not affect the others.
        """
        queues, self._queues = self._queues, []
        if self._is_stopped:
            return
        self._slice = TimeSlice(self._clock)
        for queue in queues:
            queue.scheduled = False
            try:
                queue.deliver()
            except Exception:
                log.exception("internal error while a queue delivered")
        self._slice = None
        # Calls of end_later() until now are served by this turn.
        self._again = False
        if self._has_work:
            self._has_work = False
            for write in self.before_writing:
                try:
                    write()
                except Exception:
                    log.exception("internal error while a turn was made durable")
        connections, self._connections = self._connections, []
        for connection in connections:
            try:
                connection.flush()
            except Exception:
                log.exception("internal error while a connection was written to")
        self._pending = self._again or bool(self._queues or self._connections)
        if self._pending:
            self._call_soon(self.end)
