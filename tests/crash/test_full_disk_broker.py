"""A broker whose disk gets full: publishers wait, consumers are served, and nothing that was confirmed is lost."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from uuid import uuid4

import pika
import pytest
from pika.exceptions import AMQPError, NackError

from tests.support.leveret_process import LeveretProcess
from tests.support.small_disk import fill, small_disk
from tests.support.wire import Connection, ConnectionClosed

_PATIENCE = 180.0
PERSISTENT = pika.BasicProperties(delivery_mode=2)
#: Python reads it when it starts: segments cannot be written as long as there is a certain file.
SITE = """
import errno, os
write = os.write
def refuse(handle, octets):
    if os.path.exists(os.environ["REFUSE_WRITES"]) and os.readlink(f"/proc/self/fd/{handle}").endswith(".seg"):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    return write(handle, octets)
os.write = refuse
"""
SETTINGS = {"storage.segment_size": 65_536, "disk_free_limit.absolute": 1_000_000}


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[LeveretProcess]:
    """A broker with 128 MiB of disk."""
    with small_disk(tmp_path, "ext4", 128) as disk, LeveretProcess(disk, settings=SETTINGS) as started:
        yield started


def until(condition: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + _PATIENCE
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


def connect(broker: LeveretProcess, states: list[str] | None = None) -> Any:
    connection = pika.BlockingConnection(pika.URLParameters(broker.url))
    if states is not None:
        connection.add_on_connection_blocked_callback(lambda _, frame: states.append(frame.method.reason))
        connection.add_on_connection_unblocked_callback(lambda *_: states.append("over"))
    return connection


def declare_many(broker: LeveretProcess) -> None:
    with connect(broker) as declaring:
        channel = declaring.channel()
        for number in range(1000):
            channel.queue_declare(f"q{number}", durable=True)


def is_refused(broker: LeveretProcess) -> bool:
    """Whether a new durable queue is refused; before that there is no answer."""
    connection = Connection(broker.url, timeout=2)
    try:
        connection.channel().queue_declare(f"refused-{uuid4()}", durable=True)
    except TimeoutError:
        return False
    except ConnectionClosed as closed:
        return closed.code == 506
    finally:
        connection.abort()
    return False


def test_a_full_disk_holds_up_publishers_only(broker: LeveretProcess) -> None:
    filler = broker.directory / "filler"
    states: list[str] = []
    publishing = connect(broker, states)
    publisher = publishing.channel()
    publisher.queue_declare("q", durable=True, arguments={"x-queue-mode": "lazy"})
    publisher.confirm_delivery()
    bodies = [b"%d:" % number + b"x" * 2000 for number in range(300)]
    for body in bodies:
        publisher.basic_publish("", "q", body, PERSISTENT)

    fill(filler, leave=8 << 20)
    until(lambda: "disk alarm set" in broker.log_text(), "the alarm is set")
    fill(broker.directory / "more")
    # A publisher that does not wait for confirms is no longer read from, and is notified.
    plain = publishing.channel()
    plain.basic_publish("", "q", b"held up", PERSISTENT)
    until(lambda: publishing.process_data_events(time_limit=0.01) or states, "the publisher is notified")
    assert states == ["low on disk"]

    with connect(broker) as consuming:
        consumer = consuming.channel()
        got = []
        for _ in range(200):
            method, _, body = consumer.basic_get("q")
            got.append(body)
            consumer.basic_ack(method.delivery_tag)
        assert got == bodies[:200]

    filler.unlink()
    (broker.directory / "more").unlink()
    until(lambda: publishing.process_data_events(time_limit=0.01) or len(states) > 1, "the publisher continues")
    assert states == ["low on disk", "over"]
    publisher.basic_publish("", "q", b"last", PERSISTENT)
    publishing.close()

    broker.restart(crash=True)
    with connect(broker) as consuming:
        consumer = consuming.channel()
        rest = [body for _, _, body in iter(lambda: consumer.basic_get("q", auto_ack=True), (None, None, None))]
    assert rest == [*bodies[200:], b"held up", b"last"]


def test_a_broker_lives_on_while_nothing_can_be_declared(broker: LeveretProcess) -> None:
    with connect(broker) as declaring:
        declaring.channel().queue_declare("before", durable=True)
    fill(broker.directory / "filler", leave=8 << 20)
    until(lambda: "disk alarm set" in broker.log_text(), "the alarm is set")
    fill(broker.directory / "more")
    with ThreadPoolExecutor(1) as pool:
        # Its answers wait until they can be relied on.
        waiting = pool.submit(declare_many, broker)
        # The log is on the full disk, too.
        until(lambda: is_refused(broker), "definitions are refused")
        with connect(broker) as declaring:
            declaring.channel().queue_declare("transient", exclusive=True)
        for name in ("filler", "more"):
            (broker.directory / name).unlink()
        # Then it gets an answer: declare-ok, or that there was no room for one.
        error = waiting.exception(timeout=_PATIENCE)
        assert error is None or isinstance(error, AMQPError)
    until(lambda: "disk alarm cleared" in broker.log_text(), "the alarm is cleared")
    with connect(broker) as declaring:
        declaring.channel().queue_declare("after", durable=True)
    broker.restart()
    with connect(broker) as declaring:
        channel = declaring.channel()
        channel.queue_declare("before", passive=True)
        channel.queue_declare("after", passive=True)


def test_what_cannot_be_stored_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site = tmp_path / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text(SITE)
    trigger = tmp_path / "refuse"
    monkeypatch.setenv("PYTHONPATH", str(site))
    monkeypatch.setenv("REFUSE_WRITES", str(trigger))
    with LeveretProcess(tmp_path) as broker:
        states: list[str] = []
        publishing = connect(broker, states)
        channel = publishing.channel()
        channel.queue_declare("q", durable=True)
        channel.confirm_delivery()
        channel.basic_publish("", "q", b"stored", PERSISTENT)
        trigger.touch()
        with pytest.raises(NackError):
            channel.basic_publish("", "q", b"refused", PERSISTENT)
        assert "disk alarm set" in broker.log_text()
        with connect(broker) as consuming:
            consumer = consuming.channel()
            method, _, body = consumer.basic_get("q")
            assert body == b"stored"
            consumer.basic_ack(method.delivery_tag)
        trigger.unlink()
        # Nothing has to be done: the broker retries.
        until(lambda: "disk alarm cleared" in broker.log_text(), "the alarm is cleared")
        channel.basic_publish("", "q", b"stored again", PERSISTENT)
        publishing.close()
        broker.restart(crash=True)
        with connect(broker) as consuming:
            consumer = consuming.channel()
            rest = [body for _, _, body in iter(lambda: consumer.basic_get("q", auto_ack=True), (None, None, None))]
        # A message that was refused may still be there.
        assert rest in ([b"stored again"], [b"refused", b"stored again"])
