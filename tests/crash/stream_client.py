"""A client with a stream: it publishes, reads, and goes on reading where its name has left off."""

from __future__ import annotations

import random
import time
from collections import Counter
from typing import Final

from tests.conformance.streams import offset
from tests.crash.broker_load import number_of
from tests.crash.comparison import End
from tests.crash.confirmed_publisher import ConfirmedPublisher
from tests.support.leveret_process import LeveretProcess
from tests.support.management import Management
from tests.support.tables import Triple
from tests.support.wire import Channel, ChannelClosed, Connection, Delivery

_PATIENCE: Final = 120.0
_ARGUMENTS: Final[list[Triple]] = [
    ("x-queue-type", "S", "stream"),
    ("x-stream-max-segment-size-bytes", "l", 100_000),
]
_FIRST: Final[Triple] = ("x-stream-offset", "S", "first")
_NAME: Final[Triple] = ("x-stream-consumer-name", "S", "reader")
#: A stream with more messages than this is deleted, and another one is declared.
_MOST: Final = 3_000


class StreamClient:
    """One connection with a stream."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._streams = 0
        self.may_be_refused = False
        self.counts: Counter[str] = Counter()
        self._begin()

    def _begin(self) -> None:
        self._streams += 1
        self._stream = f"stream-{self._streams}"
        self._number = 0
        self.confirmed: set[int] = set()
        #: The number of the message at each offset that was delivered, which is what has been synced.
        self._seen: dict[int, int] = {}
        #: Whether power was lost: messages that were not synced may be missing in front of others.
        self._has_gaps = False
        #: The offset after the highest one that the name was delivered.
        self._reached = 0

    def connect(self, url: str, management: Management) -> None:
        """Begin (again): connect, declare, consume."""
        self._connection = Connection(url, timeout=_PATIENCE)
        channel = self._connection.channel()
        if self._number > _MOST:
            channel.queue_delete(self._stream)
            self._begin()
        channel.queue_declare(self._stream, durable=True, arguments=_ARGUMENTS)
        self._publisher = ConfirmedPublisher(self._connection.channel(), self.confirmed, self.may_be_refused)
        self._reader = self._connection.channel()
        self._reader.qos(200)
        self._reader.consume(self._stream, arguments=[_NAME, *([] if self._reached else [_FIRST])])

    def disconnect(self) -> None:
        """End the connection without connection.close."""
        self.counts["stream: confirmed"] += self._publisher.acknowledged
        self._connection.abort()

    def work(self) -> None:
        """Publish some messages, or read some."""
        if self._random.random() < 0.5:
            for _ in range(self._random.randrange(1, 40)):
                self._number += 1
                self._publisher.publish(self._number, "", self._stream)
            self._publisher.wait(self._random.choice((0, 50)))
        else:
            for _ in range(self._random.randrange(1, 40)):
                try:
                    self._read(self._reader.next_delivery(0.01))
                except TimeoutError:
                    break

    def _read(self, delivery: Delivery) -> None:
        at = self._see(delivery)
        # Acknowledgements may be lost, so it may be delivered what it has had. But nothing is left out.
        if at > self._reached:
            between = [each for each in self._seen if self._reached <= each < at]
            is_next = self._has_gaps and not between
            assert is_next, f"{self._stream}: offset {at} comes after {self._reached - 1}"
        self._reached = max(self._reached, at + 1)
        assert delivery.delivery_tag is not None
        self._reader.ack(delivery.delivery_tag)

    def _see(self, delivery: Delivery) -> int:
        """Note the place of a message, which must be the one it has had before; return the offset."""
        number, at = number_of(delivery), offset(delivery)
        before = self._seen.setdefault(at, number)
        assert before == number, f"{self._stream}: offset {at} was {before} and is {number}"
        return at

    def compare(self, process: LeveretProcess, end: End) -> None:
        """Compare the stream with what was promised and what was delivered, after the broker's end."""
        with Connection(process.url, timeout=_PATIENCE) as connection:
            found = [(self._see(delivery), number_of(delivery)) for delivery in self._all(connection.channel())]
        offsets, numbers = [at for at, _ in found], [number for _, number in found]
        is_whole = offsets == [*range(len(found))]
        self._has_gaps = self._has_gaps or end is End.POWER
        assert is_whole or self._has_gaps, f"{self._stream}: offsets are missing: {offsets}"
        assert sorted(set(numbers)) == numbers, f"{self._stream}: another order, or twice: {numbers}"
        assert len(self._seen) == len(found), f"{self._stream}: {len(self._seen)} delivered, {len(found)} there"
        missing = self.confirmed.difference(numbers)
        assert not missing, f"{self._stream}: confirmed and lost: {sorted(missing)}"
        self.counts["stream: found"] += len(found)

    def missing(self, process: LeveretProcess) -> int:
        """Return how many confirmed messages are missing, as after damage."""
        with Connection(process.url, timeout=_PATIENCE) as connection:
            try:
                there = {number_of(delivery) for delivery in self._all(connection.channel())}
            except ChannelClosed:
                there = set()
        return len(self.confirmed - there)

    def _all(self, channel: Channel) -> list[Delivery]:
        """Return all messages of the stream; damaged ones count until they are found."""
        deadline = time.monotonic() + _PATIENCE
        channel.qos(65_535)
        channel.consume(self._stream, arguments=[_FIRST])
        while len(channel.pending) < channel.queue_declare(self._stream, passive=True).message_count:
            assert time.monotonic() < deadline, f"{self._stream}: only {len(channel.pending)} messages are delivered"
        deliveries = channel.deliveries(len(channel.pending))
        channel.expect_no_delivery(self._stream)
        return deliveries
