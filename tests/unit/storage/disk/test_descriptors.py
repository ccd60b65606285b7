"""Few files are open, however many queues there are."""

from __future__ import annotations

import errno
import random
from collections.abc import Callable
from queue import Queue

import pytest

from leveret.storage.engine import EngineOptions, StorageEngine
from leveret.storage.message import Envelope, Message
from leveret.storage.stores.segment_store import SegmentStore
from tests.support.segment_stores import Clock
from tests.support.simulated_files import ROOT, SimulatedFiles

ALL = 1 << 20
PERSISTENT = Envelope(b"\x00\x01q", bytes(14), True)
OPTIONS = EngineOptions(segment_bytes=600, append_files=5, read_files=3, ballast_bytes=0)


def open_engine(files: SimulatedFiles) -> StorageEngine:
    return StorageEngine(ROOT, files=files, clock=Clock(), options=OPTIONS)


def make_stores(files: SimulatedFiles, count: int) -> tuple[StorageEngine, list[SegmentStore]]:
    engine = open_engine(files)
    return engine, [engine.store(engine.create_queue(True, {"name": str(number)})) for number in range(count)]


def add(store: SegmentStore, body: bytes) -> None:
    store.append([Message(PERSISTENT, body)], len(body))


def test_many_queues_in_one_turn_share_a_few_descriptors() -> None:
    files = SimulatedFiles()
    engine, stores = make_stores(files, 40)
    held = len(files._handles)
    for turn in range(5):
        for store in stores:
            add(store, b"%d" % turn)
        engine.flush()
        engine.commit(events=True)
        assert len(files._handles) - held <= 5 + 3
    for store in stores:
        assert [entry[1].body for entry in store.take(ALL, ALL)[0]] == [b"0", b"1", b"2", b"3", b"4"]
        assert len(files._handles) - held <= 5 + 3 + 1
    files.crash(random.Random(1))
    engine = open_engine(files)
    assert engine.report.messages == 200, "what was closed before it was synced has been synced nevertheless"


def test_idle_queues_have_no_files_open() -> None:
    files = SimulatedFiles()
    engine, stores = make_stores(files, 3)
    held = len(files._handles)
    for store in stores:
        add(store, b"a")
        add(store, b"b")
        engine.flush()
        store.take(1, 1)
    engine.commit(events=True)
    for _ in range(31):
        engine.flush()
        engine.housekeeping()
    # Event log and redo log.
    assert len(files._handles) - held <= 2
    for store in stores:
        add(store, b"c")
        engine.flush()
        assert [entry[1].body for entry in store.take(ALL, ALL)[0]] == [b"b", b"c"]
    assert engine.close()
    assert not files._handles


def test_a_file_that_is_being_synced_is_not_closed() -> None:
    """Its number could be another file's by the time that the thread syncs it."""
    files = SimulatedFiles()
    calls: list[object] = []
    engine = StorageEngine(ROOT, deliver=calls.append, files=files, clock=Clock(), options=OPTIONS)
    store = engine.store(engine.create_queue(True, {}))
    add(store, b"a")
    engine.flush()
    (chain,) = store.log.chains
    engine.commit()
    assert not chain.release()
    assert engine.close()


class ShortFiles(SimulatedFiles):
    """Files of a process with a limit of open files.

    Attributes:
        most: The limit.
    """

    most = 1 << 20

    def open(self, path: str, create: bool = False) -> int:
        if len(self._handles) >= self.most:
            raise OSError(errno.EMFILE, "too many open files", path)
        return super().open(path, create)


def test_idle_files_give_way_where_there_are_no_descriptors_left() -> None:
    files = ShortFiles()
    engine, stores = make_stores(files, 5)
    for store in stores:
        add(store, b"1")
    engine.flush()
    engine.commit(events=True)
    files.most = len(files._handles)
    for store in stores:
        assert [entry[1].body for entry in store.take(1, 1)[0]] == [b"1"]
    add(stores[4], b"2")
    assert not engine.flush()


def test_syncs_wait_until_there_are_descriptors_again(caplog: pytest.LogCaptureFixture) -> None:
    files = ShortFiles()
    calls: Queue[Callable[[], None]] = Queue()
    errors: list[OSError] = []
    engine = StorageEngine(ROOT, calls.put, errors.append, files, Clock(), OPTIONS)
    store = engine.store(engine.create_queue(True, {}))
    add(store, b"a")
    engine.flush()
    files.most = len(files._handles)
    synced: list[int] = []
    engine.commit(lambda: synced.append(1))
    while "Cannot sync the data directory for now" not in caplog.text:
        assert engine._commits._committer is not None
        committing = engine._commits._committer._syncer
        assert committing is not None
        committing.join(0.01)
        assert committing.is_alive()
    assert not synced
    files.most = 1 << 20
    while not synced:
        calls.get(timeout=120)()
    assert engine.close()
    assert not errors
