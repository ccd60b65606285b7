"""Tasks for later: countdown, ETA, retries and expiry, on classic queues and on quorum queues with native delays."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.integration.waiting import wait_until
from tests.matrix.programs.celery.worker import QUORUM, Bench, bench
from tests.matrix.programs.vhosts import Vhost

Record = Callable[[str, object], None]


@pytest.fixture(scope="module", params=["classic", "quorum"])
def running(request: pytest.FixtureRequest, vhost: Vhost, directory: Path) -> Iterator[Bench]:
    """A worker of one process."""
    settings: dict[str, Any] = {"task_default_queue": request.param}
    if request.param == "quorum":
        settings |= QUORUM
    with bench(vhost.url, directory, settings) as made, made.worker():
        yield made


def test_due_task_does_not_wait_behind_countdowns(running: Bench, record_property: Record) -> None:
    """More tasks with a countdown than the worker prefetches (4), and then one that is due."""
    sent = time.time()
    for number in range(6):
        running.send("note", f"later {number}", countdown=12)
    running.send("note", "now")
    later = running.notes.wait_for("later", 6)
    [now] = running.notes.wait_for("now")
    assert now.at < min(each.at for each in later)
    assert min(each.at for each in later) - sent >= 12
    seconds = ", ".join(f"{each.at - sent:.2f}" for each in later)
    record_property("note", f"due at once: after {now.at - sent:.2f} s; countdown 12: after {seconds} s")


def test_countdown(running: Bench) -> None:
    sent = time.time()
    running.send("note", "after three", countdown=3)
    running.send("note", "after one", countdown=1)
    [one], [three] = running.notes.wait_for("after one"), running.notes.wait_for("after three")
    assert one.at - sent >= 1
    assert three.at - sent >= 3
    assert one.at < three.at


def test_eta(running: Bench) -> None:
    due = datetime.now(UTC) + timedelta(seconds=2)
    running.send("note", "on time", eta=due)
    [ran] = running.notes.wait_for("on time")
    assert ran.at >= due.timestamp()


def test_retry_with_backoff(running: Bench) -> None:
    running.send("try_again", "attempt", 3)
    first, second, third, fourth = running.notes.wait_for("attempt", 4)
    assert [each.text for each in (first, second, third, fourth)] == [f"attempt {number}" for number in range(4)]
    assert [second.at - first.at >= 1, third.at - second.at >= 2, fourth.at - third.at >= 4] == [True] * 3


def test_retries_end(running: Bench) -> None:
    result = running.send("try_again", "hopeless", 9, countdown=1, ignore_result=False, retries=2)
    with pytest.raises(ConnectionError, match="again, later"):
        result.get(timeout=60)
    assert running.notes.texts("hopeless") == ["hopeless 2", "hopeless 3"]


def test_expired_task_leaves_the_queue(running: Bench) -> None:
    """No worker takes tasks from this queue: the broker lets them expire."""
    unread = f"{running.settings['task_default_queue']}.unread"
    running.send("note", "expired", queue=unread, expires=1)
    running.send("note", "kept", queue=unread)
    with running.app.connection_for_read() as connection:
        channel = connection.default_channel
        wait_until(lambda: "kept" in _first(channel, unread), "the first task expires")


def _first(channel: Any, queue: str) -> str:
    """The body of the first message of a queue, where it stays; empty if there is none."""
    message = channel.basic_get(queue)
    if message is None:
        return ""
    channel.basic_reject(message.delivery_tag, requeue=True)
    return str(message.body)


def test_delays_are_native(vhost: Vhost, directory: Path) -> None:
    """With quorum queues, the broker keeps a task that is not due: here in the queue for 512 seconds and more."""
    with bench(vhost.url, directory, {**QUORUM, "task_default_queue": "native"}) as made:
        with made.worker(name="native"):
            made.send("note", "much later", countdown=1000)
            wait_until(lambda: _messages(made, "celery_delayed_9") == 1, "the task is in the queue of its delay")
            assert made.app.control.inspect(["native@matrix"], timeout=30).scheduled() == {"native@matrix": []}
        assert _messages(made, "celery_delayed_9") == 1


def _messages(running: Bench, queue: str) -> int:
    with running.app.connection_for_read() as connection:
        counted: int = connection.default_channel.queue_declare(queue, passive=True).message_count
        return counted
