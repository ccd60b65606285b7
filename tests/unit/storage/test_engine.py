"""The engine and its stores, on a disk in memory and on a real one."""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from leveret.storage.directory.directory_format import DataDirectoryError
from leveret.storage.disk.files import DirectoryInUseError
from leveret.storage.engine import EngineOptions, StorageEngine
from leveret.storage.event_format import DEAD_LETTERED, EVENT_BYTES, NEVER_STORED, REDELIVERED_ONCE, Event, EventKind
from leveret.storage.event_log import EventPosition, file_name, read_events
from leveret.storage.message import Envelope, Message
from leveret.storage.stores.segment_store import SegmentStore
from tests.support.segment_stores import Clock, open_engine
from tests.support.simulated_files import ROOT, SimulatedFiles, flip

ALL = 1 << 20
PERSISTENT = Envelope(b"\x00\x01q", bytes(14), True)
TRANSIENT = Envelope(b"\x00\x01q", bytes(14), False)


@pytest.fixture
def files() -> SimulatedFiles:
    return SimulatedFiles()


def add(store: SegmentStore, *bodies: bytes, envelope: Envelope = PERSISTENT) -> None:
    for body in bodies:
        store.append([Message(envelope, body)], len(body))


def bodies(store: SegmentStore) -> list[bytes]:
    return [entry[1].body for entry in store.take(ALL, ALL)[0]]


def new_queue(engine: StorageEngine, durable: bool = True) -> SegmentStore:
    return engine.store(engine.create_queue(durable, {"name": "q"}))


def finish(engine: StorageEngine) -> None:
    engine.flush()
    engine.commit(events=True)


def events(files: SimulatedFiles) -> Iterator[Event]:
    store_id = bytes.fromhex(json.loads(files.snapshot()[f"{ROOT}/FORMAT"])["store_id"])
    for event in read_events(files, f"{ROOT}/events", store_id, EventPosition(0, 0)):
        assert event is not None
        if event.kind <= EventKind.TICK:
            yield event


def segments(files: SimulatedFiles, suffix: str = ".seg") -> list[str]:
    return [path for path in files.snapshot() if path.endswith(suffix) and "/trash/" not in path]


# --- the directory ----------------------------------------------------------------------------------------------------


def test_one_process_at_a_time(tmp_path: Path) -> None:
    engine = StorageEngine(str(tmp_path))
    with pytest.raises(DirectoryInUseError, match="another broker has this data directory open"):
        StorageEngine(str(tmp_path))
    assert engine.close()
    assert StorageEngine(str(tmp_path)).close()


