"""Dramatiq's actors: delays, retries, dead letters, abort, priorities, and what a killed worker leaves."""

from __future__ import annotations

import itertools
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from dramatiq import Message
from dramatiq.brokers.rabbitmq import RabbitmqBroker
from dramatiq_abort import Abortable

from tests.integration.waiting import wait_until
from tests.matrix.programs.dramatiq.events import FileEvents
from tests.matrix.programs.notes import Notes
from tests.matrix.programs.processes import Program
from tests.matrix.programs.vhosts import Vhost

_numbers = itertools.count(1)


class Workshop:
    """A virtual host, a sender, and the notes that actors leave."""

    def __init__(self, url: str, directory: Path, queue: str, max_priority: int) -> None:
        self._url, self._directory, self._queue, self._max_priority = url, directory, queue, max_priority
        self.notes = Notes(directory / f"notes-{next(_numbers)}")
        self.sender = RabbitmqBroker(url=url, confirm_delivery=True, max_priority=max_priority or None)
        self._events = directory / "events"
        self._events.mkdir(exist_ok=True)
        self.abortable = Abortable(backend=FileEvents(self._events))

    def send(self, actor: str, *arguments: Any, delay: int | None = None, **options: Any) -> Any:
        """Send a message to an actor; the delay is in milliseconds."""
        return self.send_as(str(uuid.uuid4()), actor, *arguments, delay=delay, **options)

    def send_as(self, identity: str, actor: str, *arguments: Any, delay: int | None = None, **options: Any) -> Any:
        """Do as `send`, with a message id."""
        message: Any = Message(
            queue_name=self._queue,
            actor_name=actor,
            args=arguments,
            kwargs={},
            options=options,
            message_id=identity,
        )
        return self.sender.enqueue(message, delay=delay)

    def gate(self) -> Path:
        """A file that does not exist yet."""
        return self._directory / f"gate-{next(_numbers)}"

    def worker(self, *options: str) -> Program:
        """A worker of one process and two threads, unless options say otherwise."""
        if "--threads" not in options:
            options += ("--threads", "2")
        command = ["dramatiq", "tests.matrix.programs.dramatiq.actors", "--processes", "1", *options]
        variables = {
            "MATRIX_URL": self._url,
            "MATRIX_NOTES": str(self.notes.path),
            "MATRIX_EVENTS": str(self._events),
            "MATRIX_QUEUE": self._queue,
            "MATRIX_MAX_PRIORITY": str(self._max_priority),
        }
        log = self._directory / f"worker-{next(_numbers)}.log"
        return Program(command, variables, log, ready="Worker process is ready for action.")


@contextmanager
def _workshop(vhost: Vhost, directory: Path, queue: str = "default", max_priority: int = 0) -> Iterator[Workshop]:
    made = Workshop(vhost.url, directory, queue, max_priority)
    try:
        yield made
    finally:
        made.sender.close()


@pytest.fixture(scope="module")
def running(vhost: Vhost, directory: Path) -> Iterator[Workshop]:
    with _workshop(vhost, directory) as made, made.worker():
        yield made


def test_messages(running: Workshop) -> None:
    for number in range(100):
        running.send("note", f"message {number:02}")
    running.notes.wait_for("message", 100)
    assert sorted(running.notes.texts("message")) == [f"message {number:02}" for number in range(100)]


def test_delay(running: Workshop) -> None:
    sent = time.time()
    running.send("note", "delayed by three", delay=3000)
    running.send("note", "delayed by one", delay=1000)
    [one], [three] = running.notes.wait_for("delayed by one"), running.notes.wait_for("delayed by three")
    assert one.at - sent >= 1
    assert three.at - sent >= 3
    assert one.at < three.at


def test_due_message_does_not_wait_behind_delays(running: Workshop) -> None:
    for number in range(100):
        running.send("note", f"to come {number}", delay=3_600_000)
    running.send("note", "due at once")
    running.notes.wait_for("due at once")
    assert not running.notes.of("to come")


def test_retries_with_backoff(running: Workshop) -> None:
    running.send("try_again", "attempt", 2)
    first, second, third = running.notes.wait_for("attempt", 3)
    assert second.at - first.at >= 1
    assert third.at - second.at >= 2


def test_retries_end_with_a_dead_letter(running: Workshop, vhost: Vhost) -> None:
    sent = running.send("try_again", "hopeless", 9)
    running.notes.wait_for("hopeless", 3)
    letter = vhost.take("default.XQ")
    assert sent.message_id in letter["payload"]
    assert letter["properties"]["headers"]["x-first-death-queue"] == "default"
    assert len(running.notes.of("hopeless")) == 3


def test_abort(running: Workshop) -> None:
    message = running.send("hold", "in vain", str(running.gate()))
    running.notes.wait_for("in vain")
    running.abortable.abort(message.message_id)
    running.notes.wait_for("aborted in vain")


def test_abort_before_it_runs(running: Workshop) -> None:
    running.abortable.abort("aborted-before")
    running.send_as("aborted-before", "note", "never", delay=1000)
    running.send("note", "later", delay=2000)
    running.notes.wait_for("later")
    assert not running.notes.of("never")


def test_pipeline(running: Workshop) -> None:
    """An actor's message names the one that comes next."""
    second: Any = Message(queue_name="default", actor_name="note", args=(), kwargs={}, options={})
    running.send("note", "piped", pipe_target=second.asdict())
    running.notes.wait_for("piped", 2)


def test_killed_worker(vhost: Vhost, directory: Path) -> None:
    with _workshop(vhost, directory, "killed") as made:
        gate = made.gate()
        with made.worker("--threads", "1") as doomed:
            made.send("hold", "held", str(gate))
            made.notes.wait_for("held")
            made.send("note", "waiting")
            doomed.kill()
        gate.touch()
        with made.worker():
            made.notes.wait_for("held", 2)
            made.notes.wait_for("waiting")


def test_worker_connects_again(vhost: Vhost, directory: Path) -> None:
    with _workshop(vhost, directory, "cut") as made, made.worker():
        made.send("note", "before")
        made.notes.wait_for("before")
        wait_until(lambda: vhost.close_consumers("cut"), "there is a consumer")
        made.send("note", "afterwards")
        made.notes.wait_for("afterwards")


def test_priorities(vhost: Vhost, directory: Path) -> None:
    with _workshop(vhost, directory, "priorities", max_priority=10) as made:
        for text, priority in (("low", 1), ("high", 9)):
            for number in range(3):
                made.send("note", f"priority {text} {number}", broker_priority=priority)
        with made.worker("--threads", "1"):
            made.notes.wait_for("priority", 6)
        assert made.notes.texts("priority") == [
            f"priority {text} {number}" for text in ("high", "low") for number in range(3)
        ]
