"""What streams cost: publishing, reading from the first message, following at the end, finding a time, replaying."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Final

from tests.bench.brokers import Broker
from tests.bench.frames import Route
from tests.bench.in_flight import BenchError, InFlight
from tests.bench.publisher import Publisher
from tests.bench.scenarios import Scenario
from tests.bench.stream_reader import StreamReader
from tests.bench.worker import Worker
from tests.support.management import Management
from tests.support.wire import Connection

#: What can be measured, in this order.
PHASES: Final = ("publish", "consume", "tail", "seek", "replay")
_STREAM: Final = "bench-stream"
_COPY: Final = "bench-copy"
_ECHO: Final = "bench-echo"
_CONFIRM_WINDOW: Final = 1_000
_PREFETCH: Final = 1_000
_READERS: Final = 3
#: Part of the messages that are published while one reads at the end.
_TAIL_PART: Final = 4
#: Size of the segments in which times are looked for, in bytes.
_SMALL_SEGMENT: Final = 100_000
_SEEKS: Final = 20
#: One message of so many is replayed.
_REPLAYED: Final = 10
_POLL_SECONDS: Final = 0.25
_WARM_UP: Final = 20


@dataclass(frozen=True)
class Phase:
    """The figures of one phase; None if not measurable."""

    name: str
    messages: int
    per_second: float
    server_cpu_us: float | None
    peak_rss_mib: float | None
    notes: dict[str, float] = field(default_factory=dict)


class _Clock:
    """Measures a phase on a broker."""

    def __init__(self, broker: Broker) -> None:
        self._account = broker.account
        if self._account is not None:
            self._account.reset_peak_rss()
        self._cpu = self._cpu_seconds()
        self._began = time.monotonic()

    def _cpu_seconds(self) -> float:
        return 0.0 if self._account is None else self._account.cpu_seconds()

    def phase(self, name: str, messages: int, ended: float | None = None, **notes: float) -> Phase:
        """Return the figures up to now, or for the rate to an earlier moment of the monotonic clock."""
        seconds = (time.monotonic() if ended is None else ended) - self._began
        cpu, peak = None, None
        if self._account is not None:
            cpu = (self._cpu_seconds() - self._cpu) / messages * 1e6
            peak = self._account.peak_rss_bytes() / 2**20
        return Phase(name, messages, messages / seconds, cpu, peak, notes)


def run(broker: Broker, messages: int, body: int, wanted: frozenset[str]) -> Iterator[Phase]:
    """Measure some phases, one after another."""
    scenario = Scenario(
        "stream", "", body, messages, "publish", durable=True, persistent=True, confirm_window=_CONFIRM_WINDOW
    )
    if wanted & {"publish", "consume", "tail"}:
        with _stream(broker), _publisher(broker, scenario) as publisher:
            clock = _Clock(broker)
            publisher.call("publish", messages, False)
            published = clock.phase("publish", messages)
            if "publish" in wanted:
                yield published
            if "consume" in wanted:
                yield _consume(broker, messages)
            if "tail" in wanted:
                yield _tail(broker, publisher, max(1, messages // _TAIL_PART))
    if "seek" in wanted:
        yield _seek(broker, scenario, messages)
    if "replay" in wanted and broker.http_url is not None:
        yield _replay(broker, broker.http_url, scenario, max(1, messages // 2))


@contextmanager
def _stream(broker: Broker, segment: int | None = None) -> Iterator[None]:
    """Declare the stream; delete it at the end."""
    arguments: list[tuple[str, str, object]] = [("x-queue-type", "S", "stream")]
    if segment is not None:
        arguments.append(("x-stream-max-segment-size-bytes", "l", segment))
    with Connection(broker.url) as connection:
        channel = connection.channel()
        channel.queue_declare(_STREAM, durable=True, arguments=arguments)
        try:
            yield
        finally:
            channel.queue_delete(_STREAM)


@contextmanager
def _publisher(broker: Broker, scenario: Scenario) -> Iterator[Worker]:
    # It has to live as long as the process that has been given it.
    flight = InFlight(0)
    publisher = Worker(Publisher, broker.url, scenario, [Route("", _STREAM, _STREAM, "r")], flight, 1)
    try:
        publisher.result()
        yield publisher
    finally:
        publisher.close()


@contextmanager
def _readers(broker: Broker, count: int) -> Iterator[list[Worker]]:
    readers = [Worker(StreamReader, broker.url, _STREAM, _PREFETCH) for _ in range(count)]
    try:
        for reader in readers:
            reader.result()
        yield readers
    finally:
        for reader in readers:
            reader.close()


def _consume(broker: Broker, messages: int) -> Phase:
    """Let three consumers read everything at once."""
    with _readers(broker, _READERS) as readers:
        clock = _Clock(broker)
        for reader in readers:
            reader.begin("read", messages, "first")
        ended = max([reader.result().last_at for reader in readers])
        return clock.phase("consume", messages * _READERS, ended)


def _tail(broker: Broker, publisher: Worker, messages: int) -> Phase:
    """Publish while a consumer reads what comes; what is counted is published and delivered."""
    with _readers(broker, 1) as (reader,):
        reader.call("attach", "S", "next")
        clock = _Clock(broker)
        reader.begin("read", messages)
        publisher.call("publish", messages, False)
        behind = time.monotonic()
        ended = reader.result().last_at
        return clock.phase("tail", messages, ended, behind_ms=max(0.0, ended - behind) * 1000)


def _seek(broker: Broker, scenario: Scenario, messages: int) -> Phase:
    """Find times in a stream of many small segments."""
    with _stream(broker, _SMALL_SEGMENT), _publisher(broker, scenario) as publisher:
        times = []
        for part in range(_SEEKS):
            times.append(int(time.time()))
            publisher.call("publish", messages * (part + 1) // _SEEKS - messages * part // _SEEKS, False)
        # Where they are found does not depend on what was asked before: back and forth.
        places = [times[part * 7 % _SEEKS] for part in range(_SEEKS)]
        clock = _Clock(broker)
        took = sorted([StreamReader(broker.url, _STREAM, 10).first("T", place) * 1000 for place in places])
        found = clock.phase("seek", messages, median_ms=took[len(took) // 2], worst_ms=took[-1])
        segments = messages * scenario.body / _SMALL_SEGMENT
        return replace(found, per_second=0.0, server_cpu_us=None, notes={"segments": segments, **found.notes})


def _replay(broker: Broker, http_url: str, scenario: Scenario, messages: int) -> Phase:
    """Replay one message of ten by a filter, while another client publishes to itself and waits for each message."""
    kinds = tuple({"headers": [("kind", "S", str(kind))]} for kind in range(_REPLAYED))
    mixed = Scenario(
        "replay", "", scenario.body, messages, "publish",
        durable=True, persistent=True, properties=kinds, confirm_window=_CONFIRM_WINDOW,
    )  # fmt: skip
    with _stream(broker), _publisher(broker, mixed) as publisher, Connection(broker.url) as connection:
        publisher.call("publish", messages, False)
        channel = connection.channel()
        channel.queue_declare(_COPY, durable=True)
        try:
            clock = _Clock(broker)
            job, delays = _watch_replay(broker, Management(http_url))
            found = clock.phase("replay", messages)
            expected = len(range(3, messages, _REPLAYED))
            left = channel.queue_declare(_COPY, passive=True).message_count
        finally:
            channel.queue_delete(_COPY)
    if (job["state"], job["scanned"], left) != ("completed", messages, expected):
        raise BenchError(f"{left} messages were replayed, {expected} expected: {job}")
    seconds = max(1, job["finished"] - job["created"]) / 1000
    notes = {"replayed": float(expected), "seconds": seconds, "echo_median_ms": statistics.median(delays)}
    return replace(found, per_second=messages / seconds, notes={**notes, "echo_worst_ms": max(delays)})


def _watch_replay(broker: Broker, api: Management) -> tuple[dict[str, Any], list[float]]:
    """Replay the stream; return the job at its end, and the milliseconds of the messages of another client."""
    with _Echo(broker) as echo:
        for _ in range(_WARM_UP):
            echo.once()
        options = {"into_queue": _COPY, "filter": {"headers": {"kind": "3"}}}
        job = api.request("POST", "queues", "/", _STREAM, "replay", body=options)
        delays: list[float] = []
        while job["state"] == "running":
            until = time.monotonic() + _POLL_SECONDS
            while time.monotonic() < until:
                delays.append(echo.once() * 1000)
            job = api.request("GET", "jobs", "/", job["id"])
    return job, delays


class _Echo:
    """A client that publishes a message to itself and waits for it."""

    def __init__(self, broker: Broker) -> None:
        self._connection = Connection(broker.url)
        self._channel = self._connection.channel()
        self._channel.queue_declare(_ECHO, exclusive=True)
        self._channel.consume(_ECHO, "echo", no_ack=True)

    def __enter__(self) -> _Echo:
        return self

    def __exit__(self, *error: object) -> None:
        self._connection.close()

    def once(self) -> float:
        """Return the seconds that one message takes."""
        began = time.monotonic()
        self._channel.publish("", _ECHO, b"x", {})
        self._channel.next_delivery()
        return time.monotonic() - began
