"""The alarm of the disk, the ballast, and a store on a disk that is full."""

from __future__ import annotations

from pathlib import Path

import pytest

from leveret.storage.disk.files import BALLAST, DiskSpace
from leveret.storage.engine import EngineOptions, StorageEngine
from leveret.storage.message import Envelope, Message
from leveret.storage.snapshots.lease import take_lease
from leveret.storage.stores.segment_store import SegmentStore
from tests.support.segment_stores import Clock
from tests.support.simulated_files import ROOT, SimulatedFiles

ALL = 1 << 20
PERSISTENT = Envelope(b"\x00\x01q", bytes(14), True)
MIB = 1 << 20


@pytest.fixture
def files() -> SimulatedFiles:
    made = SimulatedFiles()
    made.make_directory(ROOT)
    return made


@pytest.fixture
def alarms() -> list[bool]:
    return []


def add(store: SegmentStore, *bodies: bytes) -> None:
    for body in bodies:
        store.append([Message(PERSISTENT, body)], len(body))


def open_engine(files: SimulatedFiles, alarms: list[bool], clock: Clock | None = None) -> StorageEngine:
    options = EngineOptions(segment_bytes=600, disk_free_limit=5000, ballast_bytes=4000, redo_segments=0)
    return StorageEngine(
        ROOT,
        files=files,
        clock=clock or Clock(),
        options=options,
        on_disk_alarm=lambda space: alarms.append(space.alarm),
    )


def test_the_alarm_follows_the_free_space(files: SimulatedFiles, alarms: list[bool]) -> None:
    disk = DiskSpace(files, ROOT, 1000, 0, 0, lambda space: alarms.append(space.alarm))
    for files.room in (1000, 999, 10, 1000, 5000):
        disk.check()
    assert alarms == [True, False]
    assert (disk.free, disk.alarm) == (5000, False)


def test_the_limit_is_what_the_stores_need_at_least(files: SimulatedFiles, alarms: list[bool]) -> None:
    disk = DiskSpace(files, ROOT, 1000, 3000, 0, lambda space: alarms.append(space.alarm))
    assert disk.limit == 3000
    disk.limit = 4000
    assert disk.limit == 4000
    files.room = 3500
    disk.check()
    assert alarms == [True]


@pytest.mark.parametrize(("free", "pause"), [(10**12, 10.0), (250 * 10**6, 2.0), (1000, 0.1), (999, 0.1), (0, 0.1)])
def test_checks_are_more_frequent_near_the_limit(files: SimulatedFiles, free: int, pause: float) -> None:
    disk = DiskSpace(files, ROOT, 1000, 0, 0, lambda _: None)
    files.room = free
    assert disk.check() == pytest.approx(pause, rel=0.01)


def test_checks_at_least_every_second_while_the_alarm_is_set(files: SimulatedFiles) -> None:
    disk = DiskSpace(files, ROOT, 10**12, 0, 0, lambda _: None)
    files.room = 0
    assert disk.check() == 1.0


def test_a_check_is_due_after_64_mib(files: SimulatedFiles) -> None:
    disk = DiskSpace(files, ROOT, 1000, 0, 0, lambda _: None)
    files.appended = 64 * MIB - 1
    assert not disk.check_due
    files.appended += 1
    assert disk.check_due
    disk.check()
    assert not disk.check_due


def test_a_write_that_is_refused_sets_the_alarm_whatever_the_system_says(
    files: SimulatedFiles, alarms: list[bool]
) -> None:
    disk = DiskSpace(files, ROOT, 1000, 0, 0, lambda space: alarms.append(space.alarm))
    disk.note_write(refused=True)
    disk.check()
    disk.note_write(refused=False)
    assert alarms == [True, False]


def test_the_ballast_is_made_given_up_and_made_again(files: SimulatedFiles) -> None:
    disk = DiskSpace(files, ROOT, 1000, 0, 500, lambda _: None)
    files.room = 2000
    disk.check()
    assert (files.size(f"{ROOT}/{BALLAST}"), files.room, disk.free) == (500, 1500, 1500)
    files.room = 0
    disk.check()
    assert disk.release_ballast()
    assert files.room == 500
    assert not disk.release_ballast()
    disk.check()
    assert files.list_directory(ROOT) == []
    files.room = 1625
    disk.check()
    assert files.list_directory(ROOT) == [BALLAST]
    assert disk.release_ballast()


