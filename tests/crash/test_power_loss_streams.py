"""Power that goes while a stream is written to: what was confirmed or delivered is there, under its offset."""

from __future__ import annotations

import random
from typing import Final

import pytest

from leveret.policies.stream_offset import Begin, StreamPlace
from leveret.storage.engine import EngineOptions
from leveret.storage.format import SEGMENT_HEADER_BYTES
from leveret.storage.message import Message
from tests.crash.power_cuts import check_power_cuts
from tests.support.fake_consumer import FakeConsumer
from tests.support.messages import ENVELOPE
from tests.support.queues import settle
from tests.support.simulated_files import SimulatedFiles
from tests.support.streams import StreamBroker, number

_NAME: Final = "reader"
_ARGUMENTS: Final = (number("x-stream-max-segment-size-bytes", 4000), number("x-max-length-bytes", 30_000))


def _attach(broker: StreamBroker) -> FakeConsumer:
    consumer = FakeConsumer(broker.stream, "c", 1 << 40)
    broker.stream.add_consumer(consumer, StreamPlace(Begin.FIRST))
    return consumer


class StreamLoad:
    """Publishes, consumes, and knows what has been promised."""

    def __init__(self, files: SimulatedFiles, options: EngineOptions) -> None:
        self._options = options
        self.broker = StreamBroker(files, _ARGUMENTS, options, commits_later=True)
        self.engine = self.broker.engine
        self.confirmed: set[bytes] = set()
        self._published = 0
        self._consumer = _attach(self.broker)
        self._named = FakeConsumer(self.broker.stream, "named", 40)
        self.broker.stream.add_consumer(self._named, StreamPlace(Begin.FIRST), _NAME)
        #: Where the name goes on at least: what was there when a message was confirmed.
        self._kept_next = 0

    def turn(self, rng: random.Random) -> None:
        """Publish something, and end the turn."""
        broker = self.broker
        for _ in range(rng.choice((0, 1, 5))):
            count, size = rng.choice((1, 2, 10)), rng.randrange(300)
            messages = [Message(ENVELOPE, b"%d:".ljust(size, b"x") % (self._published + each)) for each in range(count)]
            self._published += count
            sizes = [len(message.body) for message in messages]
            broker.stream.publish_varied(messages, sum(sizes), max(sizes))
        self._acknowledge(rng)
        published, reached = self._published, self._next_of(broker)
        broker.stores.when_synced(lambda: self._confirm(published, reached))
        broker.advance(0.01)
        if rng.random() < 0.1:
            broker.engine.housekeeping()
        if rng.random() < 0.05:
            broker.engine.checkpoint()

    def _acknowledge(self, rng: random.Random) -> None:
        """Acknowledge some of what the named consumer has got, in any order."""
        held = self._named.held
        chosen = rng.sample(held, rng.randint(0, len(held)))
        self._named.held = [entry for entry in held if entry not in chosen]
        settle(self._named, chosen, "acknowledge")
        self._named.unblock()

    def _confirm(self, published: int, reached: int) -> None:
        self.confirmed.update(b"%d:" % each for each in range(published))
        self._kept_next = reached

    @staticmethod
    def _next_of(broker: StreamBroker) -> int:
        known = broker.stream.names.by_name.get(_NAME)
        return 0 if known is None else known.next

    def missing(self, files: SimulatedFiles) -> set[bytes]:
        """Start a broker with what is left of the disk; return what was promised and is not there."""
        broker = StreamBroker(files, _ARGUMENTS, self._options, self.broker.loop.now + 0.02)
        assert broker.engine.report.failures == []
        # A name is not behind what was there when a message was confirmed, and never ahead of what was acknowledged, or
        # removed.
        reached = max(self._next_of(self.broker), broker.stream.stream.first_number)
        assert self._kept_next <= self._next_of(broker) <= reached
        consumer = _attach(broker)
        broker.advance(0)
        found = {seq - 1: message.body.partition(b":")[0] + b":" for seq, message, _ in consumer.held}
        # Every message has the offset of its number, so no offset was used twice.
        assert all(body == b"%d:" % offset for offset, body in found.items())
        before = {seq - 1 for seq, _, _ in self._consumer.held}
        first, end = broker.stream.stream.offsets
        assert end >= max(before, default=-1) + 1
        kept = {offset for offset in before if offset >= first}
        assert kept <= found.keys()
        removed = {b"%d:" % offset for offset in range(first)}
        broker.publish("new")
        assert consumer.held[-1][0] - 1 == end
        return self.confirmed - set(found.values()) - removed


@pytest.mark.parametrize("redo_segments", [0, 3])
def test_power_goes_while_a_stream_is_written(power_cuts: int, redo_segments: int) -> None:
    check_power_cuts(power_cuts, redo_segments, StreamLoad)


def test_a_segment_without_a_message_is_begun_again_under_its_name() -> None:
    files = SimulatedFiles()
    StreamBroker(files).publish("a")
    contents = {path: octets for path, octets in files.snapshot().items() if "/redo/" not in path}
    (segment,) = [path for path in contents if path.endswith(".seg")]
    contents[segment] = contents[segment][:SEGMENT_HEADER_BYTES]
    files.restore(contents)
    before = StreamBroker(files, now=2000.0)
    before.publish("b")
    assert segment in files.snapshot()
    assert before.stores.close()
    after = StreamBroker(files, now=3000.0)
    assert after.engine.report.lost_messages == 0
    consumer = _attach(after)
    after.advance(0)
    assert consumer.received == ["b"]
