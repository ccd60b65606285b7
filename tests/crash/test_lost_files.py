"""Files that somebody has removed, or put back from an older copy, while the broker was down."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pika

from tests.support.leveret_process import LeveretProcess

PERSISTENT = pika.BasicProperties(delivery_mode=2)


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
