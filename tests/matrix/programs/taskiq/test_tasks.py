"""taskiq with taskiq-aio-pika: delays, retries, priorities, and what a killed worker leaves."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from taskiq.kicker import AsyncKicker

from tests.integration.waiting import wait_until
from tests.matrix.programs.notes import Notes
from tests.matrix.programs.processes import Program
from tests.matrix.programs.taskiq.broker import made
from tests.matrix.programs.vhosts import Vhost

_numbers = itertools.count(1)


class Workshop:
    """A virtual host, a sender, and the notes that tasks leave."""

    def __init__(self, url: str, directory: Path, kind: str) -> None:
        self._url, self._directory, self._kind = url, directory, kind
        self.notes = Notes(directory / f"notes-{next(_numbers)}")

    def send(self, task: str, *arguments: Any, **labels: Any) -> None:
        """Send a task with labels (`delay` in seconds, `priority`)."""
        self.send_all([(task, arguments, labels)])

    def send_all(self, tasks: list[tuple[str, tuple[Any, ...], dict[str, Any]]]) -> None:
        """Send tasks one after the other, by one connection."""
        asyncio.run(self._send(tasks))

    async def _send(self, tasks: list[tuple[str, tuple[Any, ...], dict[str, Any]]]) -> None:
        sender = made(self._url, self._kind)
        await sender.startup()
        for task, arguments, labels in tasks:
            await AsyncKicker(task_name=task, broker=sender, labels=labels).kiq(*arguments)
        await sender.shutdown()

    def gate(self) -> Path:
        """A file that does not exist yet."""
        return self._directory / f"gate-{next(_numbers)}"

    def worker(self, *options: str) -> Program:
        """A worker of one process. It is killed in the end: asked to end, it may wait half a minute."""
        command = ["taskiq", "worker", "tests.matrix.programs.taskiq.tasks:broker", "--workers", "1", *options]
        variables = {
            "MATRIX_URL": self._url,
            "MATRIX_KIND": self._kind,
            "MATRIX_NOTES": str(self.notes.path),
        }
        log = self._directory / f"worker-{next(_numbers)}.log"
        return Program(command, variables, log, ready="Listening started.", gentle=False)


@pytest.fixture(scope="module", params=["classic", "quorum"])
def running(request: pytest.FixtureRequest, vhost: Vhost, directory: Path) -> Iterator[Workshop]:
    workshop = Workshop(vhost.url, directory, request.param)
    with workshop.worker():
        yield workshop


def test_tasks(running: Workshop) -> None:
    running.send_all([("note", (f"task {number:02}",), {}) for number in range(100)])
    running.notes.wait_for("task", 100)
    assert sorted(running.notes.texts("task")) == [f"task {number:02}" for number in range(100)]


def test_delay(running: Workshop) -> None:
    sent = time.time()
    running.send_all([("note", ("delayed by one",), {"delay": 1}), ("note", ("delayed by three",), {"delay": 3})])
    [one], [three] = running.notes.wait_for("delayed by one"), running.notes.wait_for("delayed by three")
    assert one.at - sent >= 1
    assert three.at - sent >= 3


def test_due_task_does_not_wait_behind_delays(running: Workshop) -> None:
    tasks: list[Any] = [("note", (f"to come {number}",), {"delay": 3600}) for number in range(20)]
    running.send_all([*tasks, ("note", ("due",), {})])
    running.notes.wait_for("due")
    assert not running.notes.of("to come")


def test_delays_in_an_exchange(vhost: Vhost, directory: Path) -> None:
    """With the exchange of RabbitMQ's plugin rabbitmq_delayed_message_exchange."""
    if "x-delayed-message" not in vhost.exchange_types():
        pytest.skip("the broker has no exchange type x-delayed-message")
    workshop = Workshop(vhost.url, directory, "exchange")
    with workshop.worker():
        sent = time.time()
        delays = [("late", 3), ("soon", 1), ("never", 3600)]
        workshop.send_all([("note", (f"delayed {text}",), {"delay": delay}) for text, delay in delays])
        late, soon = workshop.notes.wait_for("delayed late")[0], workshop.notes.wait_for("delayed soon")[0]
        assert late.at - sent >= 3
        assert soon.at - sent >= 1
        assert soon.at < late.at
        assert not workshop.notes.of("delayed never")


def test_retries(running: Workshop) -> None:
    running.send("try_again", "attempt", retry_on_error=True)
    running.notes.wait_for("attempt", 3)
    running.send("note", "after the attempts")
    running.notes.wait_for("after the attempts")
    assert len(running.notes.of("attempt")) == 3


def test_retries_after_delays(vhost: Vhost, directory: Path) -> None:
    workshop = Workshop(vhost.url, directory, "smart")
    with workshop.worker():
        workshop.send("try_again", "attempt", retry_on_error=True)
        first, second, third = workshop.notes.wait_for("attempt", 3)
        assert second.at - first.at >= 1
        assert third.at - second.at >= 1


def test_killed_worker(vhost: Vhost, directory: Path) -> None:
    workshop = Workshop(vhost.url, directory, "killed")
    gate = workshop.gate()
    with workshop.worker("--ack-type", "when_executed") as doomed:
        workshop.send("hold", "held", str(gate))
        workshop.notes.wait_for("held")
        doomed.kill()
    gate.touch()
    with workshop.worker():
        workshop.notes.wait_for("held", 2)


def test_worker_connects_again(vhost: Vhost, directory: Path) -> None:
    workshop = Workshop(vhost.url, directory, "cut")
    with workshop.worker():
        workshop.send("note", "before")
        workshop.notes.wait_for("before")
        wait_until(lambda: vhost.close_consumers("taskiq.cut"), "there is a consumer")
        workshop.send("note", "afterwards")
        workshop.notes.wait_for("afterwards")


def test_priorities(vhost: Vhost, directory: Path) -> None:
    workshop = Workshop(vhost.url, directory, "priorities")
    gate = workshop.gate()
    workshop.send_all(
        [
            ("note", (f"priority {text} {number}",), {"priority": priority})
            for text, priority in (("low", 1), ("high", 9))
            for number in range(3)
        ]
    )
    gate.touch()
    with workshop.worker("--max-async-tasks", "1", "--max-prefetch", "0"):
        workshop.notes.wait_for("priority", 6)
    assert workshop.notes.texts("priority") == [
        f"priority {text} {number}" for text in ("high", "low") for number in range(3)
    ]
