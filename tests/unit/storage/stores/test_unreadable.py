"""What the system cannot read for a while is not lost: the rest is served meanwhile, and it returns to its place."""

from __future__ import annotations

import errno
import random
from dataclasses import replace

import pytest

from leveret.storage.disk.files import UnreadableFileError
from leveret.storage.engine import StorageEngine
from leveret.storage.event_format import EventKind
from leveret.storage.event_log import EventPosition
from leveret.storage.message import Envelope, Message
from leveret.storage.stores.numbered_store import NumberedStore, scan_all
from leveret.storage.stores.priority_store import PriorityStore
from leveret.storage.stores.segment_store import SegmentStore
from leveret.storage.stores.stream_store import StreamStore
from tests.support.segment_stores import SMALL, open_engine
from tests.support.simulated_files import SimulatedFiles, flip

PERSISTENT = Envelope(b"\x00\x01q", bytes(14), True)
TRANSIENT = Envelope(b"\x00\x01q", bytes(14), False)
ALL = 1 << 40
CHECKS = 5


class FailingDisk(SimulatedFiles):
    """A disk of which files cannot be opened, or pages cannot be read.

    Attributes:
        closed: Names of files that cannot be opened.
        pages: Offsets of unreadable bytes, by path: start and end.
        reads: Number of reads.
    """

    def __init__(self) -> None:
        super().__init__()
        self.closed: set[str] = set()
        self.pages: dict[str, tuple[int, int]] = {}
        self.reads = 0

    def open(self, path: str, create: bool = False) -> int:
        if path in self.closed:
            raise OSError(errno.EMFILE, "too many open files", path)
        return super().open(path, create)

    def pread(self, handle: int, size: int, offset: int) -> bytes:
        self.reads += 1
        start, end = self.pages.get(self._handles[handle][0], (0, 0))
        if offset < end and start < offset + size:
            raise OSError(errno.EIO, "input/output error")
        return super().pread(handle, size, offset)


@pytest.fixture
def disk() -> FailingDisk:
    return FailingDisk()


@pytest.fixture
def engine(disk: FailingDisk) -> StorageEngine:
    return open_engine(disk)


def filled(engine: StorageEngine, count: int, size: int = 250) -> SegmentStore:
    """A lazy store with messages on disk, two in each segment."""
    store = engine.store(engine.create_queue(True, {}))
    store.set_lazy(True)
    for number in range(1, count + 1):
        add(store, number, size)
    finish(engine)
    return store


def add(store: SegmentStore, number: int, size: int = 250) -> None:
    body = b"%0*d" % (size, number)
    store.append([Message(PERSISTENT, body)], size)


def finish(engine: StorageEngine) -> None:
    engine.flush()
    engine.commit(events=True)


def segments(disk: SimulatedFiles) -> list[str]:
    return [path for path in disk.snapshot() if path.endswith(".seg")]


def take(store: SegmentStore, count: int = 1 << 30) -> list[tuple[int, bool]]:
    """Take and settle messages; return what they say, and whether they may have been delivered before."""
    entries = store.take(count, ALL)[0]
    store.settle(entries)
    return [(int(message.body[-9:]), redelivered) for _, message, redelivered in entries]


def wait(engine: StorageEngine) -> set[int]:
    """Do what happens in some seconds; return the queues that have messages again."""
    found: set[int] = set()
    for _ in range(CHECKS + 1):
        found |= engine.housekeeping()
    return found


@pytest.mark.parametrize("fault", ["read", "open"])
def test_the_rest_is_served_and_they_return(disk: FailingDisk, engine: StorageEngine, fault: str) -> None:
    store = filled(engine, 6)
    broken = segments(disk)[1]
    failing = disk.unreadable if fault == "read" else disk.closed
    failing.add(broken)
    assert take(store, 4) == [(1, False), (2, False), (5, False), (6, False)]
    assert (store.ready_count, store.aside_count, store.lost_count) == (0, 2, 0)
    assert (store.persistent_count, store.taken_count) == (2, 0)
    add(store, 7)
    finish(engine)
    assert wait(engine) == {store.place.qid}
    assert (store.ready_count, store.aside_count) == (3, 0)
    # Still not.
    assert take(store) == [(7, False)]
    failing.clear()
    assert (wait(engine), wait(engine)) == ({store.place.qid}, set())
    add(store, 8)
    finish(engine)
    assert take(store) == [(3, False), (4, False), (8, False)]
    assert (store.ready_count, store.ready_bytes, store.persistent_count, store.persistent_bytes) == (0, 0, 0, 0)


