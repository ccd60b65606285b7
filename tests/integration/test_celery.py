"""Celery: no task is lost when the broker is restarted or killed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.celery_run import run_tasks

_TASKS = 1000


@pytest.mark.parametrize("crash", [False, True], ids=["restart", "kill"])
def test_no_task_is_lost(tmp_path: Path, crash: bool) -> None:
    done = run_tasks(tmp_path, _TASKS, 60, lambda broker: broker.restart(crash=crash))
    assert sorted(done) == list(range(_TASKS))
    # Those that were done, but whose acknowledgement the restart has cut off, are done again.
    assert sum(done.values()) <= _TASKS + 100
