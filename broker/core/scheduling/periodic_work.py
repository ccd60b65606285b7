"""Long work at intervals, done in short pieces so that clients are served in between."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Final

from leveret.broker.core.scheduling.timers import Timer, Timers

log = logging.getLogger("leveret.statistics")

#: Duration of a piece of work, and of the pause after it, in which clients are served.
_PIECE_MICROSECONDS: Final = 2_000
_PAUSE_SECONDS: Final = 0.002


class PeriodicWork:
    """Runs work again and again. An exception of it is logged as an internal error, and the next run is as planned.

    Args:
        timers: Clock and timers.
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
