"""Work for one event that takes longer than others can wait."""

from __future__ import annotations

from collections.abc import Callable


class Unfinished(Exception):
    """An event cannot be handled yet. Nothing has come of it so far; it is to be handled again once the work is done.

    Args:
        go_on: Does a slice of the work; returns whether all is done.
    """

    def __init__(self, go_on: Callable[[], bool]) -> None:
        super().__init__("an event has to wait")
        self.go_on = go_on
