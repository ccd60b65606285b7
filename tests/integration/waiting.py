"""Waiting for a condition, never longer than a deadline."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

#: In seconds; a machine that builds beside the tests may need ten times as long as a quiet one.
PATIENCE = 240.0
_PAUSE = 0.01


def wait_until(condition: Callable[[], bool], what: str, *, timeout: float = PATIENCE) -> None:
    """Return as soon as the condition holds."""
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, f"not within {timeout} s: {what}"
        time.sleep(_PAUSE)


async def until(condition: Callable[[], Awaitable[bool]], what: str) -> None:
    """Do as `wait_until`, in a coroutine, with the default timeout."""
    deadline = time.monotonic() + PATIENCE
    while not await condition():
        assert time.monotonic() < deadline, f"not within {PATIENCE} s: {what}"
        await asyncio.sleep(_PAUSE)