def test_only_the_messages_of_unreadable_pages_wait(disk: FailingDisk) -> None:
    engine = open_engine(disk)
    store = engine.store(engine.create_queue(True, {}))
    store.set_lazy(True)
    for number in range(1, 4):
        add(store, number, 40_000)
    finish(engine)
    disk.pages[segments(disk)[1]] = 20_000, 20_001
    assert take(store) == [(1, False), (3, False)]
    disk.pages.clear()
    wait(engine)
    assert take(store) == [(2, False)]


def test_a_disk_that_fails_as_a_whole_is_not_asked_for_every_page(disk: FailingDisk, engine: StorageEngine) -> None:
    store = filled(engine, 4, 1_000_000)
    disk.unreadable.update(segments(disk))
    disk.reads = 0
    assert take(store) == []
    assert disk.reads < 4 * 40
    disk.unreadable.clear()
    wait(engine)
    assert [number for number, _ in take(store)] == [1, 2, 3, 4]


def test_damage_is_told_from_what_is_unreadable(disk: FailingDisk, engine: StorageEngine) -> None:
    store = filled(engine, 6)
    damaged, unreadable, _ = segments(disk)
    flip(disk, damaged, 200, 1)
    disk.unreadable.add(unreadable)
    assert take(store) == [(2, False), (5, False), (6, False)]
    assert (store.lost_count, store.aside_count) == (1, 2)
    disk.unreadable.clear()
    # It has been damaged meanwhile.
    flip(disk, unreadable, 200, 1)
    wait(engine)
    assert take(store) == [(4, False)]
    assert (store.lost_count, store.aside_count) == (2, 0)


def test_returned_messages_keep_their_flag(disk: FailingDisk, engine: StorageEngine) -> None:
    store = filled(engine, 6)
    store.requeue(store.take(3, ALL)[0])
    store.log.release()
    disk.unreadable.add(segments(disk)[1])
    assert take(store) == [(1, True), (2, True), (5, False), (6, False)]
    disk.unreadable.clear()
    wait(engine)
    assert take(store) == [(3, True), (4, False)]


def test_a_purge_removes_them(disk: FailingDisk, engine: StorageEngine) -> None:
    store = filled(engine, 4)
    disk.unreadable.update(segments(disk))
    assert take(store) == []
    assert store.purge() == 4
    finish(engine)
    disk.unreadable.clear()
    wait(engine)
    assert (take(store), store.ready_count, store.aside_count) == ([], 0, 0)
    assert store.log.size == 0


@pytest.mark.parametrize("part", ["all of it", "a page of it"])
def test_a_purge_keeps_a_file_in_which_a_taken_message_may_be(disk: FailingDisk, part: str) -> None:
    engine = open_engine(disk, options=replace(SMALL, segment_bytes=1 << 20))
    store = engine.store(engine.create_queue(True, {}))
    store.set_lazy(True)
    for number in range(1, 7):
        # Every second one is elsewhere, so that the records of a segment have to be read to be counted.
        store.append([Message(PERSISTENT if number % 2 else TRANSIENT, b"%0*d" % (3000, number))], 3000)
    finish(engine)
    (entry,), _ = store.take(1, ALL)
    store.log.release()
    (path,) = segments(disk)
    if part == "all of it":
        disk.unreadable.add(path)
    else:
        disk.pages[path] = 0, 100
    assert store.purge() == 5
    finish(engine)
    assert path in segments(disk)
    disk.unreadable.clear()
    disk.pages.clear()
    wait(engine)
    store.requeue([entry])
    assert take(store) == [(1, True)]


def test_limits_drop_what_can_be_read(disk: FailingDisk, engine: StorageEngine) -> None:
    store = filled(engine, 6)
    disk.unreadable.update(segments(disk)[:2])
    assert store.drop(1, ALL) == (1, 250)
    assert store.aside_count == 4
    disk.unreadable.clear()
    wait(engine)
    assert [number for number, _ in take(store)] == [1, 2, 3, 4, 6]


def test_a_restart_finds_them(disk: FailingDisk, engine: StorageEngine) -> None:
    store = filled(engine, 6)
    disk.unreadable.add(segments(disk)[1])
    assert len(take(store)) == 4
    engine.checkpoint()
    assert engine.close()
    disk.unreadable.clear()
    again = open_engine(disk)
    found = again.store(again.queues[1])
    assert (found.ready_count, found.ready_bytes) == (2, 500)
    assert [number for number, _ in take(found)] == [3, 4]


