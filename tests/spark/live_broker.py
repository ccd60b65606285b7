"""A broker that is published to and consumed from as fast as it goes, and what Spark counts in its files meanwhile."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from leveret.analytics.jobs.job_options import JobOptions
from tests.bench.consumer import Consumer
from tests.bench.frames import Route
from tests.bench.in_flight import InFlight
from tests.bench.publisher import Publisher
from tests.bench.scenarios import Scenario
from tests.bench.worker import Worker
from tests.support.wire import Connection

ROOT: Final = Path(__file__).parents[2]
#: One is consumed from, the other drops from its head. The load wants names of equal lengths.
ROUTES: Final = [Route("", "drained", "drained", "consumer"), Route("", "bounded", "bounded", "consumer")]
BOUND: Final = 20_000
#: Messages of a turn that the queue has dropped and that are not settled yet; the model counts them.
ON_THE_WAY: Final = 1000
_SCENARIO: Final = Scenario(
    "live", "", 200, 1, "consume", durable=True, persistent=True, prefetch=1000, ack_every=50, confirm_window=1000
)
_STEP: Final = 2000
_PATIENCE: Final = 180.0


@dataclass
class LiveBroker:
    """A broker under load.

    Attributes:
        url: Where it listens.
        data_dir: Its data directory.
        model: What it records; see recording_broker.py.
        published: Messages that have been confirmed.
        process: The broker.
    """

    url: str
    data_dir: str
    model: Path
    process: subprocess.Popen[str]
    published: int = 0
    flight: InFlight = field(default_factory=lambda: InFlight(1))
    _ended: threading.Event = field(default_factory=threading.Event)

    @property
    def delivered(self) -> int:
        return self.flight.delivered

    def model_at(self, cut: int) -> dict[str, list[int]]:
        """What queues held at a time: messages, and the sum of their body lengths."""
        deadline = time.monotonic() + _PATIENCE
        while time.monotonic() < deadline:
            for line in self.model.read_text("utf-8").splitlines(keepends=True):
                if line.endswith("\n") and (recorded := json.loads(line))["until"] >= cut:
                    found: dict[str, list[int]] = recorded["queues"]
                    return found
            time.sleep(0.05)
        raise AssertionError(f"nothing is known of {cut}")

    def await_full(self) -> None:
        """Return once a tick has been recorded at which the bounded queue was full."""
        deadline = time.monotonic() + _PATIENCE
        while f"[{BOUND}," not in self.model.read_text("utf-8"):
            assert time.monotonic() < deadline, "it does not get full"
            time.sleep(0.05)

    @contextmanager
    def load(self) -> Iterator[None]:
        """Publish and consume as fast as it goes."""
        publisher = Worker(Publisher, self.url, _SCENARIO, ROUTES, self.flight, 1)
        consumer = Worker(Consumer, self.url, _SCENARIO, ROUTES[:1], self.flight, 0)
        for worker in (publisher, consumer):
            worker.result()
        self.flight.begin()
        consumer.begin("consume", True, False)

        def publish() -> None:
            while not self._ended.is_set():
                publisher.call("publish", _STEP, False)
                self.published += _STEP

        thread = threading.Thread(target=publish, name="publishing")
        thread.start()
        try:
            yield
        finally:
            self._ended.set()
            thread.join(_PATIENCE)
            self.flight.wait_for(self.published // 2)
            self.flight.finish()
            consumer.result()
            for worker in (publisher, consumer):
                worker.close()


@contextmanager
def live_broker(directory: Path, *more: str) -> Iterator[LiveBroker]:
    """Start one, with its queues.

    Args:
        directory: Where its data directory and its log are.
        more: Arguments of the program.
    """
    options = [*more, "--host", "127.0.0.1", "--port", "0", "--management-port", "0", "--prometheus-port", "0"]
    data_dir, model, log = directory / "data", directory / "model", directory / "log"
    command = [sys.executable, "-m", "tests.spark.recording_broker", str(model), *options, "--data-dir", str(data_dir)]
    with log.open("w") as target:
        process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=target, text=True)
    assert process.stdout is not None
    try:
        ready = re.search(r" amqp=(\S+) ", process.stdout.readline())
        assert ready is not None, log.read_text()
        url = f"amqp://guest:guest@{ready[1]}/%2F"
        with Connection(url) as connection:
            channel = connection.channel()
            channel.queue_declare("drained", durable=True)
            channel.queue_declare("bounded", durable=True, arguments=[("x-max-length", "I", BOUND)])
        yield LiveBroker(url, str(data_dir), model, process)
    finally:
        process.terminate()
        process.wait(_PATIENCE)
        process.stdout.close()


def counted(spark: SparkSession, data_dir: str) -> tuple[int, dict[str, list[int]], dict[str, list[int]]]:
    """What Spark finds: when it was, and of each queue messages and body bytes, by two tables of one moment."""
    options = JobOptions(data_dir).with_snapshot(spark)
    queues = options.table(spark, "queues", ("queue", "messages", "body_bytes", "as_of")).collect()
    messages = options.table(spark, "messages", ("queue", "seq", "body_bytes"))
    sums = messages.groupBy("queue").agg(f.count_distinct("seq"), f.sum("body_bytes")).collect()
    found = {row.queue: [0, 0] for row in queues} | {row[0]: [row[1], row[2]] for row in sums}
    (cut,) = {int(row.as_of.timestamp() * 1_000_000 + 0.5) for row in queues}
    return cut, found, {row.queue: [row.messages, row.body_bytes] for row in queues}
