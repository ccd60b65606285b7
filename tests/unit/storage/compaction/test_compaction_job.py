"""The space that stores take: twice what lives and two segments at most, whatever dies in which order."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import islice

import pytest

from leveret.storage.engine import EngineOptions, StorageEngine
from leveret.storage.format import RECORD_BYTES
from leveret.storage.interface import Entry
from leveret.storage.message import Envelope, Message
from tests.support.segment_stores import Clock
from tests.support.simulated_files import ROOT, SimulatedFiles

ALL = 1 << 30
SEGMENT = 16 << 10
PERSISTENT = Envelope(b"\x00\x01q", bytes(14), True)
TRANSIENT = Envelope(b"\x00\x01q", bytes(14), False)
OPTIONS = EngineOptions(segment_bytes=SEGMENT, ballast_bytes=0)
QUEUE = f"{ROOT}/q/00000001"


def record_bytes(message: Message) -> int:
    envelope = message.envelope
    return (RECORD_BYTES + len(envelope.route) + len(envelope.header) + len(message.body) + 7) & ~7


class Workload:
    """A queue whose messages are all taken at once and acknowledged in any order, beside what must be in it."""

    def __init__(self, seed: int, sizes: Callable[[random.Random], int], envelope: Envelope = PERSISTENT) -> None:
        self.rng = random.Random(seed)
        self.sizes = sizes
        self.envelope = envelope
        self.files = SimulatedFiles()
        self.clock = Clock()
        self.engine = StorageEngine(ROOT, files=self.files, clock=self.clock, options=OPTIONS)
        self.store = self.engine.store(self.engine.create_queue(True, {"name": "q"}))
        self.living: dict[int, Entry] = {}
        self.live_size = self.published_size = 0
        self.published = self.highest = 0

    def publish(self, count: int) -> None:
        for _ in range(count):
            body = (b"%d:" % self.published).ljust(self.sizes(self.rng), b".")
            self.published += 1
            message = Message(self.envelope, body)
            self.store.append([message], len(body))
            self.live_size += record_bytes(message)
            self.published_size += record_bytes(message)
        self.end_turn()
        self.living |= {entry[0]: entry for entry in self.store.take(count, ALL)[0]}

    def acknowledge(self, seqs: list[int]) -> None:
        entries = [self.living.pop(seq) for seq in sorted(seqs)]
        self.live_size -= sum(record_bytes(entry[1]) for entry in entries)
        self.store.settle(entries)
        self.end_turn()

    def end_turn(self) -> None:
        assert not self.engine.flush()
        self.check()
        if self.rng.random() < 0.2:
            self.engine.commit()
        if self.rng.random() < 0.01:
            self.clock.time += 1_000_000
            self.engine.housekeeping()
        self.check()

    @property
    def size(self) -> int:
        names = [path for path in self.files._names if path.startswith(f"{QUEUE}/") and "/trash/" not in path]
        return sum(len(self.files._names[path].octets) for path in names if ".s" in path)

    def check(self) -> None:
        size = self.size
        self.highest = max(self.highest, size - 2 * self.live_size)
        assert size <= 2 * self.live_size + 2 * SEGMENT

    @property
    def amplification(self) -> float:
        """Bytes of records that were written for each that was published."""
        return 1 + self.engine._compactor.copied / self.published_size

    def read_all(self) -> None:
        """All that lives can be read, from whatever file it is in now."""
        self.store.requeue(list(self.living.values()))
        found = {entry[0]: entry for entry in self.store.take(ALL, ALL)[0]}
        assert {seq: each[1].body for seq, each in found.items()} == {
            seq: each[1].body for seq, each in self.living.items()
        }
        self.living = found


def small(rng: random.Random) -> int:
    return 40


def mixed(rng: random.Random) -> int:
    """Mostly small ones, now and then one of several segments' length."""
    return rng.choice([10, 10, 100, 1000]) if rng.random() > 0.005 else rng.randrange(3 * SEGMENT)


def oldest_first(load: Workload) -> None:
    load.acknowledge(list(islice(load.living, 100)))


def any_of_them(load: Workload) -> None:
    load.acknowledge(load.rng.sample([*load.living], 100))


def all_but_one_in_a_hundred(load: Workload) -> None:
    load.acknowledge(load.rng.sample([seq for seq in load.living if seq % 100], 100))


