"""The consumers of a stream: each reads from a place of its own."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from leveret.broker.core.counters.counters import QueueCounters
from leveret.broker.core.queues.consumer_names import ConsumerNames
from leveret.broker.core.queues.consumers import ConsumerGroup, QueueConsumer
from leveret.broker.core.queues.stream_filter import StreamFilter
from leveret.broker.core.scheduling.time_slice import TimeSlice
from leveret.storage.stores.stream_store import FIRST_NUMBER, StreamReader, StreamStore

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
        counters: Counters of the stream.
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
            consumer: The consumer.
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
