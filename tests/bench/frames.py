"""Frames made before the clock starts: publishes by the thousand, acks for any tag, and what a delivery looks like."""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass
from typing import Final

from pamqp import commands

from tests.bench.scenarios import Scenario
from tests.support import content
from tests.support.transport import BODY, HEADER, METHOD, frame, method_frame

CHANNEL: Final = 1
STAMP_BYTES: Final = 8

_ACK: Final = struct.Struct(">BHIHHQBB")
_BASIC: Final = 60
_BASIC_ACK: Final = 80
_FRAME_END: Final = 0xCE
_TAG_AT: Final = 11
_BLOCK: Final = 1 << 16
# More in one write would only wait in the kernel.
_BATCH_BYTES: Final = 128 * 1024
_BATCH_MESSAGES: Final = 1_000


@dataclass(frozen=True)
class Route:
    """One way from the publisher to a consumer. All routes of a run have names of the same lengths."""

    exchange: str
    routing_key: str
    queue: str
    consumer_tag: str


def body(size: int) -> bytes:
    """Return the body that every message of `size` bytes has."""
    return (b"0123456789abcdef" * (size // 16 + 1))[:size]


def contents(scenario: Scenario) -> list[bytes]:
    """Return header and body frame of each kind of message that a scenario has; all have the same length."""
    mode = {"delivery_mode": 2} if scenario.persistent else {}
    made = [
        frame(HEADER, CHANNEL, content.header(scenario.body, content.properties(**(mode | dict(each)))))
        + frame(BODY, CHANNEL, body(scenario.body))
        for each in scenario.properties
    ]
    assert len({len(each) for each in made}) == 1, "all sets of properties encode to the same length"
    return made


def publish(route: Route) -> bytes:
    """Return the method frame of a publish; one of the scenario's contents follows it."""
    return method_frame(CHANNEL, commands.Basic.Publish, exchange=route.exchange, routing_key=route.routing_key)


def deliver(route: Route, tag: int) -> bytes:
    """Return the method frame of a delivery; one of the scenario's contents follows it."""
    return method_frame(
        CHANNEL,
        commands.Basic.Deliver,
        consumer_tag=route.consumer_tag,
        delivery_tag=tag,
        redelivered=False,
        exchange=route.exchange,
        routing_key=route.routing_key,
    )


class PublishBatch:
    """Publishes to the routes in turn, with the contents in turn, in one buffer."""

    def __init__(self, routes: list[Route], scenario: Scenario) -> None:
        methods = [publish(route) for route in routes]
        bodies = contents(scenario)
        turn = math.lcm(len(methods), len(bodies))
        units = [methods[number % len(methods)] + bodies[number % len(bodies)] for number in range(turn)]
        self.unit = len(units[0])
        assert {len(unit) for unit in units} == {self.unit}
        self.best = max(1, min(_BATCH_MESSAGES, _BATCH_BYTES // self.unit))
        turns = -(-self.best // turn)
        self.count = turns * turn
        self._stamp_at = self.unit - 1 - scenario.body
        self._frames = memoryview(b"".join(units) * turns)

    def frames(self, first: int, count: int) -> memoryview:
        """Return publishes `first` to `first + count - 1` of the buffer."""
        return self._frames[first * self.unit : (first + count) * self.unit]

    def stamped(self, index: int, stamp: int) -> bytes:
        """Return one publish whose body starts with a number, 0..2**64-1."""
        one = bytearray(self.frames(index, 1))
        one[self._stamp_at : self._stamp_at + STAMP_BYTES] = stamp.to_bytes(STAMP_BYTES, "big")
        return bytes(one)


def ack(tag: int, *, multiple: bool) -> bytes:
    """Return a basic.ack frame, an acknowledgement or a confirm."""
    return _ACK.pack(METHOD, CHANNEL, _ACK.size - 8, _BASIC, _BASIC_ACK, tag, multiple, _FRAME_END)


class SingleAcks:
    """Frames of basic.ack for a run of tags, without work for each: made 65,536 at a time by strided copies."""

    def __init__(self) -> None:
        self._block = bytearray(ack(0, multiple=False) * _BLOCK)
        self._block[_TAG_AT + 7 :: _ACK.size] = bytes(range(256)) * 256
        self._block[_TAG_AT + 6 :: _ACK.size] = bytes(low >> 8 for low in range(_BLOCK))
        self._high = 0

    def frames(self, first: int, last: int) -> bytes:
        """Return the acks of tags `first` to `last`, 1..2**32-1."""
        pieces = []
        while first <= last:
            self._select(first >> 16)
            end = min(last, first | (_BLOCK - 1))
            pieces.append(self._block[first % _BLOCK * _ACK.size : (end % _BLOCK + 1) * _ACK.size])
            first = end + 1
        return b"".join(pieces)

    def _select(self, high: int) -> None:
        if high != self._high:
            self._block[_TAG_AT + 5 :: _ACK.size] = bytes([high & 0xFF]) * _BLOCK
            self._block[_TAG_AT + 4 :: _ACK.size] = bytes([high >> 8]) * _BLOCK
            self._high = high
