"""The consumers of a stream: each reads from a place of its own, perhaps only what passes a filter.

RabbitMQ compares a Bloom filter for each batch, so its clients have to compare again. Here each message is compared.

Source: https://www.rabbitmq.com/docs/streams#filtering
"""

from __future__ import annotations

import struct
from collections import OrderedDict
from collections.abc import Sequence
from typing import Final

from leveret.broker.core.counters.counters import QueueCounters
from leveret.broker.core.queues.consumer_names import ConsumerNames
from leveret.broker.core.queues.consumers import ConsumerGroup, QueueConsumer
from leveret.broker.core.scheduling.turn import TimeSlice
from leveret.protocol.header_scan import locate_header
from leveret.storage.interface import Entry
from leveret.storage.message import Envelope
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
