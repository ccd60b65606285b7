"""The publisher: prepared bytes into a blocking socket."""

from __future__ import annotations

import struct
import time
from dataclasses import dataclass
from typing import Final

from tests.bench.frames import CHANNEL, PublishBatch, Route
from tests.bench.in_flight import STALL_SECONDS, BenchError, InFlight
from tests.bench.scenarios import Scenario
from tests.bench.sockets import WAITED_TOO_LONG, block, set_patience
from tests.support.wire import METHOD, Connection

_CONFIRM: Final = struct.Struct(">BHIHHQBB")
_CONFIRM_READ: Final = 64 * 1024
_BASIC: Final = 60
_ACK: Final = 80
_NACK: Final = 120
# How often to ask for the count of a queue that is still busy.
_ASK_SECONDS: Final = 0.01


@dataclass(frozen=True)
class Published:
    """Result of a publishing phase."""

    count: int
    refused: int
    began: float
    ended: float
    cpu_seconds: float


class Publisher:
    """Publishes the messages of a batch over and over, on a connection of its own."""

    def __init__(self, url: str, scenario: Scenario, routes: list[Route], flight: InFlight, window: int) -> None:
        self._scenario, self._flight, self._window = scenario, flight, window
        self._batch = PublishBatch(routes, scenario)
        self._connection = Connection(url, timeout=2 * STALL_SECONDS)
        self._channel = self._connection.channel(CHANNEL)
        self._unconfirmed = scenario.confirm_window
        self._sent = self._confirmed = self._refused = 0
        self._early: set[int] = set()
        self._half = b""
        self._socket = self._connection.wire.socket
        set_patience(self._socket, STALL_SECONDS)
        if self._unconfirmed:
            self._channel.confirm_select()

    def publish(self, count: int, bounded: bool) -> Published:
        """Publish as fast as the broker takes it."""
        first, refused, cpu, began = self._begin()
        copies = self._scenario.copies
        most = min(self._batch.best, max(1, self._window // copies // 2)) if bounded else self._batch.best
        while (left := count - (self._sent - first)) > 0:
            now = min(most, left, self._room())
            if bounded:
                over = (self._sent - first + now) * copies - self._window
                if over > self._flight.delivered:
                    # Not to wake up for every message, let a quarter of the window get free.
                    self._flight.wait_for(over + self._window // 4)
            self._send(now)
        self._wait_for_confirms()
        return self._published(first, refused, cpu, began)

    def publish_at_rate(self, rate: float, count: int) -> Published:
        """Publish at an even rate, the bodies stamped with CLOCK_MONOTONIC in nanoseconds."""
        first, refused, cpu, began = self._begin()
        for number in range(count):
            pause = began + number / rate - time.monotonic()
            if pause > 0:
                time.sleep(pause)
            self._write(self._batch.stamped(self._sent % self._batch.count, time.monotonic_ns()))
            self._sent += 1
        self._wait_for_confirms()
        return self._published(first, refused, cpu, began)

    def fill(self, count: int, expected: dict[str, int], patience: float) -> Published:
        """Publish into queues without consumers, until they hold what they are expected to."""
        published = self.publish(count, bounded=False)
        cpu = time.process_time()
        deadline = time.monotonic() + patience
        # The answer comes after the publishes of the same channel; queues that dead-letter or expire take longer.
        while True:
            held = {queue: self._channel.queue_declare(queue, passive=True).message_count for queue in expected}
            ended = time.monotonic()
            if held == expected:
                break
            if ended > deadline:
                raise BenchError(f"the queues hold {held}, expected {expected}")
            time.sleep(_ASK_SECONDS)
        spent = published.cpu_seconds + time.process_time() - cpu
        return Published(published.count, published.refused, published.began, ended, spent)

    def _begin(self) -> tuple[int, int, float, float]:
        # Requests through the channel have set another timeout.
        block(self._socket, STALL_SECONDS)
        return self._sent, self._refused, time.process_time(), time.monotonic()

    def _published(self, first: int, refused: int, cpu: float, began: float) -> Published:
        spent = time.process_time() - cpu
        return Published(self._sent - first, self._refused - refused, began, time.monotonic(), spent)

    def _room(self) -> int:
        """Return how many messages to send next; with confirms, wait for the first when the window is full."""
        if not self._unconfirmed:
            return self._batch.best
        while self._sent - self._confirmed >= self._unconfirmed:
            self._read_confirms()
        return self._unconfirmed - (self._sent - self._confirmed)

    def _send(self, count: int) -> None:
        """Publish the next `count` messages."""
        while count:
            first = self._sent % self._batch.count
            now = min(count, self._batch.count - first)
            self._write(self._batch.frames(first, now))
            self._sent += now
            count -= now

    def _write(self, data: bytes | memoryview) -> None:
        try:
            self._socket.sendall(data)
        except WAITED_TOO_LONG:
            raise BenchError(f"the broker took no publish for {STALL_SECONDS:.0f} s") from None

    def _wait_for_confirms(self) -> None:
        """Wait until every publish is confirmed; at once on a channel without confirms."""
        while self._unconfirmed and self._confirmed < self._sent:
            self._read_confirms()

    def _read_confirms(self) -> None:
        try:
            data = self._socket.recv(_CONFIRM_READ)
        except WAITED_TOO_LONG:
            raise BenchError(f"no confirm for {STALL_SECONDS:.0f} s") from None
        if not data:
            raise BenchError("the broker closed the publisher's connection")
        data = self._half + data
        whole = len(data) - len(data) % _CONFIRM.size
        self._half = data[whole:]
        for kind, _, _, class_id, method_id, tag, bits, _ in _CONFIRM.iter_unpack(data[:whole]):
            if (kind, class_id) != (METHOD, _BASIC) or method_id not in (_ACK, _NACK):
                raise BenchError(f"no confirm: {data[:200]!r}")
            self._settle(tag, multiple=bool(bits & 1), nack=method_id == _NACK)

    def _settle(self, tag: int, *, multiple: bool, nack: bool) -> None:
        before = self._confirmed + len(self._early)
        if multiple and tag > self._confirmed:
            self._confirmed = tag
            self._early = {each for each in self._early if each > tag}
        elif not multiple:
            self._early.add(tag)
        while self._early and self._confirmed + 1 in self._early:
            self._confirmed += 1
            self._early.remove(self._confirmed)
        if nack:
            self._refused += self._confirmed + len(self._early) - before
