"""Streams: queues whose messages stay when they are consumed.

Each consumer reads from a place of its own, perhaps only what passes a filter. RabbitMQ compares a Bloom filter for
each batch, so its clients have to compare again. Here each message is compared.

Sources: https://www.rabbitmq.com/docs/streams, https://www.rabbitmq.com/docs/streams#filtering
"""

from __future__ import annotations

import struct
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Final

from leveret.broker.core.counters.counters import QueueCounters
from leveret.broker.core.message_stores import WriteFailures
from leveret.broker.core.messages import Publisher
from leveret.broker.core.queues.consumer_names import ConsumerNameLog, ConsumerNames
from leveret.broker.core.queues.queue import (
    ConsumerGroup,
    Drop,
    Queue,
    QueueConsumer,
    QueueDeclaration,
    QueueHost,
    Release,
    UnackedHolder,
)
from leveret.broker.core.queues.traits import STREAM
from leveret.broker.core.scheduling.timers import Timers
from leveret.broker.core.scheduling.turn import PeriodicWork, TimeSlice
from leveret.policies.policy import Policy
from leveret.policies.queue_settings import DEFAULT_SETTINGS, QueueSettings, effective_settings
from leveret.policies.stream_arguments import Begin, StreamPlace
from leveret.policies.value_checks import age_seconds
from leveret.protocol.field_table import plain_values
from leveret.protocol.header_scan import locate_header
from leveret.storage.backings import LevelBacking, QueueBacking
from leveret.storage.callbacks import call_each
from leveret.storage.interface import Entry
from leveret.storage.message import Envelope, Message
from leveret.storage.stores.segment_store import SegmentStore
from leveret.storage.stores.stream_store import FIRST_NUMBER, StreamReader, StreamStore

#: The header as it is encoded.
_NAME: Final = bytes((len("x-stream-filter-value"),)) + b"x-stream-filter-value"
_STRING: Final = ord("S")
_U32: Final = struct.Struct(">I")


class StreamFilter:
    """Which messages of a stream a consumer wants.

    Args:
        values: Wanted values.
        takes_unfiltered: Whether messages without a value are wanted too.
    """

    __slots__ = ("_envelope", "_takes_unfiltered", "_values", "_wants")

    def __init__(self, values: frozenset[bytes], takes_unfiltered: bool) -> None:
        self._values = values
        self._takes_unfiltered = takes_unfiltered
        #: The last envelope, and whether its messages are wanted.
        self._envelope: Envelope | None = None
        self._wants = False

    def select(self, entries: Sequence[Entry]) -> list[Entry]:
        """Return the wanted ones of some messages."""
        selected: list[Entry] = []
        for entry in entries:
            envelope = entry[1].envelope
            if envelope is not self._envelope:
                self._envelope = envelope
                self._wants = self._wants_header(envelope.header)
            if self._wants:
                selected.append(entry)
        return selected

    def _wants_header(self, header: bytes) -> bool:
        value = filter_value(header)
        return self._takes_unfiltered if value is None else value in self._values


def filter_value(header: bytes) -> bytes | None:
    """Return the value of the header x-stream-filter-value; None if there is none, or it is empty or no string.

    Args:
        header: The content header of a message.
    """
    at = locate_header(header, _NAME)
    if at < 0 or header[at] != _STRING:
        return None
    start = at + 1 + _U32.size
    return header[start : start + int(_U32.unpack_from(header, at + 1)[0])] or None


#: Messages and bytes that a consumer gets before the next one has its turn.
_RUN_MESSAGES: Final = 256
_RUN_BYTES: Final = 262_144
#: Messages that are compared with a filter at once, at least.
_FILTERED_MIN: Final = 16


