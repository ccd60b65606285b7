"""Compaction cut short before each change that it makes to the disk: all that lives is there, in order, once."""

from __future__ import annotations

import random

import pytest

from leveret.storage.compaction import CompactionJob
from leveret.storage.engine import EngineOptions, StorageEngine
from leveret.storage.interface import Entry
from leveret.storage.message import Envelope, Message
from leveret.storage.stores.segment_store import SegmentStore
from tests.support.crashing_files import CrashingFiles
from tests.support.segment_stores import Clock, open_engine
from tests.support.simulated_files import ROOT

ALL = 1 << 30
PERSISTENT = Envelope(b"\x00\x01q", bytes(14), True)
TRANSIENT = Envelope(b"\x00\x01q", bytes(14), False)
OPTIONS = EngineOptions(segment_bytes=2000, ballast_bytes=0)
QUEUE = f"{ROOT}/q/00000001"


def body(number: int) -> bytes:
    return b"%d:" % number + b"." * (number * 37 % 90)


class Sparse:
    """A store with sparse segments, all of it on the disk; settle_one() makes the rest of them sparse enough."""

    def __init__(self, transient: int) -> None:
        self.files = CrashingFiles()
        self.clock = Clock()
        self.engine = open_engine(self.files, self.clock, OPTIONS)
        self.store = self.engine.store(self.engine.create_queue(True, {"name": "q"}))
        self.engine._compactor._closed = True
        for number in range(1, 121):
            envelope = TRANSIENT if transient and number % transient == 0 else PERSISTENT
            self.store.append([Message(envelope, body(number))], len(body(number)))
            self.end_turn()
        entries = self.store.take(ALL, ALL)[0]
        self.store.settle([entry for entry in entries if entry[0] % 4 or entry[0] > 110])
        self.left = [entry for entry in entries if not (entry[0] % 4 or entry[0] > 110)]
        self.end_turn()
        self.engine._compactor._closed = False

    def end_turn(self) -> None:
        assert not self.engine.flush()
        self.engine.commit(events=True)

    def settle_one(self) -> None:
        """Settle a message, which lets the compactor look."""
        self.store.settle([self.left[0]])
        self.end_turn()


def durable(entries: list[Entry]) -> list[int]:
    return [entry[0] for entry in entries if entry[1].envelope.persistent]


def numbers(store: SegmentStore) -> list[int]:
    entries = store.take(ALL, ALL)[0]
    assert all(entry[1].body == body(entry[0]) for entry in entries)
    return [entry[0] for entry in entries]


def size_of_segments(files: CrashingFiles) -> int:
    return sum(
        len(octets)
        for path, octets in files.snapshot().items()
        if path.startswith(QUEUE) and "/trash/" not in path and ".seg" in path
    )


def recovered(files: CrashingFiles, clock: Clock) -> tuple[StorageEngine, list[int]]:
    engine = open_engine(files, clock, OPTIONS)
    report = engine.report
    assert (report.lost_messages, report.damaged_spans, report.failures) == (0, 0, [])
    return engine, numbers(engine.store(engine.queues[1]))


@pytest.mark.parametrize("transient", [0, 3])
@pytest.mark.parametrize("end", ["kill", "power", "power again", "power once more"])
def test_nothing_is_lost_wherever_it_ends(end: str, transient: int) -> None:
    untouched = Sparse(transient)
    before = size_of_segments(untouched.files)
    changes = untouched.files.changes
    untouched.settle_one()
    changes = untouched.files.changes - changes
    assert untouched.engine._compactor.jobs
    assert size_of_segments(untouched.files) < before / 2
    assert changes > 10
    for left in range(changes + 1):
        sparse = Sparse(transient)
        with sparse.files.dying(left):
            sparse.settle_one()
        if end == "kill":
            sparse.files.stop()
        else:
            sparse.files.crash(random.Random(f"{end} {left}"))
        living = durable(sparse.left)
        engine, found = recovered(sparse.files, sparse.clock)
        assert found in (living, living[1:]) or (transient and found == living)
        names = sparse.files.list_directory(QUEUE)
        assert not [name for name in names if name.endswith((".tmp", ".bad", ".spl"))]
        sparse.files.stop()
        engine, again = recovered(sparse.files, sparse.clock)
        assert again == found
        # It continues from there.
        store = engine.store(engine.queues[1])
        store.requeue(store.take(1, 1)[0])
        engine.flush()
        assert engine.close()
        assert recovered(sparse.files, sparse.clock)[1] == found


