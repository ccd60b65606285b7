"""Replays a stream: publishes copies of its messages, which stay where they are.

The messages go out in the order of their offsets. Each copy says where it comes from: x-replayed-from has the name of
the stream, x-replayed-offset the offset.

A job remembers the number up to which all copies are on disk. After a crash it goes on from there, so what it has sent
since the number was stored last is sent again: at least once, never less.
"""

from __future__ import annotations

import struct
from typing import Final

from leveret.broker.core.messages import AnsweredPublisher, Origin, published_to
from leveret.broker.core.queues.stream_queue import StreamQueue, number_at
from leveret.broker.core.scheduling.turn import TimeSlice
from leveret.broker.operations import queues
from leveret.broker.operations.jobs.job_options import JobOptions, Replay
from leveret.broker.operations.jobs.plans import DAMAGED, FULL, REMOVED, Counts, Plan, Room, SelectingWork, changed
from leveret.broker.operations.principal import Principal
from leveret.broker.operations.publishing import find_exchange
from leveret.protocol.faults import precondition_failed
from leveret.protocol.field_table import longstr, normalize
from leveret.protocol.header_scan import split_for_offset
from leveret.protocol.properties import HEADERS, Properties, encode_headers
from leveret.storage.interface import Seen
from leveret.storage.message import Envelope, Message
from leveret.storage.stores.stream_store import FIRST_NUMBER

#: Headers of a copy: the name of the stream, and the offset there.
FROM: Final = "x-replayed-from"
OFFSET: Final = "x-replayed-offset"
#: Messages, and bytes of their bodies, that are read at once.
_LOOK: Final = 64
_LOOK_BYTES: Final = 1 << 20
_VALUE: Final = struct.Struct(">q")


class ReplayWork(SelectingWork):
    """Replays a stream.

    Args:
        principal: See Work.
        source: The stream.
        options: What is replayed, and where to.
        number: Number of the next message.
        end: Number after the last one.
        counts: See Work.
    """

    source: StreamQueue

    def __init__(
        self, principal: Principal, source: StreamQueue, options: JobOptions, number: int, end: int, counts: Counts
    ) -> None:
        super().__init__(principal, source, options, counts, number)
        self._end = end
        self._marker = _Marker(source.name)
        self.is_over = number >= end

    def step(self, most: int, takes: bool = True, time_slice: TimeSlice | None = None) -> int:
        """Look at messages for a time slice, and send those that match; see Work.step()."""
        most = self._limited(most)
        time_slice = time_slice or self.source.host.turn.slice()
        self.waits = ""
        sent = 0
        while sent < most and not self.is_over and not self.waits:
            sent += self._look(most - sent, takes, time_slice)
            self.is_over = self.number >= self._end
            if time_slice.is_over():
                break
        self.counts.returned += sent
        self.is_over = self.is_over or self._is_at_limit
        return sent

    def _look(self, most: int, takes: bool, time_slice: TimeSlice) -> int:
        """Look at some messages, and send those that match; return their number."""
        self._pass_removed()
        ((_, level),) = self.source.store.ordered_levels()
        found = level.look(self.number, min(_LOOK, self._end - self.number), _LOOK_BYTES)
        sent = 0
        for at, seen in enumerate(found.seen):
            if not self._pass_damaged(min(seen.seq, self._end), found.failure):
                return sent
            if seen.seq >= self._end or sent == most or (at and time_slice.is_over()):
                return sent
            wanted = self._wants(seen, time_slice)
            if wanted is None:
                return sent
            if wanted:
                sent += self._handle(seen, takes)
            if self.waits:
                return sent
            self.counts.scanned += 1
            self.number = seen.seq + 1
        self._pass_damaged(min(found.end, self._end), found.failure)
        return sent

    def _pass_removed(self) -> None:
        """Go on to the first message that is there; count those before it, which were removed meanwhile."""
        first = min(self._end, self.source.stream.first_number)
        if first > self.number:
            self.counts.miss(REMOVED, first - self.number)
            self.number = first

    def _pass_damaged(self, number: int, failure: OSError | None) -> bool:
        """Go on to a number; count the messages before it, which are damaged.

        Args:
            failure: Why the system could not read some messages; None if it could.
        Returns:
            False, and sets `waits`, if the messages may be readable later.
        """
        if number > self.number:
            damaged = self.source.stream.count_between(self.number, number)
            if damaged and failure is not None:
                self.waits = f"{self.source.name}: messages cannot be read for now: {failure.strerror or failure}"
                return False
            if damaged:
                self.counts.miss(DAMAGED, damaged)
            self.number = number
        return True

    def _wants(self, seen: Seen, time_slice: TimeSlice) -> bool | None:
        """Return whether a message matches; None to continue later."""
        now, selector = self.source.host.timers.now(), self._selector
        wanted = selector.wants(seen.seq, seen.message, seen.arrived, now, time_slice)
        if selector.problem and wanted is not None:
            self.counts.miss(selector.problem, 1)
        return wanted

    def _handle(self, seen: Seen, takes: bool) -> int:
        """Send a message that matches; return the number of messages sent. Sets `waits` if there is no room."""
        message, counts = seen.message, self.counts
        plan, room = self._planner.plan(message), Room() if takes else self._dry_room
        problem = plan.problem or ("" if room.reserve(plan.queues, len(message.body)) else FULL)
        if problem == FULL and takes:
            self.waits = f"{plan.target}: {FULL}"
            return 0
        counts.count_origin(plan.target, f"key '{published_to(message.envelope)[1]}'")
        if not problem and takes and not self._publish(message, seen.seq, plan):
            problem = FULL
        if problem:
            counts.leave(plan, problem)
        return 0 if problem else 1

    def _publish(self, message: Message, number: int, plan: Plan) -> bool:
        """Publish a copy; return whether all queues have taken it."""
        copies = [Message(self._marker.mark(plan.envelope, number), message.body)]
        publisher = AnsweredPublisher(Origin("", 0, self._principal.user.name))
        taken = min([queue.publish(copies, len(message.body), publisher) for queue in plan.queues])
        for history in plan.histories:
            history.remember(copies)
        return bool(taken)


