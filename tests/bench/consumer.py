"""The consumer: counts deliveries by their bytes."""

from __future__ import annotations

import socket
import time
from dataclasses import dataclass, field
from typing import Final

from tests.bench.frames import CHANNEL, STAMP_BYTES, Route, SingleAcks, ack, body, contents, deliver
from tests.bench.in_flight import STALL_SECONDS, BenchError, InFlight
from tests.bench.scenarios import Scenario
from tests.bench.sockets import WAITED_TOO_LONG, block, set_patience
from tests.support.wire import Connection

_READ_BYTES: Final = 256 * 1024
# Maximum time for a waiting consumer to notice the end of the phase.
_NOTICE_SECONDS: Final = 0.005
# An untimed read waits for this many bytes, so that a broker that sends in small pieces costs no wake-up for each; or
# until the receive timeout, when it takes the bytes that are there.
_READ_AT_LEAST: Final = 32 * 1024
# But not where that is more than this part of what the prefetch admits: the broker would wait for the acks.
_OF_PREFETCH: Final = 4


@dataclass(frozen=True)
class Consumed:
    """Result of a consuming phase."""

    count: int
    last_at: float
    cpu_seconds: float
    latencies: list[int] = field(default_factory=list)


class Consumer:
    """Consumes some queues on a connection of its own.

    All deliveries to it have the same length, and their tags count up from 1. So the bytes received give the count
    at no cost a message, and the tag of the last one, which is compared in full, proves it.
    """

    def __init__(self, url: str, scenario: Scenario, routes: list[Route], flight: InFlight, index: int) -> None:
        self._scenario, self._routes, self._flight, self._index = scenario, routes, flight, index
        #: Consumer tags by queue.
        self._tags = {route.queue: route.consumer_tag for route in routes}
        self._connection = Connection(url, timeout=2 * STALL_SECONDS)
        self._channel = self._connection.channel(CHANNEL)
        if scenario.prefetch:
            self._channel.qos(scenario.prefetch)
        self._socket = self._connection.wire.socket
        set_patience(self._socket, _NOTICE_SECONDS, sending=STALL_SECONDS)
        self._contents = contents(scenario)
        self._unit = len(deliver(routes[0], 1) + self._contents[0])
        self._stamp_at = self._unit - 1 - scenario.body
        is_narrow = 0 < scenario.prefetch * self._unit < _OF_PREFETCH * _READ_AT_LEAST
        self._mark = 1 if is_narrow else _READ_AT_LEAST
        self._received = self._acked = 0
        self._head = self._tail = b""
        self._last_at = 0.0
        self._acks = SingleAcks() if scenario.ack_every == 1 else None

    def subscribe(self) -> None:
        """Consume all queues. They must be empty: deliveries between the replies are not expected."""
        for queue, tag in self._tags.items():
            self._channel.consume(queue, tag, no_ack=not self._scenario.ack_every)

    def consume(self, subscribe: bool = False, timed: bool = False) -> Consumed:
        """Count and acknowledge deliveries until the phase is finished."""
        cpu, before = time.process_time(), self._received // self._unit
        latencies: list[int] = []
        self._head, self._last_at = b"", time.monotonic()
        try:
            if subscribe:
                for queue, tag in self._tags.items():
                    self._channel.consume(queue, tag, no_ack=not self._scenario.ack_every, nowait=True)
            # Requests through the channel have set another timeout.
            block(self._socket, _NOTICE_SECONDS)
            self._read_at_least(1 if timed else self._mark)
            self._receive(latencies if timed else None)
            # The mark would also hold back poll(), and with it every answer to a request.
            self._read_at_least(1)
            spent = time.process_time() - cpu
            self._check(before, stamped=timed)
            self._settle()
        except BaseException:
            self._flight.fail()
            raise
        return Consumed(self._received // self._unit - before, self._last_at, spent, latencies)

    def _read_at_least(self, size: int) -> None:
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, size)

    def _receive(self, latencies: list[int] | None) -> None:
        flight, before = self._flight, self._received // self._unit
        buffer = bytearray(_READ_BYTES)
        view = memoryview(buffer)
        while not flight.finished:
            try:
                size = self._socket.recv_into(buffer)
            except WAITED_TOO_LONG:
                continue
            if not size:
                raise BenchError(f"the broker closed the connection after {self._tail[-200:]!r}")
            self._last_at = time.monotonic()
            if latencies is not None:
                latencies += self._latencies(view[:size])
            self._note(view[:size])
            count = self._received // self._unit
            if self._scenario.ack_every:
                self._acknowledge(count)
            flight.advance(self._index, count - before)

    def _note(self, data: memoryview) -> None:
        self._received += len(data)
        if len(self._head) < self._unit:
            self._head = (self._head + data)[: self._unit]
        if len(data) >= self._unit:
            self._tail = bytes(data[-self._unit :])
        else:
            self._tail = (self._tail + data)[-self._unit :]

    def _latencies(self, data: memoryview) -> list[int]:
        half = self._received % self._unit
        whole = (self._tail[len(self._tail) - half :] if half else b"") + bytes(data)
        now = time.monotonic_ns()
        starts = range(self._stamp_at, len(whole) - len(whole) % self._unit, self._unit)
        return [now - int.from_bytes(whole[at : at + STAMP_BYTES], "big") for at in starts]

    def _acknowledge(self, count: int) -> None:
        if self._acks is not None:
            if count > self._acked:
                self._socket.sendall(self._acks.frames(self._acked + 1, count))
                self._acked = count
            return
        every = self._scenario.ack_every
        tags = range(self._acked + every, count + 1, every)
        if tags:
            self._socket.sendall(b"".join(ack(tag, multiple=True) for tag in tags))
            self._acked = tags[-1]

    def _check(self, before: int, *, stamped: bool) -> None:
        """Compare the first and the last delivery of a phase, every byte and the tag, with what they have to be."""
        count = self._received // self._unit
        if self._received % self._unit:
            raise BenchError(f"{self._received} bytes came, in units of {self._unit}; the last are {self._tail!r}")
        if count == before:
            return
        for found, tag in ((self._head, before + 1), (self._tail, count)):
            expected = {deliver(route, tag) + each for route in self._routes for each in self._contents}
            if (_unstamped(found, self._stamp_at) not in expected) if stamped else (found not in expected):
                raise BenchError(f"delivery {tag} is not what it has to be: {found!r}")

    def _settle(self) -> None:
        """Acknowledge the remaining deliveries and wait until the broker has taken all acks."""
        count = self._received // self._unit
        if self._scenario.ack_every:
            if self._acked < count:
                self._channel.ack(count, multiple=True)
                self._acked = count
            self._channel.sync(*self._tags)

    def check_empty(self) -> None:
        """Stop consuming, and make sure that no queue has a message left or gets an unacknowledged one back."""
        for tag in self._tags.values():
            self._channel.cancel(tag)
        self._channel.recover(requeue=True)
        for queue in self._tags:
            left = self._channel.queue_declare(queue, passive=True).message_count
            if left:
                raise BenchError(f"{left} messages are left in {queue}")


def _unstamped(delivery: bytes, stamp_at: int) -> bytes:
    """Put back the bytes of the body that the time stamp replaced."""
    return delivery[:stamp_at] + body(STAMP_BYTES) + delivery[stamp_at + STAMP_BYTES :]
