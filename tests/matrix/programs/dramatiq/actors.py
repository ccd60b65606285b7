"""The Dramatiq actors whose worker the tests start.

MATRIX_URL names the virtual host, MATRIX_NOTES the file in which actors note what they do, MATRIX_EVENTS a directory
for the requests to abort, MATRIX_QUEUE the actors' queue, MATRIX_MAX_PRIORITY its highest priority (0: it has none).
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import dramatiq
from dramatiq.brokers.rabbitmq import RabbitmqBroker
from dramatiq_abort import Abort, Abortable

from tests.matrix.programs.dramatiq.events import FileEvents
from tests.matrix.programs.notes import Notes

notes = Notes(Path(os.environ["MATRIX_NOTES"]))
broker = RabbitmqBroker(url=os.environ["MATRIX_URL"], max_priority=int(os.environ["MATRIX_MAX_PRIORITY"]) or None)
broker.add_middleware(Abortable(backend=FileEvents(Path(os.environ["MATRIX_EVENTS"]))))
dramatiq.set_broker(broker)
QUEUE = os.environ["MATRIX_QUEUE"]


@dramatiq.actor(queue_name=QUEUE)
def note(text: str) -> str:
    """Note a text and return it."""
    notes.write(text)
    return text


@dramatiq.actor(queue_name=QUEUE, max_retries=2, min_backoff=1000)
def try_again(text: str, times: int) -> None:
    """Note a text, and fail so often; retried twice, after one second or more."""
    notes.write(text)
    if len(notes.of(text)) <= times:
        raise ConnectionError("again, later")


@dramatiq.actor(queue_name=QUEUE, max_retries=0)
def hold(text: str, gate: str) -> None:
    """Note a text, then work until a file exists; notes it if that is aborted."""
    notes.write(text)
    try:
        while not os.path.exists(gate):
            time.sleep(0.05)
    except Abort:
        notes.write(f"aborted {text}")
        raise
