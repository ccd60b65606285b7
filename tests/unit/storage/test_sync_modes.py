"""When the engine syncs, and what waits for it."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from queue import Queue
from time import monotonic

from leveret.storage.commit import CommitGroup, Committer, SyncMode
from leveret.storage.engine import EngineOptions, StorageEngine
from leveret.storage.message import Envelope, Message
from leveret.storage.stores.segment_store import SegmentStore
from tests.support.segment_stores import Clock
from tests.support.simulated_files import ROOT, SimulatedFiles

PERSISTENT = Envelope(b"\x00\x01q", bytes(14), True)


class TimedFiles(SimulatedFiles):
    """A disk that notes when it syncs, and in which thread."""

    def __init__(self) -> None:
        super().__init__()
        self.times: list[float] = []
        self.threads: set[str] = set()

    def fdatasync(self, handle: int) -> None:
        self.times.append(monotonic())
        self.threads.add(threading.current_thread().name)
        super().fdatasync(handle)


def add(store: SegmentStore, *bodies: bytes) -> None:
    for body in bodies:
        store.append([Message(PERSISTENT, body)], len(body))


def open_engine(
    files: SimulatedFiles, sync: SyncMode, deliver: Callable[[Callable[[], None]], object] | None, interval: int = 0
) -> StorageEngine:
    options = EngineOptions(segment_bytes=600, ballast_bytes=0, sync=sync, sync_interval=interval)
    return StorageEngine(ROOT, deliver, files=files, clock=Clock(), options=options)


def bodies(files: SimulatedFiles) -> list[bytes]:
    engine = open_engine(files, SyncMode.ALWAYS, None)
    return [entry[1].body for entry in engine.queues[1].stores[0].take(1 << 20, 1 << 30)[0]]


def test_an_interval_lies_between_syncs() -> None:
    files = TimedFiles()
    files.make_directory("/d")
    done: Queue[Callable[[], object]] = Queue()
    committer = Committer(files, done.put, lambda _: None, interval=0.2)
    for number in range(3):
        group = CommitGroup()
        group.data[files.open(f"/d/{number}", create=True)] = None
        group.callbacks.append(lambda: None)
        committer.submit(group)
        done.get(timeout=120)()
    assert committer.close()
    first, second, third = files.times
    assert min(second - first, third - second) >= 0.19


def test_closing_does_not_wait_for_the_interval() -> None:
    files = TimedFiles()
    files.make_directory("/d")
    committer = Committer(files, lambda _: None, lambda _: None, interval=3600.0)
    started = monotonic()
    for number in range(2):
        group = CommitGroup()
        group.data[files.open(f"/d/{number}", create=True)] = None
        committer.submit(group)
    assert committer.close()
    assert files.syncs in (1, 2)
    assert monotonic() - started < 60


def test_who_waits_for_a_sync_does_not_wait_for_the_interval() -> None:
    files = TimedFiles()
    files.make_directory("/d")
    committer = Committer(files, lambda _: None, lambda _: None, interval=3600.0)
    for number in range(3):
        group = CommitGroup()
        group.data[files.open(f"/d/{number}", create=True)] = None
        committer.submit(group)
        assert committer.barrier()()
        assert files.syncs == number + 1
    assert committer.close()


def test_many_segments_are_synced_by_several_threads_and_told_once() -> None:
    files = TimedFiles()
    files.make_directory("/d")
    done: Queue[Callable[[], object]] = Queue()
    synced: list[int] = []
    committer = Committer(files, done.put, lambda _: None)
    group = CommitGroup()
    for number in range(100):
        group.data[files.open(f"/d/{number:03d}", create=True)] = None
    group.callbacks.append(lambda: synced.append(files.syncs))
    committer.submit(group)
    done.get(timeout=120)()
    assert committer.close()
    assert synced == [100]
    assert "MainThread" not in files.threads


def test_one_sync_that_fails_among_many_is_a_failure() -> None:
    class OneFails(SimulatedFiles):
        def fdatasync(self, handle: int) -> None:
            if self._handles[handle][0] == "/d/057":
                raise OSError("input/output error")
            super().fdatasync(handle)

    files = OneFails()
    files.make_directory("/d")
    calls: Queue[Callable[[], object]] = Queue()
    failures: list[OSError] = []
    synced: list[int] = []
    committer = Committer(files, calls.put, failures.append)
    group = CommitGroup()
    for number in range(100):
        group.data[files.open(f"/d/{number:03d}", create=True)] = None
    group.callbacks.append(lambda: synced.append(1))
    committer.submit(group)
    calls.get(timeout=120)()
    assert not committer.close()
    assert (len(failures), synced) == (1, [])


def test_a_mistake_of_ours_ends_it_like_a_failure() -> None:
    class Broken(SimulatedFiles):
        def sync_directory(self, path: str) -> None:
            raise ValueError("a mistake")

    calls: Queue[Callable[[], object]] = Queue()
    failures: list[OSError] = []
    committer = Committer(Broken(), calls.put, failures.append)
    group = CommitGroup()
    group.directories["/d"] = None
    committer.submit(group)
    calls.get(timeout=120)()
    assert not committer.close()
    assert "a mistake" in str(failures[0])


def test_promises_do_not_wait_for_an_interval() -> None:
    files = TimedFiles()
    calls: Queue[Callable[[], object]] = Queue()
    engine = open_engine(files, SyncMode.INTERVAL, calls.put, interval=3_600_000_000)
    store = engine.store(engine.create_queue(True, {}))
    synced: list[bytes] = []
    for body in (b"a", b"b", b"c"):
        add(store, body)
        engine.flush()
        engine.commit(lambda body=body: synced.append(body))  # type: ignore[misc]
        while len(synced) == 0 or synced[-1] != body:
            calls.get(timeout=120)()
    assert synced == [b"a", b"b", b"c"]
    # Stopping syncs what waits.
    assert engine.close()
    files.crash(random.Random(1))
    assert bodies(files) == [b"a", b"b", b"c"]


def test_off_syncs_when_it_stops_and_not_before() -> None:
    files = TimedFiles()
    calls: Queue[Callable[[], object]] = Queue()
    engine = open_engine(files, SyncMode.OFF, calls.put)
    store = engine.store(engine.create_queue(True, {}))
    before = files.syncs
    synced: list[int] = []
    for number in range(8):
        add(store, b"%0300d" % number)
        engine.flush()
        engine.commit(lambda number=number: synced.append(number), events=True)  # type: ignore[misc]
        while not synced or synced[-1] != number:
            calls.get(timeout=120)()
    assert files.syncs == before
    assert engine.close()
    files.crash(random.Random(1))
    assert bodies(files) == [b"%0300d" % number for number in range(8)]


def test_much_that_is_written_is_synced_though_nobody_waits() -> None:
    files = SimulatedFiles()
    engine = StorageEngine(ROOT, files=files, clock=Clock(), options=EngineOptions(ballast_bytes=0))
    store = engine.store(engine.create_queue(True, {}))
    before = files.syncs
    for _ in range(3):
        add(store, bytes(1 << 20))
        engine.flush()
    assert files.syncs == before
    add(store, bytes(1 << 20), bytes(1 << 20))
    engine.flush()
    assert files.syncs > before


def test_new_queues_are_synced_together_with_the_next_commit() -> None:
    files = SimulatedFiles()
    engine = open_engine(files, SyncMode.ALWAYS, None)
    before = files.syncs
    for number in range(10):
        engine.create_queue(True, {"number": number})
    assert files.syncs == before
    engine.commit()
    files.crash(random.Random(1))
    engine = open_engine(files, SyncMode.ALWAYS, None)
    assert [queue.attributes["number"] for queue in engine.queues.values()] == [*range(10)]


def test_queues_that_no_commit_has_seen_leave_nothing_behind() -> None:
    for seed in range(30):
        files = SimulatedFiles()
        engine = open_engine(files, SyncMode.ALWAYS, None)
        for number in range(3):
            engine.create_queue(True, {"number": number})
        files.crash(random.Random(seed))
        engine = open_engine(files, SyncMode.ALWAYS, None)
        assert (engine.report.damage, engine.report.failures) == ([], [])
        assert len(files.list_directory(f"{ROOT}/q")) == len(engine.queues)
