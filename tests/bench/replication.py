"""`python -m tests.bench.replication`: what a standby costs its leader, and what publishers wait for its disk.

Publishers send persistent messages of 1 kB to a durable queue of their own, and each waits for a confirm whenever a
window of messages has none. The same without replication, with one standby and with two, in turn, with new data
directories; and on a running cluster of another broker. Needs etcd.
"""

from __future__ import annotations

import argparse
import json
import select
import statistics
import sys
import tempfile
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from tests.bench.accounting import ProcessAccount, listening_pid
from tests.support.cluster import Cluster
from tests.support.leveret_process import LeveretProcess
from tests.support.tables import Triple
from tests.support.wire import Connection, parse_url

_BODY: Final = bytes(1000)
_SECONDS: Final = 60.0
#: Publishers, and messages of each that may have no confirm.
LOADS: Final = ((1, 100), (100, 1))
#: Queues that a run leaves behind, so that a peer's disk does not fill up.
_NAME: Final = "bench-replication"


@dataclass(frozen=True)
class Figures:
    """What one run has found; times in microseconds of CPU a message, and milliseconds."""

    messages_per_second: float
    leader_cpu_us: float | None
    standby_cpu_us: float | None
    p50_ms: float
    p99_ms: float


@dataclass(frozen=True)
class Started:
    """Brokers to measure: the leader's URL, and the process ids of the leader and the others, as far as known."""

    url: str
    leader: int | None
    standbys: Sequence[int]


class Publisher:
    """A connection that publishes to its own queue."""

    def __init__(self, url: str, number: int, window: int, arguments: list[Triple]) -> None:
        self._connection = Connection(url, timeout=_SECONDS)
        self._channel = self._connection.channel()
        self._queue = f"{_NAME}-{number}"
        self._channel.queue_delete(self._queue)
        self._channel.queue_declare(self._queue, durable=True, arguments=arguments)
        self._channel.confirm_select()
        self._window = window
        self._sent: deque[float] = deque()
        self._tag = 0
        self.descriptor = self._connection.wire.socket.fileno()

    def fill(self, now: float) -> int:
        """Publish until the window is full; return how many messages."""
        count = self._window - len(self._sent)
        for _ in range(count):
            self._channel.publish("", self._queue, _BODY, {"delivery_mode": 2})
            self._sent.append(now)
        return count

    def take(self, latencies: list[float]) -> None:
        """Take the confirms that have come, and note how long each took."""
        self._connection.read(_SECONDS)
        # One frame is read, and more may have come with it, for which no poll wakes up again.
        with suppress(TimeoutError):
            while True:
                self._connection.read(0)
        now = time.perf_counter()
        for confirm in self._channel.confirms:
            assert confirm.ack, "a publish was refused"
            while self._tag < confirm.delivery_tag:
                self._tag += 1
                latencies.append(now - self._sent.popleft())
        self._channel.confirms.clear()

    @property
    def waits(self) -> bool:
        """Whether a message has no confirm yet."""
        return bool(self._sent)

    def close(self) -> None:
        """Remove the queue, and end."""
        self._channel.queue_delete(self._queue)
        self._connection.close()


def measure(started: Started, publishers: int, window: int, seconds: float, arguments: list[Triple]) -> Figures:
    """Publish for a time."""
    clients = [Publisher(started.url, number, window, arguments) for number in range(publishers)]
    poll, by_descriptor = select.epoll(), {client.descriptor: client for client in clients}
    for client in clients:
        poll.register(client.descriptor, select.EPOLLIN)
    accounts = [None if pid is None else ProcessAccount(pid) for pid in (started.leader, *started.standbys)]
    latencies: list[float] = []

    def publish(until: float) -> None:
        for client in clients:
            client.fill(time.perf_counter())
        while any(client.waits for client in clients):
            for descriptor, _ in poll.poll(_SECONDS):
                client = by_descriptor[descriptor]
                client.take(latencies)
                if time.perf_counter() < until:
                    client.fill(time.perf_counter())

    # So that files are there and code is warm.
    publish(time.perf_counter() + min(1.0, seconds / 5))
    latencies.clear()
    before = [0.0 if each is None else each.cpu_seconds() for each in accounts]
    begun = time.perf_counter()
    publish(begun + seconds)
    took = time.perf_counter() - begun
    spent = [None if each is None else each.cpu_seconds() for each in accounts]
    cpu = [
        None if after is None else (after - earlier) / len(latencies) * 1e6
        for after, earlier in zip(spent, before, strict=True)
    ]
    for client in clients:
        client.close()
    cuts = statistics.quantiles(latencies, n=100)
    standbys = [each for each in cpu[1:] if each is not None]
    return Figures(
        len(latencies) / took,
        cpu[0],
        statistics.mean(standbys) if standbys else None,
        statistics.median(latencies) * 1000,
        cuts[98] * 1000,
    )


