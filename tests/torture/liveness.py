"""A broker without faults under changing load, with consumers that come and go: all messages arrive, nobody is stuck.

python -m tests.torture.liveness --seconds 600 --seed 3

At the end each queue has given away all its messages, a consumer that was there from the beginning still gets what is
published, and the broker has no more memory and descriptors than after the first seconds.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import pika
from pika.adapters.blocking_connection import BlockingChannel

from tests.support.leveret_process import LeveretProcess
from tests.support.management import Management

_PATIENCE: Final = 180.0
#: Queues by name, with their arguments.
_QUEUES: Final[dict[str, dict[str, Any]]] = {
    "classic": {},
    "lazy": {"x-queue-mode": "lazy"},
    "priority": {"x-max-priority": 5},
    "quorum": {"x-queue-type": "quorum", "x-delivery-limit": 1_000_000},
    "single": {"x-single-active-consumer": True},
}
_EXCHANGE: Final = "load"
_PROBE: Final = b"probe"
#: Above this publishers wait for consumers.
_BACKLOG: Final = 5_000
#: Memory in bytes that may stay with the broker: what an allocator keeps depends on chance.
_ALLOWED_BYTES: Final = 24 << 20
_ALLOWED_DESCRIPTORS: Final = 2


class Arrivals:
    """Messages that were published, and those that were acknowledged, by queue."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: dict[str, set[bytes]] = {name: set() for name in _QUEUES}
        self.counts: Counter[str] = Counter()

    def publish(self, body: bytes, queues: Sequence[str]) -> None:
        """Note a message before it is published to queues."""
        with self._lock:
            self.counts["published"] += len(queues)
            for queue in queues:
                self._waiting[queue].add(body[:20])

    def settle(self, queue: str, body: bytes) -> None:
        """Note an acknowledgement."""
        with self._lock:
            self.counts["acknowledged"] += 1
            self._waiting[queue].discard(body[:20])

    def count(self, what: str) -> None:
        """Count an event."""
        with self._lock:
            self.counts[what] += 1

    def waiting(self) -> dict[str, int]:
        """Return how many messages have not arrived, by queue; those without any are left out."""
        with self._lock:
            return {queue: len(bodies) for queue, bodies in self._waiting.items() if bodies}


class Actor(threading.Thread):
    """A client that does something until it is stopped."""

    def __init__(self, url: str, arrivals: Arrivals, seed: int) -> None:
        super().__init__(daemon=True)
        self.stopping = threading.Event()
        self.arrivals = arrivals
        self.rng = random.Random(seed)
        self._url = url
        self._failure: Exception | None = None
        self.start()

    def run(self) -> None:
        try:
            while not self.stopping.is_set():
                with pika.BlockingConnection(pika.URLParameters(self._url)) as connection:
                    self.act(connection.channel())
        except Exception as error:  # noqa: BLE001 - raised by stop()
            self._failure = error

    def act(self, channel: BlockingChannel) -> None:
        """Use a channel for a while."""
        raise NotImplementedError

    def stop(self) -> None:
        """End it."""
        self.stopping.set()
        self.join(_PATIENCE)
        if self._failure is not None:
            raise self._failure
        assert not self.is_alive(), "a client hangs"


class Publisher(Actor):
    """Publishes with confirms: single messages, bursts, and to all queues at once; sometimes it does nothing."""

    def act(self, channel: BlockingChannel) -> None:
        rng = self.rng
        channel.confirm_delivery()
        until = time.monotonic() + rng.uniform(0.5, 8)
        while time.monotonic() < until and not self.stopping.is_set():
            if sum(self.arrivals.waiting().values()) > _BACKLOG:
                channel.connection.sleep(0.1)
                continue
            for _ in range(rng.choice((1, 1, 10, 200))):
                self._publish(channel)
            channel.connection.sleep(rng.choice((0, 0, 0.01, 0.3)))

    def _publish(self, channel: BlockingChannel) -> None:
        rng = self.rng
        body = b"%020d" % rng.getrandbits(60) + bytes(rng.choice((0, 0, 100, 3_000, 60_000)))
        queue = rng.choice([*_QUEUES, _EXCHANGE])
        self.arrivals.publish(body, [*_QUEUES] if queue == _EXCHANGE else [queue])
        properties = pika.BasicProperties(delivery_mode=rng.choice((1, 2)), priority=rng.randrange(6))
        if queue == _EXCHANGE:
            channel.basic_publish(_EXCHANGE, "", body, properties, mandatory=True)
        else:
            channel.basic_publish("", queue, body, properties, mandatory=True)


class Visitor(Actor):
    """Consumes for a while: acknowledges one by one or many, returns some, keeps some until its end."""

    def act(self, channel: BlockingChannel) -> None:
        rng, queue = self.rng, self.rng.choice([*_QUEUES])
        channel.basic_qos(prefetch_count=rng.choice((1, 5, 100)))
        until = time.monotonic() + rng.uniform(0.05, 4)
        self.arrivals.count("visits")
        for method, _, body in channel.consume(queue, inactivity_timeout=0.1):
            if method is not None:
                self._settle(channel, queue, method.delivery_tag, body)
            if time.monotonic() > until or self.stopping.is_set():
                break
        # What it has not acknowledged returns to the queue, with its consumer or its channel.
        if rng.random() < 0.5:
            channel.cancel()

    def _settle(self, channel: BlockingChannel, queue: str, tag: int, body: bytes) -> None:
        chance = self.rng.random()
        if chance < 0.1 or body == _PROBE:
            channel.basic_nack(tag)
            self.arrivals.count("returned")
        elif chance < 0.2:
            self.arrivals.count("kept")
        else:
            channel.basic_ack(tag)
            self.arrivals.settle(queue, body)