def test_a_deleted_queue_counts_them(disk: FailingDisk, engine: StorageEngine) -> None:
    store = filled(engine, 4)
    disk.unreadable.update(segments(disk))
    assert take(store) == []
    engine.delete_queue(engine.queues[1])
    assert engine.housekeeping() == set()
    found = engine.events_since(EventPosition(0, 0))
    assert [(event.seq, event.length) for event in found if event.kind == EventKind.QUEUE_DELETED] == [(1, 4)]


def test_priorities_find_their_messages_again(disk: FailingDisk, engine: StorageEngine) -> None:
    queue = engine.create_queue(True, {})
    store = PriorityStore(3, lambda level: engine.store(queue, level))
    envelope = Envelope(b"\x00\x01q", bytes(14), True, 2)
    store.append([Message(envelope, b"x" * 250)], 250)
    store.levels[2].set_lazy(True)  # type: ignore[attr-defined]
    finish(engine)
    disk.unreadable.update(segments(disk))
    assert store.take(1, ALL)[0] == []
    disk.unreadable.clear()
    assert wait(engine) == {queue.qid}
    store.look_again()
    assert len(store.take(1, ALL)[0]) == 1


def test_messages_by_number_are_not_dealt_with(disk: FailingDisk, engine: StorageEngine) -> None:
    store = filled(engine, 6)
    numbered = NumberedStore(store)
    disk.unreadable.add(segments(disk)[1])
    entries, used = numbered.take([1, 2, 3, 5], ALL)
    assert ([entry[0] for entry in entries], used) == ([1, 2], 2)
    assert numbered.take([3, 5], ALL) == ([], 0)
    assert numbered.scan(3, 7, 10) == ([], 3)
    assert numbered.read(3) is None
    with pytest.raises(UnreadableFileError, match="cannot be read"):
        list(scan_all(store, 10))
    disk.unreadable.clear()
    entries, used = numbered.take([3, 5], ALL)
    assert ([entry[0] for entry in entries], used) == ([3, 5], 2)
    assert store.lost_count == 0


def test_readers_of_a_stream_wait(disk: FailingDisk, engine: StorageEngine) -> None:
    store = filled(engine, 6)
    stream = StreamStore(store, 600)
    reader, other = stream.reader_at(1), stream.reader_at(5)
    disk.unreadable.add(segments(disk)[1])
    assert [entry[0] for entry in reader.read(10, ALL, 7)] == [1, 2]
    assert (reader.read(10, ALL, 7), stream.has_stalled, reader.number) == ([], True, 3)
    assert [entry[0] for entry in other.read(10, ALL, 7)] == [5, 6]
    assert stream.has_stalled
    disk.unreadable.clear()
    assert [entry[0] for entry in reader.read(10, ALL, 7)] == [3, 4]
    assert stream.count == 6


@pytest.mark.parametrize("seed", range(30))
def test_whatever_happens_meanwhile_nothing_is_lost(disk: FailingDisk, engine: StorageEngine, seed: int) -> None:
    rng = random.Random(seed)
    store = filled(engine, 4)
    taken: list[tuple[int, Message, bool]] = []
    living, last = {1, 2, 3, 4}, 4
    for _ in range(150):
        action = rng.randrange(8)
        if action == 0:
            last += 1
            living.add(last)
            add(store, last)
            finish(engine)
        elif action == 1:
            taken += store.take(rng.randrange(1, 4), ALL)[0]
        elif action == 2 and taken:
            entry = taken.pop(rng.randrange(len(taken)))
            living.remove(int(entry[1].body))
            store.settle([entry])
        elif action == 3 and taken:
            store.requeue(taken)
            taken = []
        elif action == 4:
            paths = segments(disk)
            disk.unreadable = set(rng.sample(paths, min(len(paths), rng.randrange(4))))
        elif action == 5:
            engine.housekeeping()
        elif action == 6:
            store.peek()
        elif action == 7 and rng.random() < 0.2:
            dropped = store.drop(1, ALL, EventKind.MAXLEN)[0]
            held = {int(message.body) for _, message, _ in taken}
            ready = living - held - _aside(store)
            living -= set(sorted(ready)[:dropped])
        assert store.ready_count + store.aside_count + len(taken) == len(living)
    disk.unreadable.clear()
    store.requeue(taken)
    wait(engine)
    assert [number for number, _ in take(store)] == sorted(living)
    assert store.lost_count == 0


def _aside(store: SegmentStore) -> set[int]:
    aside = store.cursor.aside
    return set() if aside is None else {number for first, end in aside[0] for number in range(first, end)}
