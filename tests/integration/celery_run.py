"""A real Celery worker with many tasks, and a broker that is restarted under it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from celery import Celery

from tests.integration.waiting import wait_until
from tests.support.leveret_process import LeveretProcess

_MODULE: Final = "tests.integration.celery_tasks"
_ROOT: Final = Path(__file__).parents[2]


def run_tasks(directory: Path, count: int, patience: float, restart: Callable[[LeveretProcess], None]) -> Counter[int]:
    """Have a worker do tasks, and restart the broker meanwhile; return how often each was done."""
    done = directory / "done"
    done.touch()
    with LeveretProcess(directory) as broker, worker(directory, broker.url, done):
        sender = Celery(broker=broker.url)
        sender.conf.broker_transport_options = {"confirm_publish": True}
        _send(sender, range(count // 2))
        wait_until(lambda: _count(done) > count // 10, "the work has begun", timeout=patience)
        assert _count(done) < count, "the restart is not in the middle"
        restart(broker)
        _send(sender, range(count // 2, count))
        wait_until(lambda: len(set(done.read_text().split())) >= count, "all tasks are done", timeout=patience)
    return Counter(map(int, done.read_text().split()))


def _send(sender: Celery, numbers: range) -> None:
    policy = {"max_retries": 20, "interval_start": 0.1, "interval_step": 0.1, "interval_max": 1}
    for number in numbers:
        sender.send_task("note", (number,), retry=True, retry_policy=policy)


def _count(done: Path) -> int:
    return done.read_bytes().count(b"\n")


@contextmanager
def worker(directory: Path, url: str, done: Path) -> Iterator[None]:
    """A worker in a process of its own."""
    environment = {**os.environ, "LEVERET_TEST_BROKER": url, "LEVERET_TEST_DONE": str(done)}
    command = [sys.executable, "-m", "celery", "--app", _MODULE, "worker", "--pool", "solo", "--loglevel", "INFO"]
    with (directory / "worker.log").open("wb") as log:
        process = subprocess.Popen(
            [*command, "--without-gossip", "--without-mingle"],
            cwd=_ROOT,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
    try:
        yield
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(20)
        finally:
            process.kill()
            process.wait()