class Resident(Actor):
    """Consumes from one queue all the time."""

    def __init__(self, url: str, arrivals: Arrivals, queue: str) -> None:
        self._queue = queue
        self.probed = threading.Event()
        super().__init__(url, arrivals, 0)

    def act(self, channel: BlockingChannel) -> None:
        channel.basic_qos(prefetch_count=20)
        for method, _, body in channel.consume(self._queue, inactivity_timeout=0.1):
            if method is not None:
                channel.basic_ack(method.delivery_tag)
                if body == _PROBE:
                    self.probed.set()
                else:
                    self.arrivals.settle(self._queue, body)
            if self.stopping.is_set():
                break


class Usage(NamedTuple):
    """What a broker needs."""

    resident: int
    descriptors: int

    def __str__(self) -> str:
        return f"{self.resident / 1e6:.1f} MB, {self.descriptors} descriptors"


def usage_of(pid: int) -> Usage:
    """Return what a process needs now."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return Usage(pages * os.sysconf("SC_PAGE_SIZE"), len(os.listdir(f"/proc/{pid}/fd")))


def run(process: LeveretProcess, seconds: float, seed: int) -> tuple[Arrivals, Usage, Usage]:
    """Run the load twice: shortly, and for some seconds; return what the broker needed after each."""
    url, arrivals = f"{process.url}/%2F", Arrivals()
    with pika.BlockingConnection(pika.URLParameters(url)) as connection:
        channel = connection.channel()
        channel.exchange_declare(_EXCHANGE, "fanout", durable=True)
        for name, arguments in _QUEUES.items():
            channel.queue_declare(name, durable=True, arguments=arguments)
            channel.queue_bind(name, _EXCHANGE)
    residents = [Resident(url, arrivals, name) for name in _QUEUES]
    _load(url, arrivals, min(20.0, seconds / 2), seed)
    before = usage_of(process.pid)
    _load(url, arrivals, seconds, seed + 1)
    _probe(url, residents)
    _check_queues(process)
    after = _until_small(process.pid, before)
    for resident in residents:
        resident.stop()
    return arrivals, before, after


def _load(url: str, arrivals: Arrivals, seconds: float, seed: int) -> None:
    rng, until = random.Random(seed), time.monotonic() + seconds
    actors: list[Actor] = []
    while (left := until - time.monotonic()) > 0:
        kinds: list[type[Actor]] = [Publisher] * rng.randrange(5) + [Visitor] * rng.randrange(7)
        actors = [kind(url, arrivals, rng.randrange(1 << 30)) for kind in kinds]
        actors[0].join(min(left, rng.uniform(1, 15))) if actors else time.sleep(min(left, 1))
        for actor in actors:
            actor.stop()
    deadline = time.monotonic() + _PATIENCE
    while waiting := arrivals.waiting():
        assert time.monotonic() < deadline, f"messages that never arrived: {waiting}"
        time.sleep(0.05)


def _probe(url: str, residents: Sequence[Resident]) -> None:
    """Check that consumers that were there all the time still get messages."""
    with pika.BlockingConnection(pika.URLParameters(url)) as connection:
        connection.channel().basic_publish(_EXCHANGE, "", _PROBE)
        for resident, queue in zip(residents, _QUEUES, strict=True):
            assert resident.probed.wait(_PATIENCE), f"the consumer of {queue} is stuck"


def _check_queues(process: LeveretProcess) -> None:
    """Check that queues are empty and have the consumers that are left."""
    api, deadline = Management(process.http_url), time.monotonic() + _PATIENCE
    while True:
        queues = {queue["name"]: (queue["messages"], queue["consumers"]) for queue in api.request("GET", "queues", "/")}
        if all(queues[name] == (0, 1) for name in _QUEUES):
            return
        assert time.monotonic() < deadline, f"messages and consumers: {queues}"
        time.sleep(0.1)


def _until_small(pid: int, before: Usage) -> Usage:
    """Wait until the broker has given back what it needed; files are closed after they were not used for a while."""
    deadline = time.monotonic() + _PATIENCE
    while True:
        after = usage_of(pid)
        small = after.resident - before.resident <= _ALLOWED_BYTES
        if small and after.descriptors - before.descriptors <= _ALLOWED_DESCRIPTORS:
            return after
        assert time.monotonic() < deadline, f"before: {before}; after: {after}"
        time.sleep(0.2)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the load, and print what has happened."""
    parser = argparse.ArgumentParser(
        prog="tests.torture.liveness", description=(__doc__ or "").partition(":")[0] + ".", allow_abbrev=False
    )
    parser.add_argument("--seconds", type=float, default=600, help="how long; default: 600")
    parser.add_argument("--seed", type=int, default=1, help="of all that is decided by lot; default: 1")
    given = parser.parse_args(arguments)
    with (
        tempfile.TemporaryDirectory(prefix="leveret-liveness-") as temporary,
        LeveretProcess(Path(temporary), settings={"log_level": "warning"}) as process,
    ):
        arrivals, before, after = run(process, given.seconds, given.seed)
        log = process.log_text()
    assert not log, log
    counts = ", ".join(f"{count} {what}" for what, count in sorted(arrivals.counts.items()))
    print(f"seed {given.seed}, {given.seconds:.0f} s: {counts}\nbefore: {before}; after: {after}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
