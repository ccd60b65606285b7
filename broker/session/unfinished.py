"""Exception for events whose handling takes longer than a time slice."""

from __future__ import annotations

from collections.abc import Callable


class Unfinished(Exception):
    """The event must be handled again once some work is finished; handling it has had no effect so far.

    Args:
        step: Runs one slice of the work; returns whether the work is finished.
    """

    def __init__(self, step: Callable[[], bool]) -> None:
        super().__init__("handling the event is not finished")
        self.step = step
