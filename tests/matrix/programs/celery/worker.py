"""Celery workers for tests, and the application that sends them tasks."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from celery import Celery

from tests.matrix.programs.notes import Notes
from tests.matrix.programs.processes import Program

_numbers = itertools.count(1)

QUORUM: Final = {
    # As Celery's documentation says.
    "task_default_queue_type": "quorum",
    "task_default_exchange_type": "topic",
    "task_create_missing_queue_type": "quorum",
    "broker_transport_options": {"confirm_publish": True},
}
"""Settings for quorum queues with native delayed delivery."""


@dataclass
class Bench:
    """A virtual host with a Celery application of certain settings."""

    url: str
    directory: Path
    settings: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.app = Celery("sender", broker=self.url, backend="rpc://", set_as_current=False)
        self.app.conf.update(self.settings)
        self.notes = Notes(self.directory / f"notes-{next(_numbers)}")

    def send(self, task: str, *arguments: Any, **options: Any) -> Any:
        """Send a task, as `send_task` does."""
        return self.app.send_task(task, arguments, **options)

    def gate(self, name: str) -> Path:
        """A file that does not exist yet, for tasks that wait for it."""
        return self.directory / f"gate-{name}-{next(_numbers)}"

    def worker(self, *options: str, name: str = "", module: str = "tasks") -> Program:
        """A worker, which logs to a file; one process, unless an option says otherwise."""
        command = ["celery", "--app", f"tests.matrix.programs.celery.{module}", "worker", "--loglevel=INFO"]
        if not any(each.startswith(("--concurrency", "--autoscale")) for each in options):
            command.append("--concurrency=1")
        number = next(_numbers)
        command.append(f"--hostname={name or f'worker-{number}'}@matrix")
        variables = {
            "MATRIX_URL": self.url,
            "MATRIX_CELERY": json.dumps(self.settings),
            "MATRIX_NOTES": str(self.notes.path),
        }
        log = self.directory / f"worker-{number}.log"
        return Program([*command, *options], variables, log, ready=" ready.")

    def close(self) -> None:
        """Close the application's connections."""
        self.app.close()


@contextmanager
def bench(url: str, directory: Path, settings: dict[str, Any] | None = None) -> Iterator[Bench]:
    """A bench that is closed in the end."""
    made = Bench(url, directory, settings or {})
    try:
        yield made
    finally:
        made.close()
