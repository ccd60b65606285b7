"""Long work in steps, with clients served in between: what is due, and work at intervals."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from leveret.broker.core.scheduling.timers import Timer, Timers
from leveret.broker.core.scheduling.turn import TimeSlice, Turn

log = logging.getLogger("leveret.statistics")

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
        subject: What the log calls the work.
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
            log.exception("internal error while %s", self._subject)
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
            subject: What the log calls the work if it fails: ``internal error while SUBJECT``.
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
            log.exception("internal error while %s", job.subject)
            # The others go on.
            if job.failed is not None:
                job.failed()
        finally:
            if is_done:
                self._waiting.popleft()
        return not is_done