class StreamReaders:
    """Delivers the messages of a stream to its consumers.

    Args:
        stream: The messages.
        consumers: The consumers; those in its ring are not blocked.
        names: The consumers that have names.

    Attributes:
        readable_end: Number after the last message that may be delivered.
    """

    __slots__ = (
        "_consumers", "_counters", "_filters", "_names", "_places", "_ready", "_stream", "_waiting", "readable_end",
    )  # fmt: skip

    def __init__(
        self, stream: StreamStore, consumers: ConsumerGroup, counters: QueueCounters, names: ConsumerNames
    ) -> None:
        self._stream = stream
        self._names = names
        self._consumers = consumers
        self._counters = counters
        self._places: dict[QueueConsumer, StreamReader] = {}
        #: Those of the consumers that have one, also of those that wait for their turn.
        self._filters: dict[QueueConsumer, StreamFilter] = {}
        #: Consumers that may have credit and messages to read.
        self._ready: OrderedDict[QueueConsumer, None] = OrderedDict()
        #: Consumers that may have credit and have read everything.
        self._waiting: dict[QueueConsumer, None] = {}
        self.readable_end = stream.next_number

    def add(self, consumer: QueueConsumer, number: int) -> None:
        """Add a consumer.

        Args:
            number: Number of the first message that it gets.
        """
        self._places[consumer] = self._stream.reader_at(number)
        self._ready[consumer] = None
        self._stream.keeps_tail = True

    def set_filter(self, consumer: QueueConsumer, wanted: StreamFilter) -> None:
        """Give a consumer, which is to be added, only messages that pass a filter."""
        self._filters[consumer] = wanted

    def remove(self, consumer: QueueConsumer) -> None:
        """Remove a consumer."""
        self._filters.pop(consumer, None)
        self._ready.pop(consumer, None)
        self._waiting.pop(consumer, None)
        place = self._places.pop(consumer, None)
        if place is not None:
            place.release()
        if not self._places:
            self._stream.end_reading()

    def clear(self) -> None:
        """Remove all consumers."""
        for place in self._places.values():
            place.release()
        self._places.clear()
        self._filters.clear()
        self._ready.clear()
        self._waiting.clear()
        self._stream.end_reading()

    def unblock(self, consumer: QueueConsumer) -> None:
        """Serve a consumer again that was blocked without credit."""
        self._ready[consumer] = None

    def extend(self, end: int) -> bool:
        """Allow more messages to be delivered; return whether a consumer waits for them.

        Args:
            end: Number after the last one.
        """
        if end <= self.readable_end:
            return False
        self.readable_end = end
        self.resume()
        return bool(self._ready)

    def resume(self) -> None:
        """Let consumers read again that wait."""
        self._ready.update(self._waiting)
        self._waiting.clear()

    def serve(self, time_slice: TimeSlice) -> bool:
        """Deliver while time is left; return whether no consumer has both credit and messages to read."""
        ready = self._ready
        while ready:
            consumer = next(iter(ready))
            if self._serve_one(consumer):
                ready.move_to_end(consumer)
            else:
                ready.pop(consumer, None)
            if ready and time_slice.is_over():
                return False
        return True

    def _serve_one(self, consumer: QueueConsumer) -> bool:
        """Deliver some messages to a consumer; return whether it may get more."""
        credit = consumer.credit()
        if credit <= 0:
            self._consumers.ring.block(consumer)
            return False
        place, wanted = self._places[consumer], self._filters.get(consumer)
        # With a filter some more are read, but not many that would be read again.
        most = credit if wanted is None else 2 * credit + _FILTERED_MIN
        entries = place.read(min(most, _RUN_MESSAGES), _RUN_BYTES, self.readable_end)
        if not entries:
            self._waiting[consumer] = None
            return False
        if wanted is not None:
            entries = wanted.select(entries)
            if len(entries) > credit:
                del entries[credit:]
                place.number = entries[-1][0] + 1
            if not entries:
                if self._names.by_name:
                    self._names.passed(consumer, place.number)
                return True
        self._counters.delivered += len(entries)
        consumer.deliver(entries, sum([len(message.body) for _, message, _ in entries]))
        if self._names.by_name:
            self._names.delivered(consumer, entries)
        return True

    def place_of(self, consumer: QueueConsumer) -> tuple[int, int]:
        """Return the offset that a consumer reads next, and how many offsets there are from there on."""
        place = self._places.get(consumer)
        if place is not None:
            return self.distance(place.number)
        # It may wait for its turn.
        name = self._names.name_of(consumer)
        return self.distance(self._stream.next_number if name is None else name.next)

    def distance(self, number: int) -> tuple[int, int]:
        """Return the offset of the first message from a number on, and how many offsets there are from there on."""
        first, end = self._stream.offsets
        offset = max(first, number - FIRST_NUMBER)
        return offset, max(0, end - offset)


