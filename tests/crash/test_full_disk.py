"""A disk that gets full at any write, and what is found after that; and a small disk of a real system."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from leveret.storage.engine import EngineOptions, StorageEngine
from leveret.storage.event_format import DEAD_LETTERED, EventKind
from leveret.storage.interface import Entry
from leveret.storage.message import Envelope, Message
from leveret.storage.stores.segment_store import SegmentStore
from tests.support.segment_stores import Clock
from tests.support.simulated_files import ROOT, SimulatedFiles
from tests.support.small_disk import fill, small_disk

ALL: Final = 1 << 40
PERSISTENT: Final = Envelope(b"\x00\x01q", bytes(14), True)
OPTIONS: Final = EngineOptions(segment_bytes=700, disk_free_limit=0, ballast_bytes=200, redo_segments=1, redo_bytes=500)
#: Bytes between two places at which the disk gets full.
STEP: Final = 41


class Ledger:
    """A queue that is worked on, and what it was promised."""

    def __init__(self, engine: StorageEngine) -> None:
        self.engine = engine
        self.store = engine.store(engine.create_queue(True, {"name": "q"}))
        self.written: dict[int, bytes] = {}
        self.confirmed: set[int] = set()
        self.settled: set[int] = set()
        self.gone: set[int] = set()
        self.failures = 0

    def publish(self, *sizes: int) -> None:
        for size in sizes:
            body = b"%d:" % self.store.next_seq + b"x" * size
            self.written[self.store.next_seq] = body
            self.store.append([Message(PERSISTENT, body)], len(body))

    def settle(self, entries: list[Entry]) -> None:
        self.store.settle(entries)
        self.settled |= {entry[0] for entry in entries}

    def end_turn(self) -> None:
        written, settled = set(self.written), set(self.settled)
        if self.engine.flush():
            self.failures += 1
        else:
            self.engine.commit(lambda: self.confirmed.update(written))
        self.engine.commit(lambda: self.gone.update(settled), events=True)

    def check(self, engine: StorageEngine) -> None:
        """Compare with what a recovered engine has."""
        report = engine.report
        entries = take_all(engine)
        found = {entry[0]: entry[1].body for entry in entries}
        assert [*found] == sorted(found)
        assert all(self.written[seq] == body for seq, body in found.items())
        assert self.confirmed - self.settled <= found.keys(), "a confirmed message is lost"
        assert not self.gone & found.keys(), "a settled message came back"
        assert report.lost_messages == 0


def take_all(engine: StorageEngine) -> list[Entry]:
    return [entry for queue in engine.queues.values() for entry in engine.store(queue).take(1 << 30, ALL)[0]]


def work(engine: StorageEngine) -> Ledger:
    """Publish, consume, purge, and begin segments and files of the event log."""
    ledger = Ledger(engine)
    store: SegmentStore = ledger.store
    for turn in range(12):
        ledger.publish(*[turn * 37 % 250] * 3)
        ledger.end_turn()
        entries = store.take(3, ALL)[0]
        store.requeue(entries[:1])
        ledger.settle(entries[1:])
        if turn % 4 == 3:
            engine.housekeeping()
            engine.checkpoint()
        if turn == 7:
            ledger.settle(store.take(4, ALL)[0])
        engine.watch_disk()
        ledger.end_turn()
    return ledger


def open_engine(files: SimulatedFiles) -> StorageEngine:
    return StorageEngine(ROOT, files=files, clock=Clock(), options=OPTIONS)


def bytes_needed() -> int:
    files = SimulatedFiles()
    engine = open_engine(files)
    before = files.appended
    work(engine)
    return files.appended - before


def test_the_work_needs_a_while_to_fill_a_disk() -> None:
    assert bytes_needed() > 10_000


@pytest.mark.parametrize("offset", range(4))
def test_full_at_any_write_and_recovered(offset: int) -> None:
    failed = 0
    for room in range(300 + offset * STEP, bytes_needed(), 4 * STEP):
        files = SimulatedFiles()
        engine = open_engine(files)
        files.room = room
        try:
            ledger = work(engine)
        except OSError:
            assert not engine.queues, "only making a queue may be refused"
            continue
        failed += ledger.failures > 0
        after = files.snapshot()
        # The process is killed, and the disk is full still; then it is killed again, and there is room.
        files.stop()
        ledger.check(open_engine(files))
        files.stop()
        files.room = None
        ledger.check(open_engine(files))
        # Or the machine loses power.
        files.restore(after)
        files.crash(random.Random(room))
        ledger.check(open_engine(files))
    assert failed > 5


@pytest.mark.parametrize("offset", range(4))
def test_full_and_then_not(offset: int) -> None:
    for room in range(300 + offset * STEP, bytes_needed(), 4 * STEP):
        files = SimulatedFiles()
        engine = open_engine(files)
        ledger = Ledger(engine)
        files.room = room
        while not ledger.failures:
            ledger.publish(100, 100)
            ledger.end_turn()
        assert engine.disk.alarm
        files.room = None
        ledger.end_turn()
        assert not engine.disk.alarm
        assert ledger.confirmed == set(ledger.written)
        files.crash(random.Random(room))
        engine = open_engine(files)
        ledger.check(engine)
        assert len(take_all(open_engine(_copy(files)))) == len(ledger.written)


@pytest.mark.parametrize("how", ["dead letter", "returned"])
def test_a_message_that_moves_while_the_disk_is_full_is_not_lost(how: str) -> None:
    """What became of it is written only with its copy, so that one of the two is found."""
    for room in range(0, 1500, STEP):
        files = SimulatedFiles()
        engine = open_engine(files)
        queue, other = engine.create_queue(True, {"name": "q"}), engine.create_queue(True, {"name": "dlq"})
        source, target = engine.store(queue), engine.store(other)
        message = Message(PERSISTENT, b"x" * 300)
        source.append([message], 300)
        assert not engine.flush()
        engine.commit()
        files.room = room
        entries = source.take(1, ALL)[0]
        if how == "returned":
            source.append([message], 300)
            source.settle(entries, EventKind.RETURNED)
        else:
            target.append([message], 300)
            source.settle(entries, EventKind.REJECT, DEAD_LETTERED)
        # Settled permanently, in a queue of its own; the ballast has room for that.
        engine.housekeeping()
        if room >= 1000:
            engine.delete_queue(engine.create_queue(False, {}))
        files.stop()
        files.room = None
        found = take_all(open_engine(files))
        assert 1 <= len(found) <= 2, f"with room for {room} bytes"
        assert room < 1000 or len(found) == 1, "there was room for all of it"


def test_what_was_held_back_is_written_once_there_is_room() -> None:
    files = SimulatedFiles()
    engine = open_engine(files)
    source = engine.store(engine.create_queue(True, {"name": "q"}))
    target = engine.store(engine.create_queue(True, {"name": "dlq"}))
    source.append([Message(PERSISTENT, b"x" * 300)] * 4, 1200)
    engine.flush()
    files.room = 250
    target.append([Message(PERSISTENT, b"x" * 300)], 300)
    source.settle(source.take(1, ALL)[0], EventKind.REJECT, DEAD_LETTERED)
    source.settle(source.take(1, ALL)[0])
    assert [*engine.flush()] == [target]
    synced: list[int] = []
    engine.commit(lambda: synced.append(1), events=True)
    assert not synced, "confirmed before it is on disk"
    files.room = None
    assert not engine.flush()
    assert synced
    files.stop()
    found = take_all(open_engine(files))
    assert len(found) == 3


def _copy(files: SimulatedFiles) -> SimulatedFiles:
    copy = SimulatedFiles()
    copy.restore(files.snapshot())
    return copy


# --- a real one -------------------------------------------------------------------------------------------------------


@pytest.fixture(params=["tmpfs", "ext4"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """A mounted file system of 24 MiB."""
    with small_disk(tmp_path, request.param, 24) as mounted:
        yield mounted


def test_a_real_disk_gets_full_and_comes_back(disk: Path) -> None:
    alarms: list[bool] = []
    options = EngineOptions(segment_bytes=256 << 10, disk_free_limit=2 << 20, ballast_bytes=1 << 20, redo_bytes=1 << 20)
    engine = StorageEngine(str(disk / "data"), options=options, on_disk_alarm=lambda space: alarms.append(space.alarm))
    engine.watch_disk()
    ledger = Ledger(engine)
    alarm_before_failure = False
    while not ledger.failures:
        ledger.publish(*[1000] * 50)
        ledger.end_turn()
        engine.watch_disk()
        alarm_before_failure = alarm_before_failure or (engine.disk.alarm and not ledger.failures)
    assert alarm_before_failure
    assert alarms == [True]
    assert ledger.confirmed
    # Another program takes the remaining space, and consumers are still served.
    filler = disk / "filler"
    fill(filler)
    store = ledger.store
    for _ in range(40):
        entries = store.take(25, ALL)[0]
        assert all(entry[1].body == ledger.written[entry[0]] for entry in entries)
        store.requeue(entries[::5])
        ledger.settle([entry for at, entry in enumerate(entries) if at % 5])
        ledger.end_turn()
    assert len(ledger.gone) == 800
    copy = disk.parent / "copy"
    shutil.copytree(disk / "data", copy)
    recover_and_check(copy, ledger, options)
    filler.unlink()
    ledger.end_turn()
    while store.ready_count > 1000:
        ledger.settle(store.take(500, ALL)[0])
        ledger.end_turn()
        engine.watch_disk()
    assert alarms == [True, False]
    assert ledger.confirmed == set(ledger.written)
    assert engine.close()
    recover_and_check(disk / "data", ledger, options)


def recover_and_check(path: Path, ledger: Ledger, options: EngineOptions) -> None:
    engine = StorageEngine(str(path), options=options)
    ledger.check(engine)
    assert engine.close()
