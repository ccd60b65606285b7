"""Works on messages that are due, in time slices that all exchanges and queues of a virtual host share."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterator
from typing import Final

from leveret.broker.core.delays.schedule import Schedule
from leveret.broker.core.scheduling.time_slice import TimeSlice
from leveret.broker.core.scheduling.timers import Timers
from leveret.broker.core.scheduling.turn import Turn

log = logging.getLogger("leveret.exchange")

_END: Final = object()


class DueWork:
    """Runs steps, each of which takes a few milliseconds at most; each schedule has its turn.

    Args:
        turn: Provides time slices.
        timers: Clock and timers.
    """

    def __init__(self, turn: Turn, timers: Timers) -> None:
        self._turn = turn
        self._timers = timers
        #: Schedules, where they are, and their remaining steps.
        self._work: deque[tuple[Schedule, str, Iterator[None]]] = deque()
        self._is_scheduled = False

    @property
    def is_idle(self) -> bool:
        """Whether nothing is left to do."""
        return not self._work

    def begin(self, schedule: Schedule, where: str, steps: Iterator[None]) -> None:
        """Begin with some steps; long work is continued in later turns.

        Args:
            schedule: Its timer is set again if a step fails.
            where: Where the messages wait, for the log.
            steps: The steps.
        """
        self._work.append((schedule, where, steps))
        if not self._is_scheduled:
            self._run()

    def _run(self) -> None:
        """Work for one time slice, or until nothing is left."""
        self._is_scheduled = False
        self._turn.share_slice(self._work_for)
        if self._work:
            self._is_scheduled = True
            self._timers.call_later(0, self._run)

    def _work_for(self, time_slice: TimeSlice) -> None:
        while self._work:
            if self._step() and self._work:
                # The others first.
                self._work.rotate(-1)
            if time_slice.is_over():
                break

    def _step(self) -> bool:
        """Do the first step; return whether there are more like it."""
        schedule, where, steps = self._work[0]
        is_done = True
        try:
            is_done = next(steps, _END) is _END
        except Exception:
            log.exception("internal error while due messages of %s were routed", where)
            # What was to be routed stays on disk until the next start. The others go on.
            schedule.arm_next()
        finally:
            if is_done:
                self._work.popleft()
        return not is_done