def number_at(stream: StreamStore, place: StreamPlace, now: int) -> int:
    """Return the number of the first message from a place on, which may be one of the future.

    Args:
        place: The place. An offset before the first one is that of the first one.
        now: Microseconds since 1970.
    """
    begin, value = place
    if begin is Begin.FIRST:
        return FIRST_NUMBER
    if begin is Begin.LAST:
        return stream.last_batch()
    if begin is Begin.NEXT:
        return stream.next_number
    if begin is Begin.OFFSET:
        return max(FIRST_NUMBER, value + FIRST_NUMBER)
    return stream.number_at(value if begin is Begin.TIME else now - value)


#: Seconds until messages that could not be written are looked at again.
_RETRY_SECONDS: Final = 1.0
#: Seconds between two parts of a long removal.
_PAUSE_SECONDS: Final = 0.02
_SECOND: Final = 1_000_000
_NEXT: Final = StreamPlace(Begin.NEXT)


class StreamQueue(Queue):
    """A stream.

    Messages are delivered when they are synced, so that a consumer never sees one that a crash could take back.

    Args:
        host: The virtual host.
        backing: Where its messages are kept: in a data directory.
        await_sync: Notifies a waiter when everything of this turn is synced; see MessageStores.await_sync().
        open_names: Opens the store of its consumers' names; see ConsumerNameLog.

    Attributes:
        stream: Its messages.
        readers: Delivers them to its consumers.
        names: Those of its consumers that have names.
    """

    __slots__ = ("_await_sync", "_is_awaiting", "_settings", "names", "readers", "stream")

    def __init__(
        self,
        host: QueueHost,
        declaration: QueueDeclaration,
        backing: QueueBacking,
        await_sync: Callable[[Any], None],
        open_names: Callable[[bool], LevelBacking | None],
    ) -> None:
        super().__init__(host, declaration, backing, STREAM)
        self._settings = DEFAULT_SETTINGS
        store, size = backing.store, backing.stream_segment_bytes
        assert isinstance(store, SegmentStore)
        assert size is not None
        self.stream: StreamStore = StreamStore(store, size)
        where = f"queue '{self.name}' in vhost '{host.name}'"
        self.names: ConsumerNames = ConsumerNames(where, self.stream, ConsumerNameLog(open_names), host.timers)
        self.readers: StreamReaders = StreamReaders(self.stream, self.consumers, self.counters, self.names)
        self._await_sync = await_sync
        self._is_awaiting = False

    @property
    def settings(self) -> QueueSettings:
        """The effective settings, merged from arguments and policies."""
        return self._settings

    def ready_count(self) -> int:
        """Return the number of messages."""
        return self.stream.count

    def excess(self, settings: QueueSettings) -> Drop:
        """Return what retention would remove at once if these were the settings."""
        removed = self.stream.excess(*retention_limits(settings, self.host.timers.now()))
        return Drop(removed.messages, removed.body_bytes)

    # -- publishing ---------------------------------------------------------------------------------------

    def publish(self, messages: Sequence[Message], body_bytes: int, publisher: Publisher | None = None) -> int:
        """Append messages; all are accepted."""
        self.publish_varied(messages, body_bytes, len(messages[0].body))
        return len(messages)

    def publish_varied(self, messages: Sequence[Message], body_bytes: int, longest: int) -> None:
        """Append messages with different headers and sizes."""
        self.stream.append(messages, body_bytes, longest)
        self.counters.published += len(messages)
        self._await()

    def _await(self) -> None:
        if not self._is_awaiting:
            self._is_awaiting = True
            self._await_sync(self)

    def written(self, failures: WriteFailures) -> Callable[[], None] | None:
        """Apply the limits if a file is full; return what is called when the messages of this turn are synced."""
        self._is_awaiting = False
        if self.deleted:
            return None
        if failures.concern([self]):
            self.host.timers.call_later(_RETRY_SECONDS, self._await_again)
        if self.stream.has_rolled():
            self.retain()
        return partial(self._synced, self.stream.written_end)

    def _await_again(self) -> None:
        if not self.deleted:
            self._await()

    def _synced(self, end: int) -> None:
        if self.readers.extend(end) and not self.deleted:
            self.host.turn.deliver_later(self)

    # -- delivering ---------------------------------------------------------------------------------------

    def deliver(self) -> None:
        """Deliver until no consumer has credit and messages to read; continue in the next turn if it takes too long."""
        if self.deleted:
            return
        if not self.readers.serve(self.host.turn.slice()):
            self.host.turn.deliver_later(self)
        if self.names.has_changed:
            self.names.write()

    def resume(self) -> None:
        """Deliver messages that the system could not read for a while."""
        self.backing.look_again()
        self.host.turn.deliver_later(self)

    def single_active(self, consumer: QueueConsumer) -> tuple[bool, QueueConsumer | None]:
        """Return whether a consumer has a name, and which one of that name reads; see Queue."""
        name = self.names.name_of(consumer)
        return (False, None) if name is None else (True, name.active)

    # -- settling -----------------------------------------------------------------------------------------

    def release(self, holder: UnackedHolder, entries: Sequence[Entry], why: Release = "settled") -> None:
        """Give a consumer its credit back; note how far its name has read."""
        holder.unacked -= len(entries)
        if self.names.by_name:
            if why == "abandoned":
                self.names.abandon(holder)
            else:
                self.names.settled(holder, entries, why == "returned")
                self._write_names()

    def _write_names(self) -> None:
        if self.names.has_changed:
            self.host.turn.deliver_later(self)

    def acknowledge(self, entries: Sequence[Entry]) -> None:
        """Count acknowledged messages, which stay."""
        self.counters.acknowledged += len(entries)

    def reject(self, entries: Sequence[Entry]) -> None:
        """Count rejected messages as acknowledged, as RabbitMQ does from 3.13 on: they stay."""
        self.counters.acknowledged += len(entries)

    def requeue(self, entries: Sequence[Entry], abandoned: bool = False, failed: bool = False) -> None:
        """Count requeued messages as acknowledged, unless they are abandoned: they stay."""
        if not abandoned:
            self.counters.acknowledged += len(entries)

    # -- consumers ----------------------------------------------------------------------------------------

    def add_consumer(
        self,
        consumer: QueueConsumer,
        place: StreamPlace | None = None,
        name: str = "",
        wanted: StreamFilter | None = None,
    ) -> None:
        """Add a consumer; it gets its first messages at the end of the turn.

        Args:
            place: Where it begins. None: where its name has left off, otherwise with the next message.
            name: Its name; empty for none.
            wanted: Its filter; None for all messages.
        Raises:
            ChannelFault: PRECONDITION_FAILED (406): there are too many names.
            ConnectionFault: RESOURCE_ERROR (506): the name cannot be stored.
        """
        number: int | None = None
        if place is not None or not name:
            number = number_at(self.stream, place or _NEXT, self.host.timers.now())
        if name:
            number = self.names.join(consumer, name, number)
        self.consumers.add(consumer)
        if wanted is not None:
            self.readers.set_filter(consumer, wanted)
        if number is not None:
            self.readers.add(consumer, number)
        self.host.turn.deliver_later(self)

    def remove_consumer(self, consumer: QueueConsumer) -> None:
        """Remove a consumer; the next one of its name takes over. Its unacked messages stay with the channel."""
        if self.deleted:
            return
        self.consumers.remove(consumer)
        self.readers.remove(consumer)
        successor = self.names.leave(consumer) if self.names.by_name else None
        if successor is not None:
            self.readers.add(*successor)
            self.host.turn.deliver_later(self)

    def set_name(self, name: str, place: StreamPlace) -> None:
        """Set a name without an active consumer to a place; add it if it is unknown. For what is raised see above."""
        self.names.set(name, number_at(self.stream, place, self.host.timers.now()))
        self._write_names()

    def delete_name(self, name: str) -> None:
        """Delete a name without an active consumer."""
        self.names.delete(name)
        self._write_names()

    def unblock(self, consumer: QueueConsumer) -> None:
        """Serve a consumer again that was blocked without credit."""
        if consumer.blocked and not self.deleted:
            self.consumers.unblock(consumer)
            self.readers.unblock(consumer)
            self.host.turn.deliver_later(self)

    # -- settings and limits ------------------------------------------------------------------------------

    def apply_policies(self, policy: Policy | None, operator_policy: Policy | None, merged: dict[str, Any]) -> None:
        """Apply policies, and limits immediately; see Queue."""
        self.policy, self.operator_policy = policy, operator_policy
        new = effective_settings(self.queue_type, plain_values(self.arguments), merged)
        if new != self.settings:
            self._settings = new
            self.retain()

    def retain(self) -> None:
        """Remove the oldest segments as far as they exceed the limits; very many in parts."""
        most_bytes, oldest = retention_limits(self.settings, self.host.timers.now())
        if self.deleted or (most_bytes is None and oldest is None):
            return
        unread = self.names.count_unread() if self.names.by_name else None
        removed = self.stream.retain(most_bytes, oldest).messages
        if removed:
            self.counters.outlived += removed
            if unread:
                self.names.count_missed(unread)
                self._write_names()
            # The rest, if any, once other clients have been served.
            self.host.timers.call_later(_PAUSE_SECONDS, self.retain)

    def tidy(self) -> None:
        """Apply the limits, and free memory that is no longer used; called every few seconds.

        What the system could not read is read again.
        """
        self.retain()
        self.stream.idle()
        if self.stream.has_stalled:
            self.stream.has_stalled = False
            self.readers.resume()
            self.host.turn.deliver_later(self)

    def delete(self) -> int:
        """Delete the messages and cancel the consumers; return the number of messages."""
        count = self.stream.count
        self.deleted = True
        self.readers.clear()
        self.names.close()
        self.backing.delete()
        call_each([consumer.cancelled for consumer in self.consumers.clear()], "after a queue was deleted")
        return count


