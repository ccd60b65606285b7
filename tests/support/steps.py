"""Work that is done in steps."""

from __future__ import annotations

from collections.abc import Generator
from typing import TypeVar

Result = TypeVar("Result")


def result_of(steps: Generator[object, None, Result]) -> tuple[Result, int]:
    """Do all steps; return the result, and how many there were."""
    count = 0
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value, count
        count += 1
