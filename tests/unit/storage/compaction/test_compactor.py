"""The thread that compacts, on a real disk, beside the thread that owns the stores."""

from __future__ import annotations

import queue
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from time import monotonic

import pytest

from leveret.storage.engine import EngineOptions, StorageEngine
from leveret.storage.interface import Entry
from leveret.storage.message import Envelope, Message
from leveret.storage.stores.segment_store import SegmentStore

ALL = 1 << 30
PERSISTENT = Envelope(b"\x00\x01q", bytes(14), True)
OPTIONS = EngineOptions(segment_bytes=64 << 10, ballast_bytes=0, disk_free_limit=0)


class Owner:
    """A thread that owns an engine: this one."""

    def __init__(self, path: Path) -> None:
        self.calls: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self.engine = StorageEngine(str(path), deliver=self.calls.put, options=OPTIONS)
        self.rng = random.Random(7)
        self.held: dict[int, Entry] = {}

    def serve(self, until: Callable[[], bool]) -> None:
        """Do what other threads want done, until something holds."""
        deadline = monotonic() + 180
        while not until():
            assert monotonic() < deadline
            try:
                self.calls.get(timeout=0.01)()
            except queue.Empty:
                self.engine.flush()
                self.engine.commit(events=True)

    def publish(self, store: SegmentStore, count: int) -> None:
        for _ in range(count):
            body = b"%d:" % store.next_seq + b"." * 100
            store.append([Message(PERSISTENT, body)], len(body))
        self.engine.flush()
        self.held |= {entry[0]: entry for entry in store.take(count, ALL)[0]}

    def acknowledge(self, store: SegmentStore, count: int) -> None:
        store.settle([self.held.pop(seq) for seq in sorted(self.rng.sample([*self.held], count))])
        self.engine.flush()

    @property
    def jobs(self) -> int:
        return self.engine._compactor.jobs


@pytest.fixture
def owner(tmp_path: Path) -> Iterator[Owner]:
    made = Owner(tmp_path)
    yield made
    made.engine.close()


def test_it_keeps_pace_and_loses_nothing(owner: Owner, tmp_path: Path) -> None:
    store = owner.engine.store(owner.engine.create_queue(True, {"name": "q"}))
    owner.publish(store, 2000)
    while owner.jobs < 5:
        owner.publish(store, 200)
        owner.acknowledge(store, 200)
        while not owner.calls.empty():
            owner.calls.get()()
        assert store.next_seq < 500_000, "there would have been a job"
    owner.serve(lambda: owner.engine._compactor._job is None and not owner.engine._compactor._waiting)
    size, live_size = store.log.size, store.log.live_size
    assert size <= 2 * live_size + 2 * OPTIONS.segment_bytes
    store.requeue(list(owner.held.values()))
    again = store.take(ALL, ALL)[0]
    assert {entry[0]: entry[1].body for entry in again} == {seq: each[1].body for seq, each in owner.held.items()}
    assert owner.engine.close()
    owner.engine = StorageEngine(str(tmp_path), deliver=owner.calls.put, options=OPTIONS)
    assert (owner.engine.report.failures, owner.engine.report.lost_messages) == ([], 0)
    found = owner.engine.store(owner.engine.queues[1]).take(ALL, ALL)[0]
    assert [entry[0] for entry in found] == sorted(owner.held)


def start_a_job(owner: Owner) -> SegmentStore:
    store = owner.engine.store(owner.engine.create_queue(True, {"name": "q"}))
    owner.publish(store, 6000)
    # Sealed segments are known to the manifest once they have been synced.
    owner.serve(lambda: sum(segment.synced for segment in store.log.segments) >= 10)
    owner.acknowledge(store, 5000)
    owner.serve(lambda: owner.engine._compactor._job is not None or owner.jobs > 0)
    return store


def test_a_queue_is_deleted_while_it_is_compacted(owner: Owner, tmp_path: Path) -> None:
    start_a_job(owner)
    owner.engine.delete_queue(owner.engine.queues[1])
    other = owner.engine.store(owner.engine.create_queue(True, {"name": "other"}))
    owner.publish(other, 10)
    owner.serve(lambda: owner.engine._compactor._job is None and not any((tmp_path / "q").glob("00000001")))
    assert not list(tmp_path.glob("q/00000001/*"))
    assert owner.engine.close()
    owner.engine = StorageEngine(str(tmp_path), deliver=owner.calls.put, options=OPTIONS)
    assert list(owner.engine.queues) == [2]


def test_a_stop_does_not_wait_for_a_job(owner: Owner, tmp_path: Path) -> None:
    start_a_job(owner)
    assert owner.engine.close()
    assert not list(tmp_path.glob("q/*/*.tmp"))
    owner.engine = StorageEngine(str(tmp_path), deliver=owner.calls.put, options=OPTIONS)
    assert (owner.engine.report.failures, owner.engine.report.lost_messages) == ([], 0)
    found = owner.engine.store(owner.engine.queues[1]).take(ALL, ALL)[0]
    assert [entry[0] for entry in found] == sorted(owner.held)
