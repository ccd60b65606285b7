"""Real connections of a broker in this process, without sockets: what a message costs without the kernel.

`python -m tests.bench.in_process` is the process that tests.bench.forms talks to. It says whether it runs compiled
modules. Then it reads lines with the name of a scenario and a number of messages, and answers each with the CPU time of
a message in microseconds.
"""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable
from typing import Final

from pamqp import commands

from leveret import compilation
from tests.bench.frames import CHANNEL, PublishBatch, Route, SingleAcks, ack, contents, deliver, publish
from tests.bench.in_flight import BenchError
from tests.bench.scenarios import SCENARIOS, Scenario
from tests.support.memory_broker import MemoryBroker, MemoryClient

#: Scenarios of `make bench` that can run in this process: one queue or round trips, nothing durable.
SHAPES: Final = tuple(
    scenario
    for scenario in SCENARIOS
    if scenario.name in ("16B-auto-ack", "task", "task-ack-each", "1kB-confirms", "confirm-ack-100")
)


class Flow:
    """A publisher and a consumer of one queue; all that one of them sends at a time is handled in one turn."""

    def __init__(self, broker: MemoryBroker, scenario: Scenario) -> None:
        self._broker, self._scenario = broker, scenario
        self._route = Route("", "bench", "bench", "consumer")
        self._batch, self._contents = PublishBatch([self._route], scenario), contents(scenario)
        self._publisher, self._consumer = broker.open(), broker.open()
        self._publisher.call(CHANNEL, commands.Queue.Declare, queue="bench")
        if scenario.confirm_window:
            self._publisher.call(CHANNEL, commands.Confirm.Select)
        if scenario.prefetch:
            self._consumer.call(CHANNEL, commands.Basic.Qos, prefetch_count=scenario.prefetch)
        _consume(self._consumer, self._route, scenario)
        self._acks = SingleAcks() if scenario.ack_every else None
        self._unit = len(deliver(self._route, 1) + self._contents[0])
        self._published = self._delivered = 0

    def run(self, count: int) -> None:
        """Publish `count` messages and consume them."""
        written, last = self._consumer.transport.written, b""
        step = self._scenario.confirm_window or self._batch.best
        for first in range(0, count, step):
            now = min(step, count - first)
            self._publish(now)
            while written:
                before = self._delivered
                self._delivered += len(written) // self._unit
                last = bytes(written[-self._unit :])
                written.clear()
                if self._acks is not None:
                    self._consumer.send(self._acks.frames(before + 1, self._delivered))
        self._check(last)

    def _publish(self, count: int) -> None:
        """Publish the next messages, in one turn or in two where the batch ends."""
        while count:
            first = self._published % self._batch.count
            now = min(count, self._batch.count - first)
            self._publisher.feed(self._batch.frames(first, now))
            self._broker.loop.run()
            self._published += now
            count -= now

    def _check(self, last: bytes) -> None:
        """Compare the count, the last delivery and the last confirm with what they have to be."""
        if self._delivered != self._published:
            raise BenchError(f"{self._delivered} of {self._published} messages came")
        if last not in {deliver(self._route, self._delivered) + each for each in self._contents}:
            raise BenchError(f"delivery {self._delivered} is not what it has to be: {last!r}")
        confirms = self._publisher.transport.take()
        if self._scenario.confirm_window and not _confirms(confirms, self._published):
            raise BenchError(f"publish {self._published} is not confirmed: {confirms[-100:]!r}")


class RoundTrips:
    """Clients that each wait for their own message; the next one of all clients is handled in one turn."""

    def __init__(self, broker: MemoryBroker, scenario: Scenario) -> None:
        self._broker, self._scenario = broker, scenario
        (self._content,) = contents(scenario)
        self._routes = [Route("", name, name, "consumer") for name in map("bench.{:04}".format, range(scenario.queues))]
        self._publishes = [publish(route) + self._content for route in self._routes]
        self._clients = [broker.open() for _ in self._routes]
        for client, route in zip(self._clients, self._routes, strict=True):
            client.call(CHANNEL, commands.Queue.Declare, queue=route.queue)
            if scenario.confirm_window:
                client.call(CHANNEL, commands.Confirm.Select)
            _consume(client, route, scenario)
        self._rounds = 0

    def run(self, count: int) -> None:
        """Let the clients publish and consume `count` messages together, rounded up to whole rounds of all clients."""
        loop, pairs = self._broker.loop, list(zip(self._clients, self._publishes, strict=True))
        acknowledges, last = bool(self._scenario.ack_every), b""
        for _ in range(-(-count // len(pairs))):
            before = ack(self._rounds, multiple=False) if acknowledges and self._rounds else b""
            for client, message in pairs:
                client.feed(before + message)
            loop.run()
            self._rounds += 1
            for client in self._clients:
                last = client.transport.take()
        self._check(last)

    def _check(self, last: bytes) -> None:
        """Compare the last client's last answer with what it has to be."""
        delivery = deliver(self._routes[-1], self._rounds) + self._content
        rest = last.replace(delivery, b"", 1)
        if delivery not in last or (rest and not _confirms(rest, self._rounds)):
            raise BenchError(f"answer {self._rounds} is not what it has to be: {last!r}")


def _consume(client: MemoryClient, route: Route, scenario: Scenario) -> None:
    given = {"queue": route.queue, "consumer_tag": route.consumer_tag, "no_ack": not scenario.ack_every}
    client.call(CHANNEL, commands.Basic.Consume, **given)


def _confirms(received: bytes, last: int) -> bool:
    """Return whether the last frame of bytes confirms publish `last`."""
    return received.endswith(tuple(ack(last, multiple=multiple) for multiple in (False, True)))


def session(scenario: Scenario) -> Callable[[int], None]:
    """Open the connections of a scenario to a broker of their own."""
    return (RoundTrips if scenario.kind == "round-trip" else Flow)(MemoryBroker(), scenario).run


def cpu_of_message(run: Callable[[int], None], count: int) -> float:
    """Return the CPU time of a message in microseconds, the client's few bytes included."""
    gc.collect()
    gc.disable()
    try:
        began = time.process_time()
        run(count)
        return (time.process_time() - began) / count * 1_000_000
    finally:
        gc.enable()


def main() -> None:
    """Answer the lines that come in; see the module."""
    shapes, sessions = {shape.name: shape for shape in SHAPES}, {}
    print(compilation.form(), flush=True)
    for line in sys.stdin:
        name, count = line.split()
        if name not in sessions:
            sessions[name] = session(shapes[name])
        print(cpu_of_message(sessions[name], int(count)), flush=True)


if __name__ == "__main__":
    main()
