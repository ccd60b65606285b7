"""One scenario's load on one broker: its queues, its clients and its phases."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from tests.bench.consumer import Consumed, Consumer
from tests.bench.frames import Route
from tests.bench.in_flight import STALL_SECONDS, BenchError, InFlight
from tests.bench.publisher import Published, Publisher
from tests.bench.round_trips import RoundTrips
from tests.bench.scenarios import Scenario
from tests.bench.topology import Topology
from tests.bench.worker import Worker


@dataclass(frozen=True)
class Flow:
    """What a phase moved."""

    messages: int
    refused: int
    seconds: float
    cpu_seconds: float


class Load:
    """The clients of one scenario in processes of their own; a context manager that deletes the queues at its end.

    Phases are called in the order of the methods; all but `run` may be left out.
    """

    def __init__(self, url: str, scenario: Scenario, window: int) -> None:
        self._url, self._scenario, self._window = url, scenario, window
        self._topology = Topology(url, scenario)
        self._filled = 0
        self._workers: list[Worker] = []
        self._consumers: list[Worker] = []

    def __enter__(self) -> Load:
        try:
            self._topology.declare()
            self._start()
        except BaseException:
            self._close()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self._close()

    def _start(self) -> None:
        scenario, topology = self._scenario, self._topology
        if scenario.kind == "round-trip":
            self._clients = Worker(RoundTrips, self._url, scenario, topology.routes)
            self._workers.append(self._clients)
            self._clients.result()
            return
        shares = [] if scenario.kind == "publish" else self._shares()
        self._flight = InFlight(len(shares))
        self._publisher = Worker(Publisher, self._url, scenario, topology.published, self._flight, self._window)
        self._workers.append(self._publisher)
        for index, share in enumerate(shares):
            self._consumers.append(Worker(Consumer, self._url, scenario, share, self._flight, index))
            self._workers.append(self._consumers[-1])
        for worker in self._workers:
            worker.result()
        if scenario.kind == "flow":
            for consumer in self._consumers:
                consumer.call("subscribe")

    def _shares(self) -> list[list[Route]]:
        """Return the routes of each connection that consumes."""
        count = self._scenario.connections
        return [self._topology.share(index, count) for index in range(count)] * self._scenario.consumers

    def _close(self) -> None:
        for worker in self._workers:
            worker.close()
        self._topology.delete()

    @property
    def queues(self) -> list[str]:
        """The names of the queues that routes lead to."""
        return self._topology.queues

    def latencies(self, rate: float, count: int) -> list[int]:
        """Publish at an even rate and return how long each delivery took, in nanoseconds; for a `flow`."""
        expected = count * self._scenario.copies
        with self._consuming({"timed": True}) as consumed:
            self._publisher.call("publish_at_rate", rate, count)
            self._flight.wait_for(expected)
        _expect(sum(each.count for each in consumed), expected)
        return [latency for each in consumed for latency in each.latencies]

    def fill(self, count: int) -> None:
        """Put messages into the queue before the clock starts; not for a `flow`."""
        self._fill(count, STALL_SECONDS)

    def run(self, count: int, *, patience: float = STALL_SECONDS) -> Flow:
        """Move messages as fast as the broker takes them."""
        if self._scenario.kind == "round-trip":
            made: Published = self._clients.call("run", count)
            return Flow(made.count, made.refused, made.ended - made.began, made.cpu_seconds)
        if self._scenario.kind == "publish":
            filled = self._fill(count, patience)
            return Flow(filled.count, filled.refused, filled.ended - filled.began, filled.cpu_seconds)
        if self._scenario.kind == "consume":
            began, cpu, expected = time.monotonic(), 0.0, self._filled
            with self._consuming({"subscribe": True}) as consumed:
                self._flight.wait_for(expected)
        else:
            expected = count * self._scenario.copies
            with self._consuming({}) as consumed:
                published: Published = self._publisher.call("publish", count, True)
                self._flight.wait_for(expected)
            began, cpu = published.began, published.cpu_seconds
            _expect(published.count - published.refused, count)
        _expect(sum(each.count for each in consumed), expected)
        took = max(each.last_at for each in consumed) - began
        return Flow(expected, 0, took, cpu + sum(each.cpu_seconds for each in consumed))

    def check_empty(self) -> None:
        """Make sure that no message is left in the queues of consumers, acknowledged ones included."""
        if self._scenario.kind == "round-trip":
            self._clients.call("check_empty")
        for consumer in self._consumers:
            consumer.call("check_empty")

    @contextmanager
    def _consuming(self, how: dict[str, bool]) -> Iterator[list[Consumed]]:
        """Let all consumers count during the block; what each came to is in the list after it."""
        consumed: list[Consumed] = []
        self._flight.begin()
        for consumer in self._consumers:
            consumer.begin("consume", how.get("subscribe", False), how.get("timed", False))
        failure: BenchError | None = None
        try:
            yield consumed
        except BenchError as error:
            failure = error
        finally:
            self._flight.finish()
        # Why a consumer failed says more than that the publisher saw it fail.
        consumed += [consumer.result() for consumer in self._consumers]
        if failure is not None:
            raise failure

    def _fill(self, count: int, patience: float) -> Published:
        """Publish to the queue, which nobody reads, until it and its dead-letter queue hold what they have to."""
        scenario, queue = self._scenario, self.queues[0]
        before, self._filled = self._filled, self._filled + count
        left = scenario.left(self._filled)
        expected = {queue: left}
        gone = self._filled - left
        if scenario.dead_letter:
            expected[self._topology.dead_letter_queue()] = gone
        published: Published = self._publisher.call("fill", count, expected, patience)
        if scenario.refuses and scenario.confirm_window:
            gone -= before - scenario.left(before)
            _expect(published.refused, gone)
        else:
            _expect(published.refused, 0)
        return published


def _expect(received: int, expected: int) -> None:
    if received != expected:
        raise BenchError(f"{received} messages came, {expected} expected")
