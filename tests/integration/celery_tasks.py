"""A Celery application whose tasks note in a file that they have been done.

LEVERET_TEST_BROKER names the broker, LEVERET_TEST_DONE the file.
"""

from __future__ import annotations

import os

from celery import Celery

app = Celery("celery_tasks", broker=os.environ["LEVERET_TEST_BROKER"])
app.conf.update(
    # What is lost with a worker or a connection is done again.
    task_acks_late=True,
    task_ignore_result=True,
    worker_prefetch_multiplier=20,
    broker_connection_retry_on_startup=True,
    broker_connection_max_retries=None,
    # A task is sent once the broker has said so.
    broker_transport_options={"confirm_publish": True},
    worker_cancel_long_running_tasks_on_connection_loss=True,
)


@app.task(name="note")  # type: ignore[untyped-decorator]
def note(number: int) -> None:
    """Note a number."""
    with open(os.environ["LEVERET_TEST_DONE"], "a") as file:
        file.write(f"{number}\n")
