"""Turns and time slices: deliveries and writes run once an iteration of the event loop; long work shares its slices."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator
from operator import attrgetter
from typing import Final, NamedTuple, Protocol

from leveret.broker.core.scheduling.timers import Timer, Timers

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

    def used(self) -> int:
        """Return the microseconds since it began."""
        return self._clock() + SLICE_MICROSECONDS - self._end

    def is_over(self) -> bool:
        """Check whether the remaining work has to wait for a later slice."""
        return self._messages_left <= 0 or self._clock() >= self._end


def _stopped_clock() -> int:
    return 0


#: A time slice that is never over, for work that has to be finished at once.
UNLIMITED: Final = TimeSlice(_stopped_clock, 1 << 62)


class _Waiter(NamedTuple):
    """Work that waits for a slice, and the microseconds that it has taken so far."""

    taken: int
    go_on: Callable[[TimeSlice], bool]


#: Every so many slices, one goes to what has waited longest.
_SLICES_PER_OLDEST: Final = 4
_taken: Final = attrgetter("taken")


class Slices:
    """Shares time slices between all long work of an event loop: one slice an iteration, so that others are served.

    What has taken the least time is next: what needs a few slices does not wait for what needs hundreds.
    """

    __slots__ = ("__weakref__", "_call_soon", "_clock", "_granted", "_scheduled", "_spent", "_waiting")

    def __init__(self, call_soon: Callable[[Callable[[], None]], object], clock: Callable[[], int]) -> None:
        self._call_soon = call_soon
        self._clock = clock
        #: In order of arrival.
        self._waiting: list[_Waiter] = []
        self._granted = 0
        #: Microseconds of long work in this iteration.
        self._spent = 0
        self._scheduled = False

    @property
    def is_spent(self) -> bool:
        """Whether the slice of this iteration is used up, or other work waits for the next one."""
        return self._spent >= SLICE_MICROSECONDS or bool(self._waiting)

    def spend(self, microseconds: int) -> None:
        """Record time that long work has taken in this iteration."""
        self._spent += microseconds
        self._schedule()

    def wait(self, taken: int, go_on: Callable[[TimeSlice], bool]) -> None:
        """Wait for a slice.

        Args:
            taken: Microseconds that the work has taken so far.
            go_on: Does some of the work, for a slice that others may share; waits again if some is left. Returns
                whether it takes the rest of the iteration after it has returned.
        """
        self._waiting.append(_Waiter(taken, go_on))
        self._schedule()

    def _schedule(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            self._call_soon(self._next_iteration)

    def _next_iteration(self) -> None:
        self._scheduled, self._spent = False, 0
        time_slice, arrived = TimeSlice(self._clock), len(self._waiting)
        # What waits again does so for a later iteration.
        while arrived:
            self._granted += 1
            arrived -= 1
            first = self._waiting[: arrived + 1]
            chosen = first[0] if self._granted % _SLICES_PER_OLDEST == 0 else min(first, key=_taken)
            self._waiting.remove(chosen)
            if chosen.go_on(time_slice) or time_slice.is_over():
                break
        self._spent += time_slice.used()
        if self._waiting:
            self._schedule()


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
        slices: Shares the time of long work.
        is_stopped: Whether stop() was called.
        before_writing: Called between deliveries and writes, to make durable what connections confirm to clients; not
            at the end of a turn that only sends confirms of what is durable already.
    """

    __slots__ = (
        "_again", "_call_soon", "_clock", "_connections", "_has_work", "is_stopped", "_pending", "_queues", "_slice",
        "before_writing", "slices",
    )  # fmt: skip

    def __init__(
        self,
        call_soon: Callable[[Callable[[], None]], object],
        clock: Callable[[], int] = lambda: 0,
    ) -> None:
        self._call_soon = call_soon
        self.before_writing: list[Callable[[], None]] = []
        self._clock = clock
        self.slices = Slices(call_soon, clock)
        #: The time slice of the current end of a turn.
        self._slice: TimeSlice | None = None
        self._queues: list[Delivering] = []
        self._connections: list[Flushing] = []
        self._pending = False
        #: Whether end_later() was called while the turn ends.
        self._again = False
        #: Whether there may be something to make durable.
        self._has_work = False
        self.is_stopped = False

    def stop(self) -> None:
        """Do nothing any more: the stores are closed, and the process may go on with others."""
        self.is_stopped = True
        self.before_writing.clear()

    @property
    def is_pending(self) -> bool:
        """Whether the end of a turn is scheduled."""
        return self._pending

    def slice(self) -> TimeSlice:
        """Return the time slice for work that can be continued later; at the end of a turn all queues share one."""
        return self._slice or TimeSlice(self._clock)

    def share_slice(self, work: Callable[[TimeSlice], None], time_slice: TimeSlice | None = None) -> None:
        """Do work for one time slice, which is that of everything it causes, too: of evictions, say.

        Args:
            work: Called with the slice.
            time_slice: The slice outside of the end of a turn; None for a new one.
        """
        before = self._slice
        shared = self._slice = before or time_slice or TimeSlice(self._clock)
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
        if self.is_stopped:
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


