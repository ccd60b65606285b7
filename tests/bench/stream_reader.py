"""A consumer of a stream: counts deliveries by their bytes."""

from __future__ import annotations

import struct
import time
from typing import Final

from tests.bench.consumer import Consumed
from tests.bench.frames import CHANNEL, ack
from tests.bench.in_flight import STALL_SECONDS, BenchError
from tests.bench.sockets import WAITED_TOO_LONG, block, set_patience
from tests.support.transport import BODY
from tests.support.wire import Connection

_FRAME_OVERHEAD: Final = 8
_READ_BYTES: Final = 256 * 1024
_HEAD: Final = struct.Struct(">BHI")
_TAG: Final = struct.Struct(">Q")
#: Where the delivery tag is, after the consumer tag of one byte: frame head, class and method, length and tag.
_TAG_AT: Final = _HEAD.size + 4 + 2


class StreamReader:
    """Reads a stream on a connection of its own.

    All deliveries have the same length, as the offset among the headers always has eight bytes.
    """

    def __init__(self, url: str, stream: str, prefetch: int) -> None:
        self._stream, self._every = stream, max(1, prefetch // 4)
        self._connection = Connection(url, timeout=2 * STALL_SECONDS)
        self._channel = self._connection.channel(CHANNEL)
        self._channel.qos(prefetch)
        self._socket = self._connection.wire.socket
        set_patience(self._socket, STALL_SECONDS)

    def first(self, kind: str, value: object) -> float:
        """Consume from a place, and stop again; return the seconds until the first delivery."""
        began = time.monotonic()
        self._channel.consume(self._stream, "r", arguments=[("x-stream-offset", kind, value)])
        self._channel.next_delivery()
        took = time.monotonic() - began
        self._channel.cancel("r")
        self._connection.close()
        return took

    def attach(self, kind: str, value: object) -> None:
        """Consume from a place at which nothing is delivered yet; see first()."""
        self._channel.consume(self._stream, "r", arguments=[("x-stream-offset", kind, value)])

    def read(self, count: int, begin: str | None = None) -> Consumed:
        """Read messages."""
        cpu = time.process_time()
        if begin is not None:
            arguments = [("x-stream-offset", "S", begin)]
            self._channel.consume(self._stream, "r", nowait=True, arguments=arguments)
        block(self._socket, STALL_SECONDS)
        received = acked = unit = 0
        tail, buffer = b"", bytearray(_READ_BYTES)
        view = memoryview(buffer)
        while not unit or received < count * unit:
            size = self._receive(buffer)
            received += size
            tail = bytes(view[size - unit : size]) if 0 < unit <= size else (tail + bytes(view[:size]))[-unit:]
            unit = unit or _length(tail)
            done = received // unit if unit else 0
            if done >= acked + self._every:
                self._socket.sendall(ack(done, multiple=True))
                acked = done
        last_at = time.monotonic()
        last = tail[-unit:]
        if received != count * unit or _TAG.unpack_from(last, _TAG_AT)[0] != count:
            raise BenchError(f"{received} bytes came, in units of {unit}; the last are {last!r}")
        self._connection.abort()
        return Consumed(count, last_at, time.process_time() - cpu)

    def _receive(self, buffer: bytearray) -> int:
        try:
            size = self._socket.recv_into(buffer)
        except WAITED_TOO_LONG:
            raise BenchError(f"no delivery for {STALL_SECONDS:.0f} s") from None
        if not size:
            raise BenchError("the broker closed the connection of a reader")
        return size


def _length(data: bytes) -> int:
    """Return the length of the first delivery; 0 if it is not complete."""
    at = size = 0
    while at + _HEAD.size <= len(data):
        kind, _, payload = _HEAD.unpack_from(data, at)
        at += payload + _FRAME_OVERHEAD
        if kind == BODY:
            size = at
            break
    return size if size <= len(data) else 0