def test_a_newer_format_is_refused(files: SimulatedFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as newer:
        newer.setattr("leveret.storage.directory.directory_format.FORMAT_VERSION", 2)
        newer.setattr("leveret.storage.directory.data_directory.FORMAT_VERSION", 2)
        open_engine(files).close()
    with pytest.raises(DataDirectoryError, match="newer version"):
        open_engine(files)


def test_a_directory_without_its_format_is_refused(files: SimulatedFiles) -> None:
    engine = open_engine(files)
    new_queue(engine)
    engine.close()
    files.unlink(f"{ROOT}/FORMAT")
    with pytest.raises(DataDirectoryError, match="FORMAT is missing"):
        open_engine(files)


def test_queues_are_found_again(files: SimulatedFiles) -> None:
    engine = open_engine(files)
    queue = engine.create_queue(True, {"vhost": "/", "name": "a\udcff", "lazy": True})
    add(engine.store(queue), b"zero")
    add(engine.store(queue, 7), b"seven")
    finish(engine)
    assert engine.close()
    engine = open_engine(files)
    found = engine.queues[queue.qid]
    assert found.attributes == {"vhost": "/", "name": "a\udcff", "lazy": True}
    assert {priority: bodies(store) for priority, store in found.stores.items()} == {0: [b"zero"], 7: [b"seven"]}


def test_queues_that_are_not_durable_are_not(files: SimulatedFiles) -> None:
    engine = open_engine(files)
    add(new_queue(engine, durable=False), b"a")
    finish(engine)
    assert engine.close()
    engine = open_engine(files)
    assert not engine.queues
    assert not files.list_directory(f"{ROOT}/q")


def test_a_deleted_queue_is_gone_and_its_number_is_not_used_again(files: SimulatedFiles) -> None:
    engine = open_engine(files)
    queue = engine.create_queue(True, {})
    add(engine.store(queue), b"a", b"bb")
    finish(engine)
    engine.delete_queue(queue)
    assert not files.list_directory(f"{ROOT}/q")
    (event,) = events(files)
    assert (event.kind, event.qid, event.length, event.body_bytes) == (EventKind.QUEUE_DELETED, queue.qid, 2, 3)
    files.stop()
    engine = open_engine(files)
    assert not engine.queues
    assert engine.create_queue(True, {}).qid > queue.qid


def test_a_queue_whose_removal_was_cut_short_is_not_found(files: SimulatedFiles) -> None:
    engine = open_engine(files)
    store = new_queue(engine)
    add(store, b"a")
    finish(engine)
    before = files.snapshot()
    store.close()
    finish(engine)
    # The events have been written, the directory has not been moved.
    log = {path: octets for path, octets in files.snapshot().items() if "/events/" in path}
    files.restore(before | log)
    assert not open_engine(files).queues


# --- what is written --------------------------------------------------------------------------------------------------


def test_what_is_settled_before_it_is_written_never_is(files: SimulatedFiles) -> None:
    engine = open_engine(files)
    store = new_queue(engine)
    add(store, b"a", b"b")
    store.settle(store.take(1, 1)[0])
    finish(engine)
    assert [(event.seq, event.kind, event.flags) for event in events(files)] == [(1, EventKind.ACK, NEVER_STORED)]
    assert b"\x00\x01q" + bytes(14) + b"b" in files.snapshot()[segments(files)[0]]
    assert b"\x00\x01q" + bytes(14) + b"a" not in files.snapshot()[segments(files)[0]]


def test_several_that_are_settled_before_they_are_written_never_are(files: SimulatedFiles) -> None:
    engine = open_engine(files)
    store = new_queue(engine)
    add(store, b"a", b"b", b"c")
    store.settle(store.take(2, ALL)[0])
    finish(engine)
    found = [(event.seq, event.length, event.kind, event.flags) for event in events(files)]
    assert found == [(1, 2, EventKind.ACK, NEVER_STORED)]
    assert bodies(store) == [b"c"]


def test_settlements_become_runs(files: SimulatedFiles) -> None:
    clock = Clock()
    engine = open_engine(files, clock)
    store = new_queue(engine)
    add(store, *[b"xx"] * 10)
    engine.flush()
    clock.time += 5_000_000
    entries = store.take(10, ALL)[0]
    store.requeue([entries[4]])
    again = store.take(1, 1)[0]
    store.settle([*entries[:4], *again, *entries[5:8]])
    store.settle([entries[8]], EventKind.MAXLEN, DEAD_LETTERED)
    finish(engine)
    assert [(each.seq, each.length, each.kind, each.flags, each.body_bytes) for each in events(files)] == [
        (5, 1, EventKind.REQUEUE, 0, 0),
        (1, 4, EventKind.ACK, 0, 8),
        (5, 1, EventKind.ACK, REDELIVERED_ONCE, 2),
        (6, 3, EventKind.ACK, 0, 6),
        (9, 1, EventKind.MAXLEN, DEAD_LETTERED, 2),
    ]
    assert all(5000 <= each.wait_ms < 5200 for each in events(files) if each.kind != EventKind.REQUEUE)


def test_a_purge_is_one_event_a_range(files: SimulatedFiles) -> None:
    engine = open_engine(files)
    store = new_queue(engine)
    add(store, *[b"xx"] * 10)
    finish(engine)
    entries = store.take(4, ALL)[0]
    store.requeue([entries[1]])
    assert store.purge() == 7
    finish(engine)
    found = [(event.seq, event.length, event.kind, event.body_bytes) for event in events(files)]
    assert found == [(2, 1, EventKind.REQUEUE, 0), (2, 1, EventKind.PURGED, 2), (5, 6, EventKind.PURGED, 12)]
    store.settle([entries[at] for at in (0, 2, 3)])
    engine.flush()
    engine.housekeeping()
    finish(engine)
    assert not segments(files), "an empty queue has no segments"
    add(store, b"again")
    engine.flush()
    assert bodies(store) == [b"again"]


def test_very_many_messages_are_dropped_in_parts(files: SimulatedFiles) -> None:
    engine = open_engine(files)
    store = new_queue(engine)
    # Six fill a file.
    for _ in range(250):
        store.append([Message(PERSISTENT, b"x" * 20)] * 6, 120)
        engine.flush()
    dropped, body_bytes = store.drop(ALL, ALL)
    assert 1024 <= dropped < 1100
    assert (body_bytes, store.ready_count) == (20 * dropped, 1500 - dropped)
    assert store.drop(ALL, ALL) == (1500 - dropped, 20 * (1500 - dropped))


def test_lazy_queues_keep_nothing_in_memory(files: SimulatedFiles) -> None:
    engine = open_engine(files, options=EngineOptions())
    store = new_queue(engine)
    batch = [Message(PERSISTENT, b"x" * 20)] * 500
    store.append(batch, 10_000)
    engine.flush()
    blocks = sys.getallocatedblocks()
    for _ in range(40):
        store.append(batch, 10_000)
        engine.flush()
    assert sys.getallocatedblocks() - blocks < 200
    assert (len(store.ram), store.ready_count) == (0, 20_500)


def test_transient_messages_are_spilled_by_lazy_queues_only(files: SimulatedFiles) -> None:
    engine = open_engine(files)
    lazy, default = new_queue(engine), new_queue(engine)
    default.set_lazy(False)
    for store in (lazy, default):
        add(store, b"t", envelope=TRANSIENT)
        add(store, b"p")
    finish(engine)
    assert (len(segments(files, ".spl")), len(segments(files))) == (1, 2)
    assert (len(lazy.ram), len(default.ram)) == (0, 2)
    default.set_lazy(True)
    finish(engine)
    assert (len(segments(files, ".spl")), len(default.ram)) == (2, 0)
    assert bodies(default) == [b"t", b"p"]


def test_paging_out_begins_with_the_oldest(files: SimulatedFiles) -> None:
    engine = open_engine(files)
    store = new_queue(engine)
    store.set_lazy(False)
    for number in range(10):
        add(store, b"%010d" % number, envelope=TRANSIENT if number % 2 else PERSISTENT)
        engine.flush()
    assert (len(store.ram), store.ram.held_bytes) == (10, 100)
    store.page_out(35)
    engine.flush()
    assert (len(store.ram), store.ram.held_bytes, len(segments(files, ".spl"))) == (6, 60, 1)
    add(store, b"behind")
    assert len(store.ram) == 7
    assert bodies(store) == [*(b"%010d" % number for number in range(10)), b"behind"]
    assert (len(store.ram), store.ram.held_bytes) == (0, 0)


def test_what_does_not_fit_the_disk_stays_in_memory(files: SimulatedFiles) -> None:
    engine = open_engine(files)
    store = new_queue(engine)
    store.set_lazy(False)
    add(store, b"p")
    add(store, b"t", envelope=TRANSIENT)
    finish(engine)
    files.room = 0
    store.set_lazy(True)
    assert list(engine.flush()) == [store]
    assert (len(store.ram), store.ready_count) == (1, 2)
    files.room = None
    assert not engine.flush()
    assert len(store.ram) == 0
    assert bodies(store) == [b"p", b"t"]


def test_preloading_brings_small_messages_to_memory(files: SimulatedFiles) -> None:
    engine = open_engine(files)
    store = new_queue(engine)
    for size in (10, 50, 10, 50, 10):
        add(store, bytes(size))
    finish(engine)
    assert store.paging.preload(0, 10, 20)[1] == 0, "a lazy store keeps nothing"
    store.set_lazy(False)
    at, looked_at = store.paging.preload(0, 3, 20)
    assert looked_at == 3
    assert (len(store.ram), store.ram.held_bytes) == (2, 20)
    at, looked_at = store.paging.preload(at, 10, 20)
    assert (looked_at, len(store.ram)) == (2, 3)
    assert store.paging.preload(at, 10, 20)[1] == 0
    assert bodies(store) == [bytes(size) for size in (10, 50, 10, 50, 10)]
    assert (len(store.ram), store.ready_count) == (0, 0)


def test_half_a_deletion_is_not_completed_by_the_next_edit(files: SimulatedFiles) -> None:
    engine = open_engine(files)
    store = new_queue(engine)
    add(store, *[b"x" * 300] * 5)
    finish(engine)
    manifest = f"{ROOT}/q/00000001/MANIFEST"
    before = len(files.snapshot()[manifest])
    kept = files.snapshot()
    store.purge()
    engine.flush()
    deletion = files.snapshot()[manifest]
    assert len(deletion) - before >= 2 * 64
    files.restore(kept | {manifest: deletion[: before + 64]})
    for _ in range(2):
        engine = open_engine(files)
        assert engine.report.messages == 5
        assert engine.close()


def test_a_stop_is_clean_after_a_log_that_was_cut(files: SimulatedFiles) -> None:
    engine = open_engine(files)
    store = new_queue(engine)
    add(store, b"a", b"b")
    engine.flush()
    store.settle(store.take(1, 1)[0])
    finish(engine)
    (log,) = [path for path in files.snapshot() if "/events/" in path]
    files.restore(files.snapshot() | {log: files.snapshot()[log][:-7]})
    engine = open_engine(files)
    assert engine.report.damaged_events == 1
    store = engine.queues[1].stores[0]
    store.settle(store.take(ALL, ALL)[0])
    add(store, b"new")
    assert engine.close()
    entries = open_engine(files).queues[1].stores[0].take(ALL, ALL)[0]
    assert [(entry[1].body, entry[2]) for entry in entries] == [(b"new", False)]


@pytest.mark.parametrize("length", [0, 1, EVENT_BYTES - 1])
def test_a_log_that_a_kill_left_without_a_whole_header_is_not_damaged(files: SimulatedFiles, length: int) -> None:
    engine = open_engine(files)
    store = new_queue(engine)
    add(store, b"gone", b"a")
    engine.flush()
    store.settle(store.take(1, 1)[0])
    finish(engine)
    (log,) = [path for path in files.snapshot() if "/events/" in path]
    unfinished = f"{ROOT}/events/{file_name(1 << 60)}"
    files.restore(files.snapshot() | {unfinished: files.snapshot()[log][:length]})

    for _ in range(2):
        engine = open_engine(files)
        assert not list(engine.report.lines())
        add(engine.queues[1].stores[0], b"more")
        assert engine.close()

    assert bodies(open_engine(files).queues[1].stores[0]) == [b"a", b"more", b"more"]


# --- a disk that fails ------------------------------------------------------------------------------------------------


def test_a_full_disk_keeps_what_it_cannot_write(files: SimulatedFiles) -> None:
    engine = open_engine(files)
    store = new_queue(engine)
    add(store, b"before")
    engine.flush()
    files.room = 50
    add(store, b"more", b"and more")
    assert list(engine.flush()) == [store]
    assert bodies(store) == [b"before", b"more", b"and more"]
    files.room = None
    assert engine.flush() == {}
    files.stop()
    assert bodies(open_engine(files).queues[1].stores[0]) == [b"before", b"more", b"and more"]


def test_a_priority_takes_no_room_before_it_is_written(files: SimulatedFiles) -> None:
    engine = open_engine(files)
    queue = engine.create_queue(True, {"name": "q"})
    add(engine.store(queue), b"zero")
    finish(engine)
    before = files.list_directory(f"{ROOT}/q/00000001")
    store = engine.store(queue, 7)
    assert files.list_directory(f"{ROOT}/q/00000001") == before
    files.room = 0
    add(store, b"seven")
    assert [*engine.flush()] == [store], "the disk is full"
    files.room = None
    finish(engine)
    files.crash(random.Random(0))
    (found,) = open_engine(files).queues.values()
    assert {priority: bodies(each) for priority, each in found.stores.items()} == {0: [b"zero"], 7: [b"seven"]}


def test_numbers_of_a_priority_that_was_never_written_are_used_up(files: SimulatedFiles) -> None:
    engine = open_engine(files)
    queue = engine.create_queue(True, {"name": "q"})
    store = engine.store(queue, 7)
    add(store, b"gone", b"before it is written")
    store.settle(store.take(2, 100)[0])
    finish(engine)
    files.stop()
    (found,) = open_engine(files).queues.values()
    assert found.stores[7].next_seq > 2


def test_events_that_cannot_be_written_are_kept(files: SimulatedFiles) -> None:
    engine = open_engine(files)
    store = new_queue(engine)
    add(store, b"a")
    engine.flush()
    store.settle(store.take(1, 1)[0])
    files.room = 0
    synced: list[bool] = []
    assert engine.flush() == {}
    engine.commit(lambda: synced.append(True), events=True)
    engine.commit()
    assert (engine.disk.alarm, synced) == (True, [])
    files.room = None
    engine.flush()
    assert (engine.disk.alarm, synced) == (False, [True])
    assert [event.kind for event in events(files)] == [EventKind.ACK]


def test_what_is_damaged_is_lost_and_the_rest_is_not(files: SimulatedFiles) -> None:
    engine = open_engine(files)
    store = new_queue(engine)
    add(store, *[b"%0300d" % number for number in range(6)])
    finish(engine)
    broken, *_ = segments(files)
    for at in range(64, files.size(broken)):
        flip(files, broken, at, 255)
    assert bodies(store) == [b"%0300d" % number for number in range(2, 6)]
    assert (store.lost_count, store.ready_count, store.ready_bytes) == (2, 0, 0)
    finish(engine)
    assert [(event.kind, event.seq, event.length) for event in events(files)] == [(EventKind.LOST, 1, 2)]


def test_a_sync_that_fails_is_not_passed_over(files: SimulatedFiles) -> None:
    engine = open_engine(files)
    add(new_queue(engine), b"a")
    engine.flush()
    files.sync_fails = True
    called: list[bool] = []
    with pytest.raises(OSError, match="input/output"):
        engine.commit(lambda: called.append(True))
    assert not called


# --- longer spans -----------------------------------------------------------------------------------------------------


def test_events_behind_both_checkpoints_go_after_their_time(files: SimulatedFiles) -> None:
    clock = Clock()
    for _ in range(4):
        engine = open_engine(files, clock, EngineOptions(event_retention=1_000_000))
        store = engine.store(engine.queues[1]) if engine.queues else new_queue(engine)
        add(store, b"kept", b"gone")
        finish(engine)
        entries = store.take(ALL, ALL)[0]
        store.settle([entry for entry in entries if entry[1].body == b"gone"])
        finish(engine)
        clock.time += 2_000_000
        engine.checkpoint()
        engine.checkpoint()
        files.stop()
    assert len(files.list_directory(f"{ROOT}/events")) <= 2
    assert bodies(open_engine(files, clock).queues[1].stores[0]) == [b"kept"] * 4


def test_housekeeping_gives_back_files_and_ticks(files: SimulatedFiles) -> None:
    engine = open_engine(files)
    store = new_queue(engine)
    add(store, *[b"x" * 300] * 6)
    finish(engine)
    store.take(1, 1)
    held = len(files._handles)
    for _ in range(3):
        engine.flush()
        engine.housekeeping()
    # The reader's file is closed, that of the event log is open.
    assert len(files._handles) == held
    assert [event.kind for event in events(files)] == [EventKind.TICK], "readers learn of messages, once"
    store.settle(store.take(1, 1)[0])
    engine.flush()
    engine.housekeeping()
    assert [event.kind for event in events(files)][-1] == EventKind.TICK


def test_an_idle_engine_writes_nothing_after_its_checkpoint(files: SimulatedFiles) -> None:
    clock = Clock()
    engine = open_engine(files, clock)
    store = new_queue(engine)
    add(store, b"one")
    finish(engine)
    written = []
    for _ in range(5):
        clock.time += 61_000_000
        engine.housekeeping()
        written.append(files.appended)
    assert written == [written[0]] * 5


def test_dropped_segments_are_kept_for_readers_for_a_while(files: SimulatedFiles) -> None:
    clock = Clock()
    engine = open_engine(files, clock)
    store = new_queue(engine)
    add(store, *[b"x" * 300] * 6)
    finish(engine)
    store.purge()
    finish(engine)
    assert sum("/trash/" in path for path in files.snapshot()) == 3
    clock.time += 61_000_000
    engine.housekeeping()
    assert not any("/trash/" in path for path in files.snapshot())


def test_a_clean_stop_marks_only_what_was_taken(tmp_path: Path) -> None:
    engine = StorageEngine(str(tmp_path))
    store = new_queue(engine)
    add(store, b"a", b"b", b"c")
    engine.flush()
    store.take(1, 1)
    assert engine.close()
    engine = StorageEngine(str(tmp_path))
    entries = engine.queues[1].stores[0].take(ALL, ALL)[0]
    assert [(entry[1].body, entry[2]) for entry in entries] == [(b"a", True), (b"b", False), (b"c", False)]
    assert engine.report.messages == 3
    assert engine.close()
