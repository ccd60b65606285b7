"""Remote control: what is sent to all workers at once, their answers, and their events."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.waiting import wait_until
from tests.matrix.programs.celery.worker import Bench, bench
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


def test_ping(running: Bench) -> None:
    assert _all(running, "ping") == {_FIRST: {"ok": "pong"}, _SECOND: {"ok": "pong"}}


def test_ping_one(running: Bench) -> None:
    assert running.app.control.ping(destination=[_SECOND], timeout=30) == [{_SECOND: {"ok": "pong"}}]


def test_inspect(running: Bench) -> None:
    assert all("note" in registered for registered in _all(running, "registered").values())
    assert all(stats["pool"]["max-concurrency"] == 1 for stats in _all(running, "stats").values())
    assert {each[0]["name"] for each in _all(running, "active_queues").values()} == {"celery"}


def test_inspect_scheduled_and_revoke(running: Bench) -> None:
    task = running.send("note", "revoked", countdown=1000)
    wait_until(lambda: task.id in _scheduled(running), "a worker has it scheduled")
    running.app.control.revoke(task.id)
    _wait_until_revoked(running, task.id)
    assert not running.notes.of("revoked")


def _wait_until_revoked(running: Bench, task: str) -> None:
    wait_until(lambda: all(task in each for each in _all(running, "revoked").values()), "both workers know it")


def _scheduled(running: Bench) -> list[str]:
    return [entry["request"]["id"] for entries in _all(running, "scheduled").values() for entry in entries]


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


def test_revoke_and_terminate(running: Bench) -> None:
    task = running.send("hold", "to be terminated", str(running.gate("terminate")))
    running.notes.wait_for("to be terminated")
    task.revoke(terminate=True)
    with pytest.raises(Exception, match="terminated"):
        task.get(timeout=60)
    assert running.send("note", "still alive").get(timeout=60) == "still alive"


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


def test_rate_limit(running: Bench) -> None:
    answers = running.app.control.rate_limit("add", "30/s", reply=True, timeout=30, limit=2)
    assert len(answers) == 2
    results = [running.send("add", number, 1) for number in range(20)]
    assert [result.get(timeout=60) for result in results] == list(range(1, 21))


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