log_of_work = logging.getLogger("leveret.statistics")

#: Duration of a piece of work, and of the pause after it, in which clients are served.
_PIECE_MICROSECONDS: Final = 2_000
_PAUSE_SECONDS: Final = 0.002


class _Job(NamedTuple):
    """Work that has begun; see Work.begin()."""

    steps: Iterator[object]
    subject: str
    failed: Callable[[], None] | None


class PeriodicWork:
    """Runs work again and again. An exception of it is logged as an internal error, and the next run is as planned.

    Args:
        delay: Returns the seconds until the next run.
        steps: Begins a run, and returns its steps.
        subject: What the log_of_work calls the work.
    """

    def __init__(
        self, timers: Timers, delay: Callable[[], float], steps: Callable[[], Iterator[None]], subject: str
    ) -> None:
        self._timers = timers
        self._delay = delay
        self._begin_steps = steps
        self._subject = subject
        self._timer: Timer | None = None
        self._steps: Iterator[None] = iter(())

    def start(self) -> None:
        """Plan the next run."""
        self._timer = self._timers.call_periodically(self._delay(), self._begin)

    def stop(self) -> None:
        """End the current run, and plan no more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _begin(self) -> None:
        self._steps = self._begin_steps()
        self._run_piece()

    def _run_piece(self) -> None:
        deadline = self._timers.monotonic() + _PIECE_MICROSECONDS
        try:
            for _ in self._steps:
                if self._timers.monotonic() > deadline:
                    self._timer = self._timers.call_later(_PAUSE_SECONDS, self._run_piece)
                    return
        except Exception:
            log_of_work.exception("internal error while %s", self._subject)
        self.start()


_END: Final = object()


class Work:
    """Runs steps, each of which takes a few milliseconds at most, by turns; see Slices."""

    def __init__(self, turn: Turn) -> None:
        self._turn = turn
        self._waiting: deque[_Job] = deque()
        self._is_scheduled = False
        #: Microseconds that what has begun has taken in slices.
        self._taken = 0

    @property
    def is_idle(self) -> bool:
        """Whether nothing is left to do."""
        return not self._waiting

    def begin(self, steps: Iterator[object], subject: str, failed: Callable[[], None] | None = None) -> None:
        """Begin with some steps; long work is continued in later turns.

        Args:
            subject: What the log_of_work calls the work if it fails: ``internal error while SUBJECT``.
            failed: Called if a step raises an exception, which is logged.
        """
        self._waiting.append(_Job(steps, subject, failed))
        if not self._is_scheduled:
            self._turn.share_slice(self._work_for)
            self._schedule()

    def begin_later(self, steps: Iterator[object], subject: str) -> None:
        """Begin in the next turn; see begin()."""
        self._waiting.append(_Job(steps, subject, None))
        self._schedule()

    def _schedule(self) -> None:
        if self._waiting and not self._is_scheduled:
            self._is_scheduled = True
            self._turn.slices.wait(self._taken, self._go_on)

    def _go_on(self, time_slice: TimeSlice) -> bool:
        if self._turn.is_stopped:
            return False
        begun, self._is_scheduled = time_slice.used(), False
        self._turn.share_slice(self._work_for, time_slice)
        self._taken = self._taken + time_slice.used() - begun if self._waiting else 0
        self._schedule()
        return False

    def _work_for(self, time_slice: TimeSlice) -> None:
        while self._waiting:
            if self._step() and self._waiting:
                # The others first.
                self._waiting.rotate(-1)
            if time_slice.is_over():
                break

    def _step(self) -> bool:
        """Do the first step; return whether there are more like it."""
        job = self._waiting[0]
        is_done = True
        try:
            is_done = next(job.steps, _END) is _END
        except Exception:
            log_of_work.exception("internal error while %s", job.subject)
            # The others go on.
            if job.failed is not None:
                job.failed()
        finally:
            if is_done:
                self._waiting.popleft()
        return not is_done
