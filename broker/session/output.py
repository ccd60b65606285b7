"""What goes out to one client, collected over a turn and written at once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from leveret.broker.core.stats.counters import ConnectionCounters
from leveret.broker.core.turn import Turn

if TYPE_CHECKING:
    from leveret.broker.session.channel import Channel
    from leveret.broker.session.delivery import ChannelConsumer

#: Output collected for one connection in one turn beyond which its consumers wait for the next: bounds
#: memory, and keeps one consumer with a backlog from holding up everyone else.
_CONGESTED_BYTES: Final = 524_288

#: Bytes waiting in the transport above which consumers of the connection get no more.
_HIGH_WATER: Final = 1_048_576

#: Bytes waiting for the client above which its requests wait too: a client that never reads the answers would fill
#: the memory. A client that writes much before it reads must not be held up, so it is more than such a one needs.
_OVERFULL_BYTES: Final = 33_554_432


class Output:
    """The outgoing half of a connection.

    Args:
        turn: Calls flush() at the end of the turn.
        transport: The socket.

    Attributes:
        parts: Output of this turn, in order. Code that appends to it directly calls sent() afterwards.
        congested: Consumers must wait until output has drained.
        overfull: So must requests.
        resume: Called once when it is no longer overfull; set by the code that stops reading.
        stalled: Consumers that found it congested.
        confirming: Channels with confirms to send.
        counters: Bytes read and written.
        wrote: Something was written since someone last cleared this.
        scheduled: Whether flush() is due at the end of the turn; kept by Turn.
    """

    __slots__ = (
        "_bytes",
        "_held",
        "_paused",
        "_transport",
        "_turn",
        "confirming",
        "congested",
        "counters",
        "overfull",
        "parts",
        "resume",
        "scheduled",
        "stalled",
        "wrote",
    )

    def __init__(self, turn: Turn, transport: asyncio.Transport) -> None:
        self._turn = turn
        self._transport = transport
        self._bytes = 0
        self._paused = False
        self._held = False
        self.parts: list[bytes] = []
        self.counters = ConnectionCounters()
        self.congested = self.overfull = False
        self.resume: Callable[[], None] | None = None
        self.stalled: list[ChannelConsumer] = []
        self.confirming: set[Channel] = set()
        self.wrote = False
        self.scheduled = False
        transport.set_write_buffer_limits(high=_HIGH_WATER)

    def send(self, frame: bytes) -> None:
        """Send at the end of the turn."""
        self.parts.append(frame)
        self.sent(len(frame))

    def sent(self, byte_count: int) -> None:
        """Account for what was appended to ``parts``, and send it at the end of the turn."""
        self._bytes += byte_count
        if self._bytes > _CONGESTED_BYTES:
            self.congested = True
            self.overfull = self._bytes > _OVERFULL_BYTES
        if not self.scheduled:
            self._turn.flush_later(self)

    def confirm(self, channel: Channel) -> None:
        """Send the confirms of a channel at the end of the turn."""
        self.confirming.add(channel)
        if not self.scheduled:
            self._turn.flush_later(self)

    def pending_bytes(self) -> int:
        """Bytes that the client has yet to take."""
        return self._transport.get_write_buffer_size()

    def hold(self) -> None:
        """Send nothing but heartbeats until release() is called: what is answered is not on disk yet."""
        self._held = True

    def release(self) -> None:
        """Send what has been held."""
        self._held = False
        if not self.scheduled:
            self._turn.flush_later(self)

    def send_heartbeat(self, frame: bytes) -> None:
        """Send a heartbeat at once; it is held by nothing."""
        if self._held:
            # Between whole frames: nothing of what is held has been written.
            self._transport.write(frame)
        else:
            self.send(frame)
            self.flush()

    def flush(self) -> None:
        """Write everything at once, and let consumers go on that waited for room."""
        if self._held:
            return
        if self.confirming:
            for channel in self.confirming:
                channel.flush_confirms()
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
            self._go_on()

    def pause(self) -> None:
        """The client reads slower than we write."""
        self._paused = self.congested = True

    def unpause(self) -> None:
        """The client has caught up."""
        self._paused = False
        self._go_on()

    def _go_on(self) -> None:
        """There is room again for consumers, and for answers."""
        self.congested = self.overfull = False
        if self.stalled:
            stalled, self.stalled = self.stalled, []
            for consumer in stalled:
                consumer.queue.unblock(consumer)
        if self.resume is not None:
            resume, self.resume = self.resume, None
            resume()
