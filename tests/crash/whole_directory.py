"""A small data directory with files of every kind, and what a broker finds in it once one of them is damaged."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import shutil
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pika
from pika.adapters.blocking_connection import BlockingChannel

from leveret import Leveret, LeveretThread
from leveret.broker.app import StartError
from leveret.broker.core.queues.queue import Queue
from leveret.broker.core.queues.stream_queue import StreamQueue
from leveret.broker.testing.environment import FillableUnsyncedFiles
from leveret.storage.disk.files import BALLAST, DiskFiles
from leveret.storage.event_log import event_files
from leveret.storage.recovery.checkpoint import read_checkpoints
from leveret.storage.stores.stream_store import FIRST_NUMBER

#: Kinds of files by the patterns of their paths in the data directory.
KINDS: Final = {
    "FORMAT": r"FORMAT",
    "lock": r"LOCK",
    "ballast": r"ballast",
    "checkpoint": r"ckpt/ckpt-\d{10}\.bin",
    "definitions": r"definitions\.sqlite",
    "copy of the definitions": r"definitions\.copy\.sqlite",
    "names of deleted queues": r"events/deleted-queues\.jsonl",
    "event log": r"events/ev-\d{20}\.log",
    "details of events": r"events/de-\d{20}\.log",
    "audit log": r"audit/au-\d{20}\.log",
    "losses": r"losses\.json",
    "redo log": r"redo/redo-\d{10}\.log",
    "QUEUE.json": r"q/[0-9a-f]{8}/QUEUE\.json",
    "manifest": r"q/[0-9a-f]{8}/(p\d{3}/)?MANIFEST",
    "segment": r"q/[0-9a-f]{8}/(p\d{3}/)?\d{20}-[0-9a-f]{4}\.seg",
    "spilled segment": r"q/[0-9a-f]{8}/(p\d{3}/)?\d{20}-[0-9a-f]{4}\.spl",
    "trash": r"(.*/)?trash/.*",
}
#: Files without which a broker may refuse to start.
REFUSED: Final = frozenset({"FORMAT", "definitions"})
_QUEUES: Final = ("classic", "lazy", "prio", "quorum", "stream", "unique", "later", "spilled")
#: Of delayed messages; a broker that looks waits for them.
_DELAY_MS: Final = 60_000
_OPTIONS: Final = {"storage.sync": "always", "default_vhost": "/"}

_ALL: Final = 1 << 30
#: The contents of the ballast.
_ZEROS: Final = bytes(32 << 20)

#: Contents of files by their paths.
Files = dict[str, bytes]
#: Messages of a queue: body and headers of each, with how often it is there.
Messages = Counter[tuple[bytes, str]]


def kind_of(path: str) -> str:
    """Return the kind of a file."""
    for kind, pattern in KINDS.items():
        if re.fullmatch(pattern, path):
            return kind
    raise LookupError(f"{path}: the table of kinds does not know it")


@dataclass(frozen=True)
class Scene:
    """A data directory."""

    files: Files
    messages: dict[str, Messages]
    written: frozenset[tuple[bytes, str]]


@dataclass(frozen=True)
class Found:
    """What a broker found in a data directory."""

    refusal: str
    messages: dict[str, Messages]
    reported: int
    lines: tuple[str, ...]
    tracebacks: int


def make_scene(directory: Path, stop: bool) -> Scene:
    """Use a broker, and return its data directory."""
    with LeveretThread(directory / "used", options=_OPTIONS) as broker:
        with pika.BlockingConnection(pika.URLParameters(broker.url)) as connection:
            channel = connection.channel()
            channel.confirm_delivery()
            _declare(channel)
            written = frozenset(_publish(channel))
            _consume(channel)
            # Unroutable: its event has details.
            channel.basic_publish("", "nobody", b"x")
        if stop:
            broker.stop()
        else:
            broker.wait_until(lambda: _checkpoint_names_all_files(str(directory / "used")))
            broker.kill()
        files = _read_files(directory / "used")
    whole = asyncio.run(look(directory / "whole", files))
    assert not whole.refusal, whole.refusal
    assert not whole.lines, whole.lines
    return Scene(files, whole.messages, written)


def _checkpoint_names_all_files(directory: str) -> bool:
    """Return whether recovery can notice that the newest file of the event log is missing."""
    files = DiskFiles()
    checkpoints = read_checkpoints(files, f"{directory}/ckpt", [])
    return bool(checkpoints) and checkpoints[0].position.file == event_files(files, f"{directory}/events")[-1]


def _read_files(directory: Path) -> Files:
    files = {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}
    assert files[BALLAST] == _ZEROS
    return {**files, BALLAST: _ZEROS}


async def look(directory: Path, files: Files) -> Found:
    """Start a broker on files, and return what it finds."""
    shutil.rmtree(directory, ignore_errors=True)
    for path, octets in files.items():
        (directory / path).parent.mkdir(parents=True, exist_ok=True)
        if octets is _ZEROS:
            # Writing so many zeros takes long.
            (directory / path).touch()
            os.truncate(directory / path, len(octets))
        else:
            (directory / path).write_bytes(octets)
    broker, log = Leveret(directory, options=_OPTIONS), _Lines()
    # Loss of power does not matter here.
    broker._files = FillableUnsyncedFiles()
    refusal, messages, reported = "", dict[str, Messages](), 0
    try:
        await broker.start()
    except StartError as error:
        refusal = str(error)
    else:
        app = broker.running()
        report = app._stores.engine.report
        await broker.clock.advance(_DELAY_MS / 1000)
        queues = app.broker.vhosts["/"].queues if "/" in app.broker.vhosts else {}
        for name, queue in queues.items():
            messages[name] = Counter((each.body, each.properties["message_id"]) for each in broker.messages(name))
            _read(queue)
        reported = report.lost_messages + report.unfinished_messages + report.cut_bytes + len(report.failures)
        await broker.kill()
    finally:
        log.close()
        await broker.stop()
    return Found(refusal, messages, reported, tuple(log.lines), log.tracebacks)


def _read(queue: Queue) -> None:
    """Take all messages of a queue: what cannot be read is noticed now, at the latest."""
    if isinstance(queue, StreamQueue):
        stream = queue.stream
        reader = stream.reader_at(FIRST_NUMBER)
        while reader.read(_ALL, _ALL, stream.next_number):
            pass
    else:
        while queue.backing.store.take(_ALL, _ALL)[0]:
            pass


class _Lines(logging.Handler):
    """Keeps warnings and errors of the broker."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []
        self.tracebacks = 0
        logging.getLogger("leveret").addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())
        self.tracebacks += bool(record.exc_info)

    def close(self) -> None:
        logging.getLogger("leveret").removeHandler(self)
        super().close()


