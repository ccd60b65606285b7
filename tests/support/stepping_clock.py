"""Clocks of tests: one that advances with each reading, so that time slices end after a fixed number of readings, and
one that a test advances."""

from __future__ import annotations

from leveret.storage.clock import Clock


class SteppingClock:
    """Clock that advances one millisecond per reading."""

    def __init__(self) -> None:
        self.readings = 0

    def __call__(self) -> int:
        """Return the time in microseconds."""
        self.readings += 1
        return self.readings * 1_000


class AdvancedClock(Clock):
    """The system's clock, which a test advances."""

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self._offset += int(seconds * 1_000_000)