def test_making_the_ballast_does_not_set_the_alarm(files: SimulatedFiles, alarms: list[bool]) -> None:
    disk = DiskSpace(files, ROOT, 1000, 0, 500, lambda space: alarms.append(space.alarm))
    for files.room in range(1000, 1700, 50):
        disk.check()
        if files.list_directory(ROOT):
            break
    disk.check()
    assert (alarms, files.list_directory(ROOT)) == ([], [BALLAST])


def test_a_ballast_from_before_is_used_and_one_of_another_length_is_not(files: SimulatedFiles) -> None:
    DiskSpace(files, ROOT, 0, 0, 500, lambda _: None).check()
    files.room = 0
    assert DiskSpace(files, ROOT, 0, 0, 500, lambda _: None).release_ballast()
    files.room = None
    DiskSpace(files, ROOT, 0, 0, 500, lambda _: None).check()
    assert not DiskSpace(files, ROOT, 0, 0, 600, lambda _: None).release_ballast()
    assert files.list_directory(ROOT) == []


def test_consumers_are_served_on_and_what_they_settle_is_written(files: SimulatedFiles, alarms: list[bool]) -> None:
    engine = open_engine(files, alarms)
    queue = engine.create_queue(True, {})
    store = engine.store(queue)
    add(store, *[b"%0100d" % number for number in range(20)])
    assert engine.flush() == {}
    engine.commit()
    engine.watch_disk()
    files.room = 0
    add(store, b"refused")
    assert list(engine.flush()) == [store]
    assert alarms == [True]
    entries = store.take(15, ALL)[0]
    assert [entry[1].body for entry in entries] == [b"%0100d" % number for number in range(15)]
    store.settle(entries)
    engine.flush()
    engine.commit(events=True)
    assert BALLAST not in files.list_directory(ROOT)
    # The power goes while the disk is full: what was settled does not come back.
    files.stop()
    again = open_engine(files, [])
    found = [entry[1].body for entry in again.queues[queue.qid].stores[0].take(ALL, ALL)[0]]
    assert found[:5] == [b"%0100d" % number for number in range(15, 20)]


def test_it_comes_back_by_itself(files: SimulatedFiles, alarms: list[bool]) -> None:
    engine = open_engine(files, alarms)
    store = engine.store(engine.create_queue(True, {}))
    add(store, b"before")
    engine.flush()
    files.room = 100
    add(store, b"x" * 300)
    assert list(engine.flush()) == [store]
    files.room = 100_000
    assert engine.flush() == {}
    assert alarms == [True, False]
    engine.watch_disk()
    assert BALLAST in files.list_directory(ROOT)
    assert engine.close()
    assert [entry[1].body for entry in open_engine(files, []).queues[1].stores[0].take(ALL, ALL)[0]] == [
        b"before",
        b"x" * 300,
    ]


def test_what_was_dropped_goes_first(files: SimulatedFiles, alarms: list[bool]) -> None:
    engine = open_engine(files, alarms)
    store = engine.store(engine.create_queue(True, {}))
    add(store, *[b"x" * 300] * 6)
    engine.flush()
    engine.commit()
    store.purge()
    engine.flush()
    engine.commit(events=True)
    assert any("/trash/" in path for path in files.snapshot())
    files.room = 10
    engine.watch_disk()
    assert not any("/trash/" in path for path in files.snapshot())
    assert files.room > 1800


def test_a_queue_that_cannot_be_made_leaves_nothing_behind(files: SimulatedFiles, alarms: list[bool]) -> None:
    engine = open_engine(files, alarms)
    files.room = 5
    with pytest.raises(OSError, match="no space"):
        engine.create_queue(True, {"name": "q"})
    assert files.list_directory(f"{ROOT}/q") == []
    files.room = None
    assert engine.create_queue(True, {"name": "q"}).qid == 2
    files.stop()
    again = open_engine(files, [])
    assert (list(again.queues), again.report.damage) == ([2], [])


def test_snapshots_go_when_there_is_no_room_for_them(tmp_path: Path) -> None:
    options = EngineOptions(disk_free_limit=1 << 60, ballast_bytes=0)
    engine = StorageEngine(str(tmp_path), options=options)
    lease = take_lease(str(tmp_path), "a test")
    engine.housekeeping()
    assert Path(lease.path).exists()
    engine.watch_disk()
    assert engine.disk.alarm
    assert not Path(lease.path).exists()
    assert engine.close()
