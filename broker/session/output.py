"""Output of a connection: a buffer that collects frames during a turn and writes them together, confirms, heartbeats.

Confirms of a channel are combined into frames as RabbitMQ combines them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from leveret.broker.core.counters.counters import ChannelCounters, ConnectionCounters
from leveret.broker.core.definitions_gate import DefinitionsGate
from leveret.broker.core.message_stores import WriteFailures
from leveret.broker.core.messages import Target
from leveret.broker.core.queues.queue import QueueConsumer
from leveret.broker.core.scheduling.turn import Turn
from leveret.protocol.constants import FRAME_END, FRAME_HEARTBEAT
from leveret.protocol.methods import INDEX, ack_head, encode_ack, encode_method

_ACK: Final = INDEX["basic.ack"]
_NACK: Final = INDEX["basic.nack"]


class Confirms:
    """Sequence numbers and confirms of the publishes on a channel.

    Confirmed publishes are kept as ranges, not one by one.

    Args:
        channel: The channel number.
    """

    __slots__ = (
        "_accepted", "_ack_head", "_channel", "_counters", "_held", "_last", "_refused", "_unwritten", "_withheld",
    )  # fmt: skip

    def __init__(self, channel: int, counters: ChannelCounters) -> None:
        self._channel = channel
        self._ack_head = ack_head(channel)
        self._counters = counters
        self._last = 0
        #: Ranges (first, last) to be acked with the next flush.
        self._accepted: list[tuple[int, int]] = []
        self._refused: list[int] = []
        #: Ranges of this turn that are not written to disk yet, with the queues of the messages.
        self._unwritten: list[tuple[int, int, tuple[Target, ...]]] = []
        #: Ranges that are written and not synced yet.
        self._held: list[tuple[int, int]] = []
        #: Numbers that a test withholds: whether they are accepted, None if that is not known yet.
        self._withheld: dict[int, bool | None] = {}

    @property
    def last(self) -> int:
        """Sequence number of the latest publish; 0 before the first."""
        return self._last

    @property
    def unconfirmed_count(self) -> int:
        """Number of publishes that are not confirmed yet."""
        held = sum(last - first + 1 for first, last in self._held)
        withheld = sum(accepted is not None for accepted in self._withheld.values())
        return held + withheld + sum(last - first + 1 for first, last, _ in self._unwritten)

    def accept_next(self, count: int) -> None:
        """Assign the next sequence numbers to publishes that are confirmed immediately; count may be 0."""
        if not count:
            return
        first = self._last + 1
        self._last += count
        self._accept(first, self._last)

    def refuse_next(self) -> None:
        """Assign the next sequence number to a publish that was refused."""
        self._last += 1
        self._refused.append(self._last)

    def hold_next(self, count: int, queues: tuple[Target, ...]) -> bool:
        """Assign the next sequence numbers to publishes that are confirmed once they are on disk.

        Args:
            count: Number of publishes; may be 0.
            queues: The queues of the messages.
        Returns:
            Whether they are the first such publishes of this turn.
        """
        if not count:
            return False
        first = self._last + 1
        self._last += count
        unwritten = self._unwritten
        if unwritten and unwritten[-1][1] == first - 1 and unwritten[-1][2] is queues:
            unwritten[-1] = (unwritten[-1][0], self._last, queues)
        else:
            unwritten.append((first, self._last, queues))
        return len(unwritten) == 1 and unwritten[0][0] == first

    def withhold_next(self) -> int:
        """Have the answer to the next publish kept back until release(); return its sequence number."""
        number = self._last + 1
        self._withheld[number] = None
        return number

    def release(self, number: int) -> None:
        """Send the answer to a withheld publish with the next flush, or when it is known."""
        accepted = self._withheld.pop(number, None)
        if accepted:
            self._accepted.append((number, number))
        elif accepted is not None:
            self._refused.append(number)

    def needs_definitions(self, gate: DefinitionsGate) -> bool:
        """Check whether a publish of this turn went to a queue whose definition is not on disk yet."""
        return any(
            gate.is_unwritten(kind, key)
            for *_, queues in self._unwritten
            for queue in queues
            for kind, key in queue.definitions()
        )

    def written(self, failures: WriteFailures) -> int:
        """Refuse publishes of this turn that could not be written; return its last sequence number, 0 without any."""
        unwritten, self._unwritten = self._unwritten, []
        if unwritten and not failures.any:
            self._hold(unwritten)
            return unwritten[-1][1]
        for first, last, queues in unwritten:
            if failures.concern(queues):
                self._refused += range(first, last + 1)
            else:
                self._held.append((first, last))
        return unwritten[-1][1] if unwritten else 0

    def _hold(self, written: list[tuple[int, int, tuple[Target, ...]]]) -> None:
        """Merge adjacent ranges, and let them wait for the sync."""
        start, end, _ = written[0]
        for first, last, _ in written:
            if first > end + 1:
                self._held.append((start, end))
                start = first
            end = last
        self._held.append((start, end))

    def synced(self, last: int) -> None:
        """Confirm held publishes up to a sequence number: they are synced."""
        held, count = self._held, 0
        for first, end in held:
            if first > last:
                break
            self._accept(first, end)
            count += 1
        if count == len(held):
            # As usual, and faster than to delete a slice.
            held.clear()
        else:
            del held[:count]

    def refuse_held(self) -> bool:
        """Refuse held publishes: it is not known when their copies will be made; return whether there are any."""
        held, self._held = self._held, []
        for first, last in held:
            self._refused += range(first, last + 1)
        return bool(held)

    def _accept(self, first: int, last: int) -> None:
        """Ack a range of publishes with the next flush."""
        self._counters.confirm += last - first + 1
        accepted = self._accepted
        if accepted and accepted[-1][1] == first - 1:
            accepted[-1] = (accepted[-1][0], last)
        else:
            accepted.append((first, last))

    def flush(self) -> list[bytes]:
        """Return the frames that are due, acks before nacks.

        A frame with multiple=true covers all numbers up to its own that are still unconfirmed. So it may only be used
        below the lowest number that gets another answer, or none yet.
        """
        accepted, self._accepted = self._accepted, []
        refused = self._refused
        if refused:
            self._refused = []
        if self._withheld:
            accepted, refused = self._keep_withheld(accepted, refused)
        lowest = self._lowest_unconfirmed()
        if not refused and len(accepted) == 1 and accepted[0][1] < lowest:
            first, last = accepted[0]
            return [encode_ack(self._ack_head, last, last > first)]
        numbers = sorted(number for first, last in accepted for number in range(first, last + 1))
        frames = []
        if len(numbers) == 1:
            frames.append(encode_ack(self._ack_head, numbers[0], False))
        elif numbers:
            frames += self._coalesce(numbers, min((lowest, *refused)), _ACK)
        if refused:
            # As in RabbitMQ, the acks sent just before still count as unconfirmed here.
            frames += self._coalesce(sorted(refused), min((lowest, *numbers)), _NACK)
        return frames

    def _keep_withheld(
        self, accepted: list[tuple[int, int]], refused: list[int]
    ) -> tuple[list[tuple[int, int]], list[int]]:
        """Keep the answers to withheld publishes; return the others."""
        withheld = self._withheld
        numbers = [number for first, last in accepted for number in range(first, last + 1)]
        withheld.update({number: True for number in numbers if number in withheld})
        withheld.update({number: False for number in refused if number in withheld})
        left = [number for number in numbers if number not in withheld]
        return [(number, number) for number in left], [number for number in refused if number not in withheld]

    def _lowest_unconfirmed(self) -> int:
        lowest = self._last + 1
        if self._held:
            lowest = self._held[0][0]
        elif self._unwritten:
            lowest = self._unwritten[0][0]
        return min([lowest, *self._withheld]) if self._withheld else lowest

    def _coalesce(self, numbers: list[int], cutoff: int, method: int) -> list[bytes]:
        """Build one frame (multiple=true) for all numbers below the cutoff, and one frame for each other number."""
        settled = [number for number in numbers if number < cutoff]
        # RabbitMQ sets the requeue bit of basic.nack; clients ignore it.
        rest: tuple[bool, ...] = (True,) if method == _NACK else ()
        frames = [encode_method(self._channel, method, settled[-1], True, *rest)] if settled else []
        singles = numbers[len(settled) :]
        return frames + [encode_method(self._channel, method, number, False, *rest) for number in singles]


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