def newest_first(load: Workload) -> None:
    load.acknowledge([*load.living][-100:])


PATTERNS = [oldest_first, any_of_them, all_but_one_in_a_hundred, newest_first]


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("sizes", [small, mixed])
@pytest.mark.parametrize("envelope", [PERSISTENT, TRANSIENT])
def test_space_is_bounded_at_every_step(
    pattern: Callable[[Workload], None], sizes: Callable[[random.Random], int], envelope: Envelope
) -> None:
    load = Workload(1, sizes, envelope)
    for _ in range(20):
        load.publish(100)
    for _ in range(150):
        load.publish(100)
        pattern(load)
    load.read_all()
    assert load.amplification < 1.5
    while load.living:
        load.acknowledge(load.rng.sample([*load.living], min(len(load.living), 150)))
    load.engine.housekeeping()
    load.engine.flush()
    load.engine.commit()
    assert load.size == 0, "an empty queue has no segments"


def test_every_second_message_acknowledged() -> None:
    load = Workload(2, small)
    for _ in range(60):
        load.publish(100)
    for _ in range(5):
        living = [*load.living]
        for at in range(0, len(living), 200):
            load.acknowledge(living[at : at + 200 : 2])
        load.read_all()
    assert load.amplification < 2


def test_what_is_left_alone_is_given_back_slowly() -> None:
    load = Workload(3, small)
    load.publish(1000)
    # One in a hundred stays, in sealed segments and in the one that is written to; that is not urgent.
    load.acknowledge([seq for seq in load.living if seq % 3 == 0])
    load.acknowledge([seq for seq in load.living if seq % 100])
    for _ in range(60):
        load.clock.time += 1_000_000
        load.engine.flush()
        load.engine.housekeeping()
    load.engine.housekeeping()
    assert load.size < 2 * load.live_size + SEGMENT // 8
    load.read_all()


def test_a_recovered_store_is_compacted_too() -> None:
    load = Workload(4, small)
    load.engine._compactor._closed = True
    load.publish(1000)
    load.store.settle([load.living.pop(seq) for seq in [*load.living] if seq % 20])
    load.engine.flush()
    load.live_size = sum(record_bytes(entry[1]) for entry in load.living.values())
    assert load.size > 2 * load.live_size + 2 * SEGMENT
    assert load.engine.close()
    load.engine = StorageEngine(ROOT, files=load.files, clock=load.clock, options=OPTIONS)
    load.store = load.engine.store(load.engine.queues[1])
    load.engine.flush()
    load.check()
    assert len(load.store.take(ALL, ALL)[0]) == 50


@pytest.mark.parametrize("sizes", [(2000, 16 << 10), (16 << 10, 600), (600, 1 << 20)])
def test_the_size_of_segments_may_change(sizes: tuple[int, int]) -> None:
    """What was written with one size is read, settled, compacted and added to with another."""
    rng = random.Random(5)
    files, clock = SimulatedFiles(), Clock()
    expected: list[bytes] = []
    number = 0
    for restart in range(6):
        options = EngineOptions(segment_bytes=sizes[restart % 2], ballast_bytes=0)
        engine = StorageEngine(ROOT, files=files, clock=clock, options=options)
        queue = engine.queues.get(1) or engine.create_queue(True, {"name": "q"})
        store = engine.store(queue)
        for _ in range(30):
            bodies = [b"%d" % at + b"." * 40 for at in range(number, number + 20)]
            number += 20
            for body in bodies:
                store.append([Message(PERSISTENT, body)], len(body))
            expected += bodies
            engine.flush()
            engine.commit()
        entries = store.take(ALL, ALL)[0]
        assert [entry[1].body for entry in entries] == expected
        kept = [entry for entry in entries if rng.random() < 0.3]
        kept_numbers = {entry[0] for entry in kept}
        store.settle([entry for entry in entries if entry[0] not in kept_numbers])
        expected = [entry[1].body for entry in kept]
        engine.flush()
        engine.commit(events=True)
        assert engine._compactor.copied or sizes[restart % 2] == 1 << 20
        if restart % 3 == 2:
            files.crash(rng)
        else:
            assert engine.close()
        assert engine.report.failures == []
