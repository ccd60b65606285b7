"""The taskiq tasks whose worker the tests start.

MATRIX_URL names the virtual host, MATRIX_NOTES the file in which tasks note what they do.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from taskiq import SimpleRetryMiddleware, SmartRetryMiddleware

from tests.matrix.programs.notes import Notes
from tests.matrix.programs.taskiq.broker import made

broker = made(os.environ["MATRIX_URL"], os.environ["MATRIX_KIND"])
if os.environ["MATRIX_KIND"] == "smart":
    broker.add_middlewares(SmartRetryMiddleware(default_retry_count=3, default_delay=1, use_jitter=False))
else:
    broker.add_middlewares(SimpleRetryMiddleware(default_retry_count=3))
notes = Notes(Path(os.environ["MATRIX_NOTES"]))


@broker.task(task_name="note")
async def note(text: str) -> None:
    """Note a text."""
    notes.write(text)


@broker.task(task_name="try_again", retry_on_error=True)
async def try_again(text: str) -> None:
    """Note a text, and fail."""
    notes.write(text)
    raise ConnectionError("again, later")


@broker.task(task_name="hold")
async def hold(text: str, gate: str) -> None:
    """Note a text, then work until a file exists."""
    notes.write(text)
    while not os.path.exists(gate):
        await asyncio.sleep(0.05)
