"""Workers that are killed, that lose their connection, or that end: no task that is acknowledged late is lost."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.integration.waiting import wait_until
from tests.matrix.programs.celery.worker import QUORUM, Bench, bench
from tests.matrix.programs.vhosts import Vhost


@pytest.mark.parametrize("queue", ["classic", "quorum"])
def test_acks_late_with_a_killed_worker(vhost: Vhost, directory: Path, queue: str) -> None:
    settings = {"task_default_queue": f"killed.{queue}", **(QUORUM if queue == "quorum" else {})}
    with bench(vhost.url, directory, settings) as made:
        gate = made.gate("killed")
        with made.worker(name="doomed") as doomed:
            late = made.send("hold_late", "late", str(gate))
            made.notes.wait_for("late")
            # Prefetched, not begun.
            waiting = [made.send("note", f"waiting {number}") for number in range(3)]
            doomed.kill()
        gate.touch()
        with made.worker(name="heir"):
            assert late.get(timeout=60) == "late"
            assert [each.get(timeout=60) for each in waiting] == [f"waiting {number}" for number in range(3)]
        assert made.notes.texts("late") == ["late", "late"]


def test_early_acks_with_a_killed_worker(vhost: Vhost, directory: Path) -> None:
    """Celery's default: a task that has begun is not done again."""
    with bench(vhost.url, directory, {"task_default_queue": "early"}) as made:
        gate = made.gate("early")
        with made.worker(name="doomed") as doomed:
            made.send("hold", "early", str(gate))
            # The worker acknowledges a task when the process that does it says so.
            wait_until(lambda: _acknowledged(made, "doomed@matrix"), "the task is acknowledged")
            doomed.kill()
        with made.worker(name="heir"):
            assert made.send("note", "next").get(timeout=60) == "next"
        assert made.notes.texts("early") == ["early"]


def _acknowledged(made: Bench, worker: str) -> bool:
    active = made.app.control.inspect([worker], timeout=30).active() or {}
    return any(task["acknowledged"] for task in active.get(worker, []))


def test_reject_on_worker_lost(vhost: Vhost, directory: Path) -> None:
    """The process that does the task is killed; its worker gives the message back."""
    with bench(vhost.url, directory, {"task_default_queue": "lost"}) as made, made.worker():
        gate = made.gate("lost")
        result = made.send("hold_late_for_sure", "held", str(gate))
        made.notes.wait_for("held")
        os.kill(int(made.notes.texts("process")[0].split()[1]), signal.SIGKILL)
        made.notes.wait_for("held", 2)
        gate.touch()
        assert result.get(timeout=60) == "held"


def test_lost_connection(vhost: Vhost, directory: Path) -> None:
    """The worker connects again, and gets the task again that it had not acknowledged."""
    with bench(vhost.url, directory, {"task_default_queue": "cut"}) as made, made.worker() as worker:
        gate = made.gate("cut")
        made.send("hold_late", "cut off", str(gate))
        made.notes.wait_for("cut off")
        wait_until(lambda: vhost.close_consumers("cut"), "there is a consumer")
        wait_until(lambda: worker.log().count("Connected to ") >= 2, "the worker has connected again")
        gate.touch()
        made.notes.wait_for("cut off", 2)
        made.send("note", "afterwards", retry=True)
        made.notes.wait_for("afterwards")


def test_worker_that_ends_returns_what_it_has_not_begun(vhost: Vhost, directory: Path) -> None:
    with bench(vhost.url, directory, {"task_default_queue": "ended"}) as made:
        gate = made.gate("ended")
        with made.worker() as worker:
            running = made.send("hold_late", "running", str(gate))
            made.notes.wait_for("running")
            for number in range(5):
                made.send("note", f"waiting {number}")
            os.kill(worker.pid, signal.SIGTERM)
            wait_until(lambda: "Warm shutdown" in worker.log(), "the worker ends")
            gate.touch()
            assert running.get(timeout=60) == "running"
        assert not made.notes.of("waiting")
        with made.worker():
            made.notes.wait_for("waiting", 5)
        assert made.notes.texts("waiting") == [f"waiting {number}" for number in range(5)]
        assert made.notes.texts("running") == ["running"]
