"""Raised when an event cannot be handled in one go; whoever handles it does the rest, and holds later events."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


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


class Unanswered(Unfinished):
    """An event needs what another server has to be asked first. After that the same call answers at once.

    Args:
        ask: Asks. Ends within the deadline of whom it asks, and does not raise: a failure is an answer, too.
        seconds: How long the answer may be kept, at least.
    """

    def __init__(self, ask: Callable[[], Coroutine[Any, Any, None]], seconds: float = 0.0) -> None:
        super().__init__(lambda: True)
        self.ask = ask
        self.seconds = seconds


async def answered(use: Callable[[], T]) -> T:
    """Return the result of a function that may need answers of another server first."""
    while True:
        try:
            return use()
        except Unanswered as question:
            await question.ask()
