"""The Celery application whose worker the tests start.

MATRIX_URL names the virtual host, MATRIX_CELERY further settings as JSON, MATRIX_NOTES the file in which tasks note
what they do.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

from celery import Celery, Task
from celery.exceptions import Reject

from tests.matrix.programs.notes import Notes

app = Celery("tasks", broker=os.environ["MATRIX_URL"], backend="rpc://")
app.conf.update(json.loads(os.environ["MATRIX_CELERY"]))
notes = Notes(Path(os.environ["MATRIX_NOTES"]))


@app.task(name="note")
def note(text: str) -> str:
    """Note a text, and return it."""
    notes.write(text)
    return text


@app.task(name="add")
def add(first: int, second: int) -> int:
    """Add two numbers."""
    return first + second


@app.task(name="total")
def total(numbers: list[int]) -> int:
    """Add numbers."""
    return sum(numbers)


@app.task(name="fail")
def fail() -> None:
    """Fail."""
    raise ValueError("it was to fail")


@app.task(name="hold")
def hold(text: str, gate: str) -> str:
    """Note a text, then work until a file exists."""
    notes.write(text)
    while not os.path.exists(gate):
        time.sleep(0.05)
    return text


@app.task(name="hold_late", acks_late=True)
def hold_late(text: str, gate: str) -> str:
    """Do as `hold`; acknowledged when it is done."""
    return str(hold(text, gate))


@app.task(name="hold_late_for_sure", acks_late=True, reject_on_worker_lost=True)
def hold_late_for_sure(text: str, gate: str) -> str:
    """Do as `hold_late`; done again if the process that does it is lost."""
    notes.write(f"process {os.getpid()}")
    return str(hold(text, gate))


@app.task(name="note_late_and_reject", acks_late=True)
def note_late_and_reject(text: str) -> None:
    """Note a text and have the message dead-lettered."""
    notes.write(text)
    raise Reject(text, requeue=False)


@app.task(name="try_again", bind=True, autoretry_for=(ConnectionError,), retry_backoff=1, retry_jitter=False)
def try_again(self: Task, text: str, times: int) -> str:
    """Note the number of this attempt after a text, and fail."""
    notes.write(f"{text} {self.request.retries}")
    if self.request.retries < times:
        raise ConnectionError("again, later")
    return text
