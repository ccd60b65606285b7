"""Consumers race a reader of the files while the broker ends again and again: the reader gets all messages once."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import pyarrow.parquet as pq

from leveret.analytics.archive.archive_files import ArchiveFiles
from leveret.analytics.archive.manifests import read_manifests, store_ids
from tests.crash.process_loads import PATIENCE, Consumer, ProcessLoad, Publisher
from tests.crash.rounds import Round, Worker
from tests.support.archived import data_files
from tests.support.archiver_process import ArchiverProcess
from tests.support.leveret_process import LeveretProcess
from tests.support.wire import Channel

_ROOT: Final = Path(__file__).parents[2]


class RacingClients(ProcessLoad):
    """A publisher and a consumer of each queue; the consumer of the first one does not acknowledge."""

    def __init__(self, seed: int, queues: Sequence[str], reader: str) -> None:
        super().__init__(seed)
        self._queues = queues
        self._reader = reader
        #: Queue and number, which is the body, of each message that was published, and of each that was confirmed.
        self._sent: set[str] = set()
        self._promised: set[str] = set()
        self._following = dict.fromkeys(queues, 0)

    def declare(self, broker: LeveretProcess) -> None:
        super().declare(broker)
        _wait_until(lambda: any((broker.data_dir / "ckpt").iterdir()))
        self._start(broker)
        _wait_until((broker.data_dir / "readers" / self._reader).exists)
        # The broker looks once a second.
        _wait_until(lambda: "leveret_readers 1.0" in _metrics_of(broker))

    def _declare(self, channel: Channel) -> None:
        for queue in self._queues:
            channel.queue_declare(queue, durable=True)

    def _start(self, broker: LeveretProcess) -> None:
        """Start the reader."""
        raise NotImplementedError

    def workers(self, broker: LeveretProcess, seed: int) -> Sequence[Worker]:
        consumers = [Consumer(broker.url, name, _ignore, no_ack=name == self._queues[0]) for name in self._queues]
        return [*consumers, *(_RacingPublisher(broker.url, self, queue) for queue in self._queues)]

    def has_worked(self) -> bool:
        return bool(self._promised)

    def publish(self, publisher: Publisher, queue: str) -> None:
        """Publish a message."""
        number = self._following[queue]
        self._following[queue] += 1
        self._sent.add(f"{queue} {number}")
        publisher.publish("", queue, b"%d" % number)

    def confirm(self, queue: str, body: bytes) -> None:
        """Note a confirm."""
        self._promised.add(f"{queue} {body.decode()}")

    def rows(self) -> Counter[str]:
        """Return queue and body of all that the reader has got."""
        raise NotImplementedError

    def missed(self) -> object:
        """Return what the reader counts as missed."""
        raise NotImplementedError

    def expect(self, broker: LeveretProcess) -> None:
        _wait_until(lambda: self._promised <= self.rows().keys())
        self.close()
        rows = self.rows()
        assert max(rows.values()) == 1
        assert set(rows) <= self._sent
        assert self.missed() == {}

    def counts(self) -> Counter[str]:
        return Counter(confirmed=len(self._promised), sent=len(self._sent), read=self.rows().total())


class _RacingPublisher(Publisher):
    def __init__(self, url: str, load: RacingClients, queue: str) -> None:
        super().__init__(url, lambda body: load.confirm(queue, body))
        self._load = load
        self._queue = queue

    def work(self) -> None:
        self._load.publish(self, self._queue)
        self.wait(200)


class ArchiverClients(RacingClients):
    """The reader is the archiver, which is killed too, more often."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed, ("q/1", "q=2", "q 3"), "archive")
        self._archiver: ArchiverProcess | None = None

    def _start(self, broker: LeveretProcess) -> None:
        self._archive = broker.directory / "archive"
        self._archiver = ArchiverProcess(broker.data_dir, self._archive)

    def meanwhile(self, work: Round, rng: random.Random) -> None:
        deadline = time.monotonic() + rng.uniform(2, 5)
        while (left := deadline - time.monotonic()) > 0:
            work.wait(1 << 30, min(left, rng.uniform(0.3, 2.5)))
            assert self._archiver is not None
            self._archiver.kill()
            self._archiver.start()

    def rows(self) -> Counter[str]:
        files, found = ArchiveFiles(str(self._archive)), Counter[str]()
        for each in data_files(files, "messages"):
            with files.open(each.path) as file:
                table = pq.read_table(file, columns=["queue", "body"])
            pairs = zip(table["queue"].to_pylist(), table["body"].to_pylist(), strict=True)
            found.update(f"{queue} {body.decode()}" for queue, body in pairs)
        return found

    def missed(self) -> object:
        files = ArchiveFiles(str(self._archive))
        last = read_manifests(files, store_ids(files)[0]).last
        return last.position["messages"].get("missed", {}) if last is not None else None

    def close(self) -> None:
        if self._archiver is not None:
            self._archiver.close()
            self._archiver = None


class QueryClients(RacingClients):
    """The reader is a query with a name, the process of tests.crash.reading_query; every other round kills it."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed, ("q1", "q2", "q3"), "lake")
        self._rounds = 0
        self._process: subprocess.Popen[bytes] | None = None

    def _start(self, broker: LeveretProcess) -> None:
        self._output = broker.directory / "output"
        self._output.mkdir()
        self._log = broker.directory / "query.log"
        self._command = [sys.executable, "-m", "tests.crash.reading_query", str(broker.data_dir), str(self._output)]
        self._read()

    def _read(self) -> None:
        environment = {**os.environ, "PYTHONPATH": str(_ROOT)}
        with self._log.open("ab") as log:
            command = [*self._command, self._reader]
            self._process = subprocess.Popen(command, cwd=_ROOT, env=environment, stderr=log)

    def meanwhile(self, work: Round, rng: random.Random) -> None:
        work.wait(1 << 30, rng.uniform(1, 3))
        self._rounds += 1
        if self._rounds % 2:
            assert self._process is not None
            assert self._process.poll() is None, self._log.read_text()
            self.close()
            self._read()

    def rows(self) -> Counter[str]:
        paths = sorted(self._output.glob("rows-*[0-9]"))
        return Counter(row for path in paths for row in json.loads(path.read_bytes()))

    def missed(self) -> object:
        newest = max(self._output.glob("offset-*[0-9]"), key=lambda path: int(path.name.partition("-")[2]))
        return json.loads(newest.read_bytes()).get("missed", {})

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


def _ignore(delivery: object) -> None:
    """The reader has to get it, too."""


def _metrics_of(broker: LeveretProcess) -> str:
    with urllib.request.urlopen(f"{broker.prometheus_url}/metrics", timeout=PATIENCE) as response:
        text: str = response.read().decode()
    return text


def _wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)