def _declare(channel: BlockingChannel) -> None:
    arguments: dict[str, dict[str, Any]] = {
        "lazy": {"x-queue-mode": "lazy"},
        "prio": {"x-max-priority": 2},
        "quorum": {"x-queue-type": "quorum", "x-delivery-limit": 5},
        "stream": {"x-queue-type": "stream"},
        "unique": {"x-message-deduplication": True},
        "spilled": {"x-queue-mode": "lazy"},
    }
    for name in (*_QUEUES, "gone"):
        channel.queue_declare(name, durable=True, arguments=arguments.get(name, {}))
    channel.exchange_declare("delay", "x-delayed-message", durable=True, arguments={"x-delayed-type": "fanout"})
    cache = {"x-cache-size": 100, "x-cache-persistence": "disk"}
    channel.exchange_declare("once", "x-message-deduplication", durable=True, arguments=cache)
    channel.queue_bind("later", "delay")
    channel.queue_bind("later", "once", "later")
    # So many queues in one commit group make the redo log.
    for name in ("classic", "lazy", "prio", "later"):
        channel.queue_bind(name, "amq.fanout")


def _publish(channel: BlockingChannel) -> Iterator[tuple[bytes, str]]:
    """Publish, and return the messages."""
    for number in range(4):
        for name in ("classic", "lazy", "prio", "quorum", "stream", "unique", "gone"):
            yield _send(channel, "", name, number)
        yield _send(channel, "delay", "", number, {"x-delay": _DELAY_MS})
        yield _send(channel, "once", "later", number)
        yield _send(channel, "amq.fanout", "", number)
        yield _send(channel, "", "spilled", number, mode=1)


def _send(
    channel: BlockingChannel, exchange: str, key: str, number: int, headers: dict[str, Any] | None = None, mode: int = 2
) -> tuple[bytes, str]:
    identity = f"{exchange}-{key}-{number}"
    headers = {"x-deduplication-header": identity, **(headers or {})}
    properties = pika.BasicProperties(delivery_mode=mode, priority=number % 3, message_id=identity, headers=headers)
    body = (identity * 3).encode()
    channel.basic_publish(exchange, key, body, properties)
    return body, identity


def _consume(channel: BlockingChannel) -> None:
    for name in ("classic", "quorum"):
        channel.basic_ack(channel.basic_get(name)[0].delivery_tag)
    channel.basic_nack(channel.basic_get("quorum")[0].delivery_tag)
    channel.basic_qos(prefetch_count=10)
    arguments = {"x-stream-offset": "first", "x-stream-consumer-name": "reader"}
    for offset, (method, _, _) in enumerate(channel.consume("stream", arguments=arguments)):
        channel.basic_ack(method.delivery_tag)
        if offset:
            break
    channel.cancel()
    channel.queue_delete("gone")