class _Marker:
    """Adds the headers that say where a copy comes from."""

    def __init__(self, stream: str) -> None:
        self._stream = longstr(stream)
        self._envelope: Envelope | None = None
        self._before = self._after = b""

    def mark(self, envelope: Envelope, number: int) -> Envelope:
        """Return the envelope of a copy.

        Args:
            number: Number of the message in the stream.
        """
        if self._envelope is not envelope:
            self._envelope = envelope
            published = Properties(envelope.header)
            others = tuple(entry for entry in published.headers() if entry[0] != FROM)
            named = published.replaced({HEADERS: encode_headers(normalize(((FROM, self._stream), *others)))})
            self._before, self._after = split_for_offset(named, OFFSET.encode())
        header = self._before + _VALUE.pack(number - FIRST_NUMBER) + self._after
        return changed(envelope, envelope.route, header)


def open_for_replay(principal: Principal, name: str, options: JobOptions, replay: Replay) -> StreamQueue:
    """Find a stream that the principal may replay.

    Raises:
        ChannelFault: ACCESS_REFUSED (403): no read permission on the stream, or no write permission on the queue or
            exchange. NOT_FOUND (404): one of them does not exist. RESOURCE_LOCKED (405): the queue is exclusive.
            PRECONDITION_FAILED (406): it is no stream, or its own target.
    """
    source = queues.open_for_reading(principal, name)
    where = f"queue '{name}' in vhost '{principal.vhost.name}'"
    if not isinstance(source, StreamQueue):
        raise precondition_failed(f"{where} is no stream: move_messages and return_messages are for queues")
    if replay.exchange is not None:
        find_exchange(principal, replay.exchange)
    elif options.to is not None:
        principal.check("write", "queue", options.to)
        if principal.vhost.queue(options.to, None) is source:
            raise precondition_failed(f"{where} is source and target")
    return source


def numbers_of(source: StreamQueue, replay: Replay) -> tuple[int, int]:
    """Return the number of the first message of a replay, and the one after the last one.

    It ends with what is there now, so that a replay that comes back to its stream ends, too.
    """
    now, stream, there = source.host.timers.now(), source.stream, source.readers.readable_end
    number = stream.resolve(number_at(stream, replay.begin, now))
    return number, max(number, min(there, number_at(stream, replay.end, now)))
