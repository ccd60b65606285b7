"""Celery: no task is lost when the broker is restarted or killed; tasks with a countdown hold up no others."""

from __future__ import annotations

from pathlib import Path

import pytest
from celery import Celery

from tests.integration.celery_run import run_tasks, worker
from tests.integration.waiting import wait_until
from tests.support.leveret_process import LeveretProcess

_TASKS = 1000


@pytest.mark.parametrize("crash", [False, True], ids=["restart", "kill"])
def test_no_task_is_lost(tmp_path: Path, crash: bool) -> None:
    outcome = run_tasks(tmp_path, _TASKS, 60, lambda broker: broker.restart(crash=crash))
    assert sorted(outcome.done) == list(range(_TASKS))
    # Those that were done, but whose acknowledgement the restart has cut off, are done again.
    assert sum(outcome.done.values()) <= _TASKS + 100


def test_a_due_task_does_not_wait_behind_tasks_with_a_countdown(tmp_path: Path) -> None:
    done = tmp_path / "done"
    done.touch()
    with LeveretProcess(tmp_path) as broker, worker(tmp_path, broker.url, done):
        sender = Celery(broker=broker.url)
        # More than the worker's prefetch: it raises that for each task that it has to keep for later.
        for number in range(40):
            sender.send_task("note", (number,), countdown=3600)
        sender.send_task("note", (100,))
        wait_until(lambda: done.read_text() == "100\n", "the task is done", timeout=60)