def test_messages_are_settled_and_read_while_their_segments_are_copied() -> None:
    """What the owner of the store may do meanwhile comes between the reads of the thread that copies."""
    for count in range(0, 29, 4):
        sparse = Sparse(0)
        jobs = stopped_jobs(sparse)
        sparse.settle_one()
        (job,) = jobs
        living = sparse.left[1:]

        def meanwhile(size: int) -> None:
            # The first of them are in the segments that are copied, the last ones in one that was not yet sealed.
            nonlocal living
            gone, living = living[:count], living[count:]  # noqa: B023
            sparse.store.settle(gone)  # noqa: B023
            sparse.store.requeue(living[:3])  # noqa: B023
            again = sparse.store.take(3, ALL)[0]  # noqa: B023
            assert [entry[1].body for entry in again] == [entry[1].body for entry in living[:3]]
            sparse.end_turn()  # noqa: B023

        job.run(meanwhile)
        sparse.engine._compactor._finish(job)
        last = job.sources[-1].last_seq
        assert (job.copy in sparse.store.log.segments) == any(entry[0] <= last for entry in living)
        sparse.end_turn()
        sparse.store.requeue(living)
        expected = [entry[0] for entry in living]
        assert numbers(sparse.store) == expected
        sparse.files.stop()
        assert recovered(sparse.files, sparse.clock)[1] == expected


def test_a_copy_of_what_has_been_purged_comes_to_nothing() -> None:
    sparse = Sparse(0)
    jobs = stopped_jobs(sparse)
    sparse.settle_one()
    (job,) = jobs
    sparse.store.requeue(sparse.left[1:])
    sparse.store.purge()
    sparse.end_turn()
    assert job.sources[0] in sparse.store.log.segments, "it is being read"
    job.run(lambda size: None)
    sparse.engine._compactor._finish(job)
    assert job.copy is None
    sparse.end_turn()
    assert not size_of_segments(sparse.files)
    sparse.files.stop()
    assert recovered(sparse.files, sparse.clock)[1] == []


def test_a_reader_of_the_old_file_goes_on() -> None:
    sparse = Sparse(0)
    jobs = stopped_jobs(sparse)
    sparse.settle_one()
    (job,) = jobs
    sparse.store.requeue(sparse.left[1:])
    found = sparse.store.take(2, ALL)[0]
    job.run(lambda size: None)
    sparse.engine._compactor._finish(job)
    assert job.copy in sparse.store.log.segments
    sparse.end_turn()
    found += sparse.store.take(2, ALL)[0]
    sparse.clock.time += 100_000_000
    sparse.engine.housekeeping()
    found += sparse.store.take(ALL, ALL)[0]
    assert [entry[1].body for entry in found] == [body(entry[0]) for entry in sparse.left[1:]]


def test_a_damaged_segment_is_left_as_it_is() -> None:
    sparse = Sparse(0)
    (path, *_) = sorted(name for name in sparse.files._names if name.startswith(QUEUE) and name.endswith(".seg"))
    sparse.files._names[path].octets[100] ^= 1
    sparse.settle_one()
    sparse.end_turn()
    assert path in sparse.files._names
    assert [each.frozen for each in sparse.store.log.segments].count(True) == 1
    assert not [each for each in sparse.store.log.segments if each.busy]
    assert sparse.engine._compactor.copied, "others are copied"


def test_no_room_for_a_copy() -> None:
    sparse = Sparse(0)
    sparse.files.room = 500
    sparse.settle_one()
    assert not sparse.engine._compactor.copied
    assert not [name for name in sparse.files.list_directory(QUEUE) if name.endswith(".tmp")]
    sparse.files.room = None
    sparse.store.settle([sparse.left[1]])
    sparse.store.log.next_check = 0
    sparse.end_turn()
    assert sparse.engine._compactor.copied


def stopped_jobs(sparse: Sparse) -> list[CompactionJob]:
    """Where jobs are collected instead of being done."""
    jobs: list[CompactionJob] = []
    compactor = sparse.engine._compactor

    def start(store: SegmentStore, job: CompactionJob, urgent: bool) -> None:
        jobs.append(job)
        compactor._job, compactor._store = job, store

    compactor._start = start  # type: ignore[method-assign]
    return jobs