def retention_limits(settings: QueueSettings, now: int) -> tuple[int | None, int | None]:
    """Return the limits of a stream with these settings: bytes, and the time before which messages may be removed.

    Args:
        now: Microseconds since 1970.
    Returns:
        None for a limit that is not set.
    """
    age = None if settings.max_age is None else age_seconds(settings.max_age)
    return settings.max_length_bytes, None if age is None else now - age * _SECOND


_UPKEEP_SECONDS: Final = 5.0


class StreamUpkeep:
    """The streams of a virtual host, which are looked at every few seconds."""

    def __init__(self, timers: Timers) -> None:
        self._streams: dict[Queue, StreamQueue] = {}
        self._work = PeriodicWork(timers, lambda: _UPKEEP_SECONDS, self._steps, "the limits of streams were applied")

    def add(self, stream: StreamQueue) -> None:
        """Look at a stream from now on."""
        if not self._streams:
            self._work.start()
        self._streams[stream] = stream

    def remove(self, queue: Queue) -> None:
        """Forget a deleted queue, which may be a stream."""
        if self._streams.pop(queue, None) is not None and not self._streams:
            self._work.stop()

    def _steps(self) -> Iterator[None]:
        for stream in list(self._streams.values()):
            if not stream.deleted:
                stream.tidy()
            yield
