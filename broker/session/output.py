"""Output of a connection: a buffer that collects frames during a turn and writes them together, and heartbeats."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from leveret.broker.core.counters.counters import ConnectionCounters
from leveret.broker.core.queues.consumers import QueueConsumer
from leveret.broker.core.scheduling.turn import Turn
from leveret.broker.session.confirms import Confirms
from leveret.protocol.constants import FRAME_END, FRAME_HEARTBEAT

log = logging.getLogger("leveret.connection")

HEARTBEAT_FRAME: Final = bytes((FRAME_HEARTBEAT, 0, 0, 0, 0, 0, 0, FRAME_END))

#: Bytes of output of one connection in one turn above which its consumers wait for the next turn. Bounds memory, and
#: keeps the broker responsive to other connections.
_CONGESTED_BYTES: Final = 524_288

#: High-water mark of the transport in bytes, above which deliveries pause.
_HIGH_WATER: Final = 1_048_576

#: Unsent bytes above which requests of the client wait, too: a client that never reads replies would fill the memory.
#: The limit is high enough for clients that send many requests before they read.
_OVERFULL_BYTES: Final = 33_554_432


class Output:
    """Output buffer of a connection.

    Args:
        turn: Schedules flush() for the end of the turn.

    Attributes:
        parts: Output of this turn, in order. Code that appends to it directly calls sent() afterwards.
        congested: True while deliveries must wait until output has drained.
        overfull: True while requests must wait until output has drained.
        resume: Called once when output is no longer overfull; set by the code that pauses reading.
        stalled: Consumers that wait because the output is congested.
        confirming: Those of the channels that have confirms to send.
        counters: Bytes read and written.
        wrote: True if anything was written since the heartbeat timer last cleared it.
    """

    __slots__ = (
        "_bytes",
        "_held",
        "_paused",
        "_scheduled",
        "_transport",
        "_turn",
        "confirming",
        "congested",
        "counters",
        "overfull",
        "parts",
        "resume",
        "stalled",
        "wrote",
    )

    def __init__(self, turn: Turn, transport: asyncio.Transport) -> None:
        self._turn = turn
        self._transport = transport
        self._bytes = 0
        self._paused = False
        self._held = False
        #: Whether flush() is to be called at the end of the turn.
        self._scheduled = False
        self.parts: list[bytes] = []
        self.counters = ConnectionCounters()
        self.congested = self.overfull = False
        self.resume: Callable[[], None] | None = None
        self.stalled: list[QueueConsumer] = []
        # A dict, because an empty set takes 216 bytes.
        self.confirming: dict[Confirms, None] = {}
        self.wrote = False
        transport.set_write_buffer_limits(high=_HIGH_WATER)

    def send(self, frame: bytes) -> None:
        """Send a frame at the end of the turn."""
        self.parts.append(frame)
        self.sent(len(frame))

    def sent(self, byte_count: int) -> None:
        """Account for what was appended to ``parts``, and send it at the end of the turn."""
        self._bytes += byte_count
        if self._bytes > _CONGESTED_BYTES:
            self.congested = True
            self.overfull = self._bytes > _OVERFULL_BYTES
        self._flush_later()

    def confirm(self, confirms: Confirms) -> None:
        """Send the confirms of a channel at the end of the turn."""
        self.confirming[confirms] = None
        self._flush_later()

    def confirm_synced(self, confirms: Confirms) -> None:
        """Send the confirms of a channel, which are for messages on disk, without making anything durable again."""
        if not self.confirming and not self._scheduled:
            self._turn.confirm_later(self)
        self.confirming[confirms] = None

    def pending_bytes(self) -> int:
        """Return the number of bytes in the write buffer of the transport."""
        return self._transport.get_write_buffer_size()

    def hold(self) -> None:
        """Send only heartbeats until release() is called: replies refer to changes that are not on disk yet."""
        self._held = True

    def release(self) -> None:
        """Send held output."""
        self._held = False
        self._flush_later()

    def send_heartbeat(self, frame: bytes) -> None:
        """Send a heartbeat immediately, even while output is held."""
        if self._transport.is_closing():
            return
        if self._held:
            # This does not split a frame: nothing of the held output has been written.
            self._transport.write(frame)
        else:
            self.send(frame)
            self.flush()

    def flush(self) -> None:
        """Write all output, and resume stalled consumers."""
        self._scheduled = False
        if self._held:
            return
        if self._transport.is_closing():
            # The client has gone, or an error has closed the socket: uvloop refuses what comes after that.
            self.parts.clear()
            self.confirming.clear()
            return
        if self.confirming:
            for confirms in self.confirming:
                self.parts += confirms.flush()
            self.confirming.clear()
        if self.parts:
            parts, self.parts = self.parts, []
            octets = b"".join(parts)
            self._transport.write(octets)
            self.counters.send_oct += len(octets)
            self.counters.send_cnt += 1
            self.wrote = True
        self._bytes = 0
        if self._paused:
            self.overfull = self.pending_bytes() > _OVERFULL_BYTES
        else:
            self._resume()

    def pause(self) -> None:
        """Pause deliveries: the write buffer is above its high-water mark."""
        self._paused = self.congested = True

    def unpause(self) -> None:
        """Resume deliveries: the write buffer has drained."""
        self._paused = False
        self._resume()

    def _flush_later(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            self._turn.flush_later(self)

    def _resume(self) -> None:
        """Resume stalled consumers and reading of requests."""
        self.congested = self.overfull = False
        if self.stalled:
            stalled, self.stalled = self.stalled, []
            for consumer in stalled:
                consumer.unblock()
        if self.resume is not None:
            resume, self.resume = self.resume, None
            resume()


class Heartbeat:
    """Sends and monitors heartbeats: checks output twice per interval and input once.

    As in RabbitMQ, a connection is dropped after two consecutive checks without input, 2 to 3 intervals after the last
    byte.

    Args:
        output: Output buffer; gets a heartbeat if nothing was written for half an interval.
        name: Name of the connection, for the log.

    Attributes:
        interval: Negotiated interval in seconds; 0 for no heartbeats.
        received: Set by the connection when bytes arrive.
        paused: Set while input is not read, or the client need not send heartbeats.
    """

    __slots__ = ("_checks_input", "_loop", "_misses", "_name", "_output", "_timer", "interval", "paused", "received")

    def __init__(self, loop: asyncio.AbstractEventLoop, output: Output, name: str) -> None:
        self._loop = loop
        self._name = name
        self._output = output
        self._checks_input = False
        self._misses = 0
        self._timer: asyncio.TimerHandle | None = None
        self.interval = 0
        self.received = self.paused = False

    def start(self, interval: int, on_missed: Callable[[], None]) -> None:
        """Start sending and checking.

        Args:
            interval: Negotiated interval in seconds, 1..65535.
            on_missed: Called once when heartbeats of the client are missed. The timer holds it, to leave no reference
                cycle behind.
        """
        self.interval = interval
        self._timer = self._loop.call_later(interval / 2, self._tick, on_missed)

    def stop(self) -> None:
        """Stop sending and checking."""
        if self._timer is not None:
            self._timer.cancel()

    def _tick(self, on_missed: Callable[[], None]) -> None:
        self._timer = self._loop.call_later(self.interval / 2, self._tick, on_missed)
        if not self._output.wrote:
            self._output.send_heartbeat(HEARTBEAT_FRAME)
        self._output.wrote = False
        self._checks_input = not self._checks_input
        if not self._checks_input and self._misses_input():
            self.stop()
            log.error("closing AMQP connection %s: missed heartbeats from client", self._name)
            on_missed()

    def _misses_input(self) -> bool:
        """Check whether the second interval without input is over."""
        self._misses = 0 if self.received or self.paused else self._misses + 1
        self.received = False
        return self._misses == 2
