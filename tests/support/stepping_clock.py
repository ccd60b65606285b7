"""A clock that advances with each reading, so that time slices end after a fixed number of readings."""

from __future__ import annotations


class SteppingClock:
    """Clock that advances one millisecond per reading."""

    def __init__(self) -> None:
        self.readings = 0

    def __call__(self) -> int:
        """Return the time in microseconds."""
        self.readings += 1
        return self.readings * 1_000
