"""Celery: schedules, canvas, remote control, queues and crashes, on classic queues and on quorum queues."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from celery import chord, group
from kombu.entity import Queue

from tests.integration.waiting import wait_until
from tests.matrix.programs.celery.queues import QUEUES
from tests.matrix.programs.celery.worker import QUORUM, Bench, bench
from tests.matrix.programs.vhosts import Vhost

_FIRST, _SECOND = "first@matrix", "second@matrix"


@pytest.fixture(scope="module")
def running(vhost: Vhost, directory: Path) -> Iterator[Bench]:
    """Two workers of one process each."""
    with (
        bench(vhost.url, directory) as made,
        made.worker(name="first"),
        made.worker("--events", name="second") as second,
    ):
        wait_until(lambda: "sync with 1 nodes" in second.log(), "the second worker has met the first")
        yield made


def _all(running: Bench, command: str, *arguments: Any) -> dict[str, Any]:
    """What both workers answer."""
    answers: dict[str, Any] = {}

    def complete() -> bool:
        answers.update(getattr(running.app.control.inspect(timeout=5, limit=2), command)(*arguments) or {})
        return set(answers) == {_FIRST, _SECOND}

    wait_until(complete, f"both workers answer {command}")
    return answers


def test_inspect(running: Bench) -> None:
    assert all("note" in registered for registered in _all(running, "registered").values())
    assert all(stats["pool"]["max-concurrency"] == 1 for stats in _all(running, "stats").values())
    assert {each[0]["name"] for each in _all(running, "active_queues").values()} == {"celery"}


def _wait_until_revoked(running: Bench, task: str) -> None:
    wait_until(lambda: all(task in each for each in _all(running, "revoked").values()), "both workers know it")


def test_revoke_before_it_runs(running: Bench) -> None:
    gate = running.gate("revoke")
    holding = [running.send("hold", f"holding {number}", str(gate)) for number in range(2)]
    running.notes.wait_for("holding", 2)
    revoked, kept = running.send("note", "never"), running.send("note", "ever")
    revoked.revoke()
    _wait_until_revoked(running, revoked.id)
    gate.touch()
    assert kept.get(timeout=60) == "ever"
    assert [each.get(timeout=60) for each in holding] == ["holding 0", "holding 1"]
    with pytest.raises(Exception, match="revoked"):
        revoked.get(timeout=60)
    assert not running.notes.of("never")


def test_queue_is_added_and_cancelled(running: Bench) -> None:
    control = running.app.control
    assert control.add_consumer("extra", destination=[_SECOND], reply=True, timeout=30)[0][_SECOND]["ok"]
    assert running.send("note", "by the second", queue="extra").get(timeout=60) == "by the second"
    assert control.cancel_consumer("extra", destination=[_SECOND], reply=True, timeout=30)[0][_SECOND]["ok"]
    wait_until(lambda: [each["name"] for each in _all(running, "active_queues")[_SECOND]] == ["celery"], "it is gone")
    running.send("note", "by nobody", queue="extra")
    with running.app.connection_for_read() as connection:
        channel = connection.default_channel
        wait_until(lambda: channel.queue_declare("extra", passive=True).message_count == 1, "it stays in the queue")


def test_pool_grows_and_shrinks(running: Bench) -> None:
    control = running.app.control
    before = _all(running, "stats")[_FIRST]["prefetch_count"]
    assert "ok" in control.pool_grow(2, destination=[_FIRST], reply=True, timeout=30)[0][_FIRST]
    wait_until(lambda: len(_all(running, "stats")[_FIRST]["pool"]["processes"]) == 3, "the pool has grown")
    assert _all(running, "stats")[_FIRST]["prefetch_count"] == before + 8
    control.add_consumer("grown", destination=[_FIRST], reply=True, timeout=30)
    gate = running.gate("grown")
    # More than it would have prefetched before.
    held = [running.send("hold", f"held {number}", str(gate), queue="grown") for number in range(before + 4)]
    running.notes.wait_for("held", 3)
    wait_until(lambda: _taken(running, _FIRST) == len(held), "the worker has them all")
    gate.touch()
    assert [each.get(timeout=60) for each in held] == [f"held {number}" for number in range(before + 4)]
    assert "ok" in control.pool_shrink(2, destination=[_FIRST], reply=True, timeout=30)[0][_FIRST]
    wait_until(lambda: _all(running, "stats")[_FIRST]["prefetch_count"] == before, "the prefetch has shrunk")


def _taken(running: Bench, worker: str) -> int:
    """How many tasks a worker has, whether it has begun with them or not."""
    return len(_all(running, "active")[worker]) + len(_all(running, "reserved")[worker])


def test_events(running: Bench) -> None:
    seen: list[tuple[str, str]] = []
    with running.app.connection_for_read() as connection:
        receiver = running.app.events.Receiver(
            connection, handlers={"*": lambda event: seen.append((event["type"], event["hostname"]))}
        )
        capturing = threading.Thread(target=_capture, args=(receiver, seen))
        capturing.start()
        running.app.control.enable_events(destination=[_FIRST], reply=True, timeout=30)
        wait_until(lambda: bool(seen), "the second worker's heartbeat")
        for number in range(4):
            running.send("note", f"event {number}")
        capturing.join(60)
    kinds = {kind for kind, _ in seen}
    assert {"task-received", "task-started", "task-succeeded", "worker-heartbeat"} <= kinds


def _capture(receiver: Any, seen: list[tuple[str, str]]) -> None:
    for _ in receiver.itercapture(limit=None, timeout=30, wakeup=True):
        if {"task-succeeded", "worker-heartbeat"} <= {kind for kind, _ in seen}:
            return


@pytest.fixture(scope="module")
def counting(vhost: Vhost, directory: Path) -> Iterator[Bench]:
    """A worker of two processes whose results are files, since results by messages know no chords."""
    (directory / "results").mkdir()
    settings = {"task_default_queue": "chords", "result_backend": f"file://{directory / 'results'}"}
    with bench(vhost.url, directory, settings) as made, made.worker("--concurrency=2"):
        yield made


def test_error_as_result(running: Bench) -> None:
    with pytest.raises(ValueError, match="it was to fail"):
        running.send("fail").get(timeout=60)


def test_group(running: Bench) -> None:
    add = running.app.signature("add")
    result = group(add.clone((number, number)) for number in range(50)).apply_async()
    assert result.get(timeout=60) == [2 * number for number in range(50)]


def test_chord(counting: Bench) -> None:
    add, total = counting.app.signature("add"), counting.app.signature("total")
    result = chord([add.clone((number, 1)) for number in range(20)], total).apply_async()
    assert result.get(timeout=60) == sum(range(1, 21))


@pytest.fixture(scope="module", params=["classic", "quorum"])
def scheduling(request: pytest.FixtureRequest, vhost: Vhost, directory: Path) -> Iterator[Bench]:
    """A worker of one process."""
    settings: dict[str, Any] = {"task_default_queue": request.param}
    if request.param == "quorum":
        settings |= QUORUM
    with bench(vhost.url, directory, settings) as made, made.worker():
        yield made


def test_due_task_does_not_wait_behind_countdowns(scheduling: Bench) -> None:
    """More tasks with a countdown than the worker prefetches (4), and then one that is due."""
    sent = time.time()
    for number in range(6):
        scheduling.send("note", f"later {number}", countdown=12)
    scheduling.send("note", "now")
    later = scheduling.notes.wait_for("later", 6)
    [now] = scheduling.notes.wait_for("now")
    assert now.at < min(each.at for each in later)
    assert min(each.at for each in later) - sent >= 12


def test_retry_with_backoff(scheduling: Bench) -> None:
    scheduling.send("try_again", "attempt", 3)
    first, second, third, fourth = scheduling.notes.wait_for("attempt", 4)
    assert [each.text for each in (first, second, third, fourth)] == [f"attempt {number}" for number in range(4)]
    assert [second.at - first.at >= 1, third.at - second.at >= 2, fourth.at - third.at >= 4] == [True] * 3


def test_expired_task_leaves_the_queue(scheduling: Bench) -> None:
    """No worker takes tasks from this queue: the broker lets them expire."""
    unread = f"{scheduling.settings['task_default_queue']}.unread"
    scheduling.send("note", "expired", queue=unread, expires=1)
    scheduling.send("note", "kept", queue=unread)
    with scheduling.app.connection_for_read() as connection:
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


def _messages(scheduling: Bench, queue: str) -> int:
    with scheduling.app.connection_for_read() as connection:
        counted: int = connection.default_channel.queue_declare(queue, passive=True).message_count
        return counted


def test_priorities(vhost: Vhost, directory: Path) -> None:
    settings = {
        "task_default_queue": "priorities",
        "task_queue_max_priority": 10,
        "worker_prefetch_multiplier": 1,
        "task_acks_late": True,
    }
    with bench(vhost.url, directory, settings) as made, made.worker():
        gate = made.gate("priorities")
        made.send("hold", "first", str(gate))
        made.notes.wait_for("first")
        for text, priority in (("low", 1), ("middle", 5), ("high", 9)):
            for number in range(3):
                made.send("note", f"priority {text} {number}", priority=priority)
        gate.touch()
        made.notes.wait_for("priority", 9)
        expected = [f"priority {text} {number}" for text in ("high", "middle", "low") for number in range(3)]
        assert made.notes.texts("priority") == expected


def test_broadcast(vhost: Vhost, directory: Path) -> None:
    """A task for all workers."""
    with (
        bench(vhost.url, directory) as made,
        made.worker("--queues=everybody", name="one", module="tasks_in_queues"),
        made.worker("--queues=everybody", name="two", module="tasks_in_queues"),
    ):
        made.app.conf.task_queues = QUEUES
        made.send("note", "heard", queue="everybody")
        made.notes.wait_for("heard", 2)


def test_reject_dead_letters(vhost: Vhost, directory: Path) -> None:
    with (
        bench(vhost.url, directory) as made,
        made.worker("--queues=dead_lettering", module="tasks_in_queues"),
    ):
        with made.app.connection_for_write() as connection:
            Queue("dead_letters")(connection.default_channel).declare()
        made.app.conf.task_queues = QUEUES
        made.send("note_late_and_reject", "rejected", queue="dead_lettering")
        headers = vhost.take("dead_letters")["properties"]["headers"]
        assert headers["x-first-death-reason"] == "rejected"
        assert headers["task"] == "note_late_and_reject"


def test_prefetch_grows_for_tasks_to_come(vhost: Vhost, directory: Path) -> None:
    """A worker takes any number of tasks that are not due yet: it raises its prefetch for each."""
    with bench(vhost.url, directory, {"task_default_queue": "many"}) as made, made.worker(name="many"):
        for number in range(100):
            made.send("note", f"to come {number}", countdown=3600)
        made.send("note", "due")
        made.notes.wait_for("due")
        scheduled = made.app.control.inspect(["many@matrix"], timeout=30).scheduled()
        assert len(scheduled["many@matrix"]) == 100


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
