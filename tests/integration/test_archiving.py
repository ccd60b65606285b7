"""The archiver that the broker runs."""

from __future__ import annotations

import os
import signal
from collections import Counter
from pathlib import Path

import leveret
from tests.integration.waiting import wait_until
from tests.support.leveret_process import LeveretProcess
from tests.support.wire import Connection


def archivers(broker: LeveretProcess) -> list[int]:
    """Process ids of the archivers that the broker has started."""
    found = []
    for pid in Path(f"/proc/{broker.pid}/task/{broker.pid}/children").read_text().split():
        try:
            if b"--to=" in Path(f"/proc/{pid}/cmdline").read_bytes():
                found.append(int(pid))
        except FileNotFoundError:
            continue
    return found


def is_there(pid: int) -> bool:
    try:
        return b"--to=" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return False


def publish(broker: LeveretProcess, first: int, count: int) -> None:
    connection = Connection(broker.url)
    channel = connection.channel()
    channel.queue_declare("q", durable=True)
    channel.confirm_select()
    for number in range(first, first + count):
        channel.publish("", "q", b"%d" % number, {"delivery_mode": 2})
    assert channel.wait_for_confirms(count) == [True] * count
    connection.close()


def archived(url: Path) -> Counter[int]:
    if not (url / "archive.json").exists():
        return Counter()
    bodies = leveret.scan(url, columns=["body"]).read_all()["body"].to_pylist()
    return Counter(int(body) for body in bodies)


def test_the_broker_runs_the_archiver_and_starts_it_again(tmp_path: Path) -> None:
    url = tmp_path / "archive"
    settings: dict[str, object] = {"archive.url": str(url), "archive.interval": "1s", "archive.broker": "one"}
    with LeveretProcess(tmp_path, settings=settings) as broker:
        publish(broker, 0, 100)
        wait_until(lambda: archived(url) == Counter(range(100)), "the messages are in the archive")
        (first,) = archivers(broker)
        os.kill(first, signal.SIGKILL)
        publish(broker, 100, 100)
        wait_until(lambda: archived(url) == Counter(range(200)), "another archiver has copied the rest")
        assert "the archiver has ended with status -9; it is started again in 1 s" in broker.log_text()
        (second,) = archivers(broker)
        assert second != first
        # One that a killed broker has left ends when that of the next broker has begun.
        broker.restart(crash=True)
        publish(broker, 200, 100)
        wait_until(lambda: archived(url) == Counter(range(300)), "the next broker's archiver has copied the rest")
        wait_until(lambda: not is_there(second), "the one that was left has ended")
        (third,) = archivers(broker)
        assert broker.stop() == 0
        assert not is_there(third)
    assert set(leveret.scan(url, columns=["broker"]).read_all()["broker"].to_pylist()) == {"one"}


def test_an_archiver_that_cannot_work_is_told_in_the_log(tmp_path: Path) -> None:
    with LeveretProcess(tmp_path, settings={"archive.url": "nothing://archive"}) as broker:
        said = "nothing://archive: Protocol not known: nothing; it tries again in 60 s"
        wait_until(lambda: said in broker.log_text(), "the log says it")
        publish(broker, 0, 1)
        assert broker.stop() == 0
