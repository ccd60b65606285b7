"""Files that somebody has removed, or put back from an older copy, while the broker was down."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import pika
import pytest

import leveret
from tests.support.leveret_process import LeveretProcess
from tests.support.tables import Triple
from tests.support.wire import Connection

PERSISTENT = pika.BasicProperties(delivery_mode=2)
DELAYED: list[Triple] = [("x-delayed-type", "S", "fanout")]
REMEMBERING: list[Triple] = [("x-cache-size", "I", 100), ("x-cache-persistence", "S", "disk")]
STREAM: list[Triple] = [("x-queue-type", "S", "stream")]


def publish(broker: LeveretProcess, names: list[str], body: bytes) -> None:
    with pika.BlockingConnection(pika.URLParameters(broker.url)) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        for name in names:
            channel.queue_declare(name, durable=True)
            channel.basic_publish("", name, body, PERSISTENT)


def bodies(broker: LeveretProcess, name: str) -> list[Any]:
    with pika.BlockingConnection(pika.URLParameters(broker.url)) as connection:
        channel = connection.channel()
        return [body for _, _, body in iter(lambda: channel.basic_get(name), (None, None, None))]


def test_a_queue_whose_directory_is_gone_begins_anew_and_keeps_what_it_gets(tmp_path: Path) -> None:
    with LeveretProcess(tmp_path) as broker:
        publish(broker, ["a", "b", "c"], b"first")
        broker.stop()
        for qid in ("00000002", "00000003"):
            shutil.rmtree(broker.data_dir / "q" / qid)
        broker.start()
        publish(broker, ["a", "b", "c"], b"second")
        for crash in (True, False):
            broker.restart(crash=crash)
            assert bodies(broker, "a") == [b"first", b"second"]
            assert bodies(broker, "b") == bodies(broker, "c") == [b"second"]


def test_definitions_from_the_last_start_do_not_cost_a_queue_that_was_declared_again(tmp_path: Path) -> None:
    with LeveretProcess(tmp_path) as broker:
        publish(broker, ["q"], b"first")
        broker.restart()
        with pika.BlockingConnection(pika.URLParameters(broker.url)) as connection:
            connection.channel().queue_delete("q")
        publish(broker, ["q"], b"second")
        broker.stop()
        shutil.move(broker.data_dir / "definitions.copy.sqlite", broker.data_dir / "definitions.sqlite")
        broker.start()
        assert bodies(broker, "q") == [b"second"]
        broker.restart()
        assert bodies(broker, "q") == [b"second"]


@pytest.mark.parametrize("crash", [False, True], ids=["stop", "kill"])
def test_each_lost_directory_has_a_line(tmp_path: Path, crash: bool) -> None:
    with LeveretProcess(tmp_path) as broker:
        with Connection(broker.url) as connection:
            channel = connection.channel()
            channel.queue_declare("classic", durable=True)
            channel.queue_declare("kept", durable=True)
            channel.queue_declare("quorum", durable=True, arguments=[("x-queue-type", "S", "quorum")])
            channel.queue_declare("stream", durable=True, arguments=STREAM)
            channel.exchange_declare("later", "x-delayed-message", durable=True, arguments=DELAYED)
            channel.exchange_declare("once", "x-message-deduplication", durable=True, arguments=REMEMBERING)
            channel.queue_bind("kept", "once")
            channel.confirm_select()
            for queue in ("classic", "kept", "quorum", "stream"):
                for _ in range(3):
                    channel.publish("", queue, b"m", {"delivery_mode": 2})
            channel.publish("later", "", b"m", {"headers": [("x-delay", "I", 3_600_000)]})
            channel.publish("once", "", b"m", {"headers": [("x-deduplication-header", "S", "a")], "delivery_mode": 2})
            assert channel.wait_for_confirms(14) == [True] * 14
        broker.kill() if crash else broker.stop()
        kept = _directory(broker.data_dir, '"name": "kept"')
        gone = [each for each in (broker.data_dir / "q").iterdir() if each != kept]
        for each in gone:
            shutil.rmtree(each)
        broker.start()
        lines = [line for line in broker.log_text().splitlines() if "recovery: " in line]
        assert len(lines) == len(gone) == 5
        for what in (
            "queue 'classic'",
            "queue 'quorum'",
            "queue 'stream'",
            "exchange 'later'",
            "values of exchange 'once'",
        ):
            assert sum(what in line and "is missing" in line for line in lines) == 1
        if not crash:
            counts = [int(count) for line in lines for count in re.findall(r"up to (\d+) messages lost", line)]
            assert sorted(counts) == [1, 1, 3, 3, 3]
            assert re.search(r"recovered .*5 damaged files, up to 11 messages lost", broker.log_text())
        with Connection(broker.url) as connection:
            channel = connection.channel()
            channel.confirm_select()
            for queue in ("classic", "quorum", "stream"):
                channel.publish("", queue, b"new", {"delivery_mode": 2})
            channel.publish("later", "", b"m", {"headers": [("x-delay", "I", 3_600_000)]})
            channel.publish("once", "", b"m", {"headers": [("x-deduplication-header", "S", "a")], "delivery_mode": 2})
            assert channel.wait_for_confirms(5) == [True] * 5
        broker.restart(crash=crash)
        assert sum("recovery: " in line and "is missing" in line for line in broker.log_text().splitlines()) == 5
        rows = leveret.scan(broker.data_dir, columns=["queue", "seq"], queue="stream").read_all().to_pylist()
        # Its offsets go on where a checkpoint knows how far it was.
        assert [each["seq"] for each in rows] == [rows[0]["seq"] if crash else 4]
        left = leveret.scan(broker.data_dir, columns=["queue"]).read_all()["queue"].to_pylist()
        assert sorted(left) == ["classic", *["kept"] * 5, "quorum", "stream"]


def _directory(data_dir: Path, what: str) -> Path:
    (found,) = [each.parent for each in data_dir.glob("q/*/QUEUE.json") if what in each.read_text()]
    return found