@contextmanager
def alone() -> Iterator[Started]:
    """Start a broker without replication."""
    with tempfile.TemporaryDirectory(prefix="bench-replication-") as name, LeveretProcess(Path(name)) as process:
        yield Started(process.url, process.pid, ())


@contextmanager
def replicated(standbys: int) -> Iterator[Started]:
    """Start a leader with standbys."""
    with tempfile.TemporaryDirectory(prefix="bench-replication-") as name:
        settings = {"replication.lease": "10s", "log_level": "warning"}
        with Cluster(Path(name), standbys + 1, settings) as cluster:
            cluster.start()
            leader = cluster.wait_for_leader()
            pids = [node.process.pid for node in cluster.nodes if node is not leader and node.process is not None]
            assert leader.process is not None
            yield Started(f"amqp://guest:guest@127.0.0.1:{leader.port}", leader.process.pid, pids)


@contextmanager
def peer(urls: Sequence[str]) -> Iterator[Started]:
    """Use nodes of another broker that run already: the first is published to."""
    pids = [listening_pid(parse_url(url).port) for url in urls]
    yield Started(urls[0], pids[0], [pid for pid in pids[1:] if pid is not None])


def main(argv: Sequence[str] | None = None) -> int:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.replication", description=__doc__)
    parser.add_argument("--runs", type=int, default=3, help="runs of each, in turn (default: 3)")
    parser.add_argument("--seconds", type=float, default=10, help="seconds a run (default: 10)")
    parser.add_argument(
        "--peer-url", action="append", default=[], metavar="URL", help="a node of another broker's cluster, of"
        " which the first is published to; may be repeated. Its queues are quorum queues",
    )  # fmt: skip
    parser.add_argument("--json", action="store_true", help="print all runs as JSON")
    given = parser.parse_args(argv)
    quorum: list[Triple] = [("x-queue-type", "S", "quorum")]
    starts = {
        "alone": (alone, list[Triple]()),
        "one standby": (lambda: replicated(1), list[Triple]()),
        "two standbys": (lambda: replicated(2), list[Triple]()),
    }
    if given.peer_url:
        starts["peer"] = (lambda: peer(given.peer_url), quorum)
    found: dict[str, list[Figures]] = {}
    for number in range(given.runs):
        for name, (start, arguments) in starts.items():
            for publishers, window in LOADS:
                with start() as started:
                    figures = measure(started, publishers, window, given.seconds, arguments)
                found.setdefault(f"{name}, {publishers} publisher{'s' * (publishers > 1)}", []).append(figures)
                print(f"run {number + 1}: {name}, {publishers}: {figures}", file=sys.stderr, flush=True)
    if given.json:
        print(json.dumps({name: [asdict(each) for each in runs] for name, runs in found.items()}, indent=1))
        return 0
    columns = ("messages_per_second", "leader_cpu_us", "standby_cpu_us", "p50_ms", "p99_ms")
    print(f"{'medians':28}{'messages/s':>12}{'leader µs':>12}{'standby µs':>12}{'p50 ms':>10}{'p99 ms':>10}")
    for name, runs in found.items():
        values = [[getattr(each, column) for each in runs if getattr(each, column) is not None] for column in columns]
        texts = [f"{statistics.median(each):.2f}" if each else "-" for each in values]
        print(f"{name:28}{texts[0]:>12}{texts[1]:>12}{texts[2]:>12}{texts[3]:>10}{texts[4]:>10}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
