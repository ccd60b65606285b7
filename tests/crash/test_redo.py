"""The redo log: what it holds is found again after a loss of power, whatever is left of the segments."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from queue import Queue
from typing import Final

import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from leveret.storage.commit import read_redo
from leveret.storage.directory.directory_format import DataDirectoryError
from leveret.storage.engine import EngineOptions, StorageEngine
from leveret.storage.message import Envelope, Message
from tests.crash import queue_machine, test_store_machine
from tests.support.examples import examples
from tests.support.segment_stores import Clock
from tests.support.simulated_files import ROOT, SimulatedFiles

PERSISTENT: Final = Envelope(b"\x00\x01q", bytes(14), True)
ALL: Final = 1 << 40


def open_engine(files: SimulatedFiles, clock: Clock | None = None, redo_bytes: int = 1 << 20) -> StorageEngine:
    """An engine that uses the redo log for every commit."""
    options = EngineOptions(
        segment_bytes=600, disk_free_limit=0, ballast_bytes=0, redo_segments=1, redo_bytes=redo_bytes
    )
    return StorageEngine(ROOT, files=files, clock=clock or Clock(), options=options)


def work(engine: StorageEngine, queues: int, turns: int) -> dict[tuple[int, int], bytes]:
    """Publish to some queues, take and settle some; return what is confirmed and lives, by queue and number."""
    stores = [engine.store(engine.create_queue(True, {"name": number})) for number in range(queues)]
    living: dict[tuple[int, int], bytes] = {}
    for turn in range(turns):
        for number, store in enumerate(stores, 1):
            body = b"%d.%d:" % (number, turn) + b"x" * (turn * 41 % 170)
            living[number, store.next_seq] = body
            store.append([Message(PERSISTENT, body)], len(body))
            if turn % 3 == 2:
                entries = store.take(1, ALL)[0]
                store.settle(entries)
                del living[number, entries[0][0]]
        engine.flush()
        engine.commit(events=True)
    return living


def found_by(engine: StorageEngine) -> dict[tuple[int, int], bytes]:
    return {
        (queue.qid, seq): message.body
        for queue in engine.queues.values()
        for seq, message, _ in engine.store(queue).take(1 << 30, ALL)[0]
    }


def redo_files(files: SimulatedFiles) -> list[str]:
    return files.list_directory(f"{ROOT}/redo")


def test_it_takes_the_place_of_many_syncs() -> None:
    def syncs(engine: StorageEngine, files: SimulatedFiles) -> int:
        work(engine, 20, 1)
        stores = [engine.store(queue) for queue in engine.queues.values()]
        before = files.syncs
        for store in stores:
            store.append([Message(PERSISTENT, b"x")], 1)
        engine.flush()
        engine.commit()
        return files.syncs - before

    with_redo, without = SimulatedFiles(), SimulatedFiles()
    assert syncs(open_engine(with_redo), with_redo) == 1
    options = EngineOptions(disk_free_limit=0, ballast_bytes=0, redo_segments=0)
    assert syncs(StorageEngine(ROOT, files=without, clock=Clock(), options=options), without) == 20


@pytest.mark.parametrize("redo_bytes", [300, 3000, 1 << 20])
@pytest.mark.parametrize("seed", range(8))
def test_what_was_confirmed_survives_a_loss_of_power(redo_bytes: int, seed: int) -> None:
    files = SimulatedFiles()
    living = work(open_engine(files, redo_bytes=redo_bytes), 5, 10)
    files.crash(random.Random(seed))
    engine = open_engine(files, redo_bytes=redo_bytes)
    assert found_by(engine) == living
    assert (engine.report.lost_messages, engine.report.failures) == (0, [])
    # What it took from the redo log is in the segments now.
    assert redo_files(files) == []
    files.crash(random.Random(seed))
    assert found_by(open_engine(files)) == living


class CountingFiles(SimulatedFiles):
    """Counts reads."""

    reads = 0

    def pread(self, handle: int, size: int, offset: int) -> bytes:
        self.reads += 1
        return super().pread(handle, size, offset)


@pytest.mark.parametrize(("turns", "reads"), [(1, 0), (40, 0), (700, 1)])
def test_only_long_tails_are_read_back(turns: int, reads: int) -> None:
    """One queue gets a kilobyte in each turn before the commit, others get a little once."""
    files = CountingFiles()
    options = EngineOptions(disk_free_limit=0, ballast_bytes=0, redo_segments=1, redo_bytes=1 << 30)
    engine = StorageEngine(ROOT, files=files, clock=Clock(), options=options)
    stores = [engine.store(engine.create_queue(True, {"name": number})) for number in range(12)]
    bodies = {(number, 1): b"little" for number in range(2, 13)}
    for store in stores[1:]:
        store.append([Message(PERSISTENT, b"little")], 6)
    for turn in range(1, turns + 1):
        bodies[1, turn] = b"%d" % turn + bytes(1000)
        stores[0].append([Message(PERSISTENT, bodies[1, turn])], len(bodies[1, turn]))
        engine.flush()
    files.reads = 0
    engine.commit()
    assert (files.reads, len(redo_files(files))) == (reads, 1)

    files.crash(random.Random(1))

    assert found_by(StorageEngine(ROOT, files=files, clock=Clock(), options=options)) == bodies


def test_it_is_begun_anew_once_it_is_long() -> None:
    files = SimulatedFiles()
    engine = open_engine(files, redo_bytes=2000)
    work(engine, 4, 40)
    assert redo_files(files)[-1] > "redo-0000000003.log"
    assert len(redo_files(files)) == 1
    assert files.size(f"{ROOT}/redo/{redo_files(files)[0]}") < 4000


def test_a_clean_stop_leaves_none() -> None:
    files = SimulatedFiles()
    engine = open_engine(files)
    living = work(engine, 4, 5)
    assert len(redo_files(files)) == 1
    assert engine.close()
    assert redo_files(files) == []
    files.crash(random.Random(3))
    assert found_by(open_engine(files)) == living


def lacking(contents: dict[str, bytes], path: str) -> Iterator[dict[str, bytes]]:
    """A segment cut at any length, and with zeros in any of its places."""
    octets = contents[path]
    for length in range(0, len(octets), 7):
        yield contents | {path: octets[:length]}
    for start in range(0, len(octets), 13):
        yield contents | {path: octets[:start] + bytes(min(90, len(octets) - start)) + octets[start + 90 :]}


def test_segments_that_lack_anything_get_it_back() -> None:
    files = SimulatedFiles()
    living = work(open_engine(files), 1, 6)
    contents = files.snapshot()
    active = max(path for path in contents if path.endswith(".seg"))
    for broken in lacking(contents, active):
        files = SimulatedFiles()
        files.restore(broken)
        engine = open_engine(files)
        assert found_by(engine) == living
        assert engine.report.lost_messages == 0
        files.stop()
        assert found_by(open_engine(files)) == living


def test_recovery_that_is_cut_short_is_repeated() -> None:
    files = SimulatedFiles()
    living = work(open_engine(files), 3, 8)
    refused = 0
    for room in range(0, 6000, 150):
        again = SimulatedFiles()
        again.restore(files.snapshot())
        # All that was not synced is gone, and recovery has no room for it.
        for path in [each for each in again.snapshot() if each.endswith(".seg")]:
            handle = again.open(path)
            again.truncate(handle, 64)
        again.room = room
        try:
            open_engine(again)
        except DataDirectoryError as error:
            refused += "free bytes are needed" in str(error)
        again.room = None
        again.crash(random.Random(room))
        assert found_by(open_engine(again)) == living, room
    assert 5 < refused < 35


def test_what_is_damaged_is_passed_over_and_reported() -> None:
    files = SimulatedFiles()
    living = work(open_engine(files), 3, 4)
    contents = files.snapshot()
    (path,) = [each for each in contents if "/redo/" in each]
    for at in range(0, len(contents[path]), 5):
        flipped = bytearray(contents[path])
        flipped[at] ^= 1 << at % 8
        files.restore(contents | {path: bytes(flipped)})
        engine = open_engine(files)
        assert found_by(engine) == living, "the segments are whole"
        last_frame = contents[path].rindex(b"LVTR")
        assert at >= last_frame or [damage.path for damage in engine.report.damage] == [path]
    files.restore(contents)
    assert read_redo(files, f"{ROOT}/redo", bytes(16), {}) == {}, "that of another data directory is not believed"


def test_without_room_segments_are_synced_instead() -> None:
    files = SimulatedFiles()
    engine = open_engine(files)
    living = work(engine, 3, 3)
    stores = [engine.store(queue) for queue in engine.queues.values()]
    for store in stores:
        living[store.place.qid, store.next_seq] = b"more"
        store.append([Message(PERSISTENT, b"more")], 4)
    engine.flush()
    files.room = 10
    synced: list[bool] = []
    engine.commit(partial(synced.append, True))
    assert synced == [True]
    files.room = None
    files.crash(random.Random(5))
    assert found_by(open_engine(files)) == living


def test_a_sync_of_it_that_fails_is_a_failure() -> None:
    files = SimulatedFiles()
    calls: Queue[Callable[[], object]] = Queue()
    failures: list[OSError] = []
    options = EngineOptions(disk_free_limit=0, ballast_bytes=0, redo_segments=1)
    engine = StorageEngine(ROOT, calls.put, failures.append, files, Clock(), options)
    store = engine.store(engine.create_queue(True, {}))
    store.append([Message(PERSISTENT, b"x")], 1)
    engine.flush()
    files.sync_fails = True
    synced: list[bool] = []
    engine.commit(lambda: synced.append(True))
    while not failures:
        calls.get(timeout=120)()
    assert not synced
    files.sync_fails = False
    assert not engine.close()


class SyncFails(SimulatedFiles):
    """A disk of which one sync fails."""

    left = -1

    def fdatasync(self, handle: int) -> None:
        with self._failing():
            super().fdatasync(handle)

    def sync_directory(self, path: str) -> None:
        with self._failing():
            super().sync_directory(path)

    @contextmanager
    def _failing(self) -> Iterator[None]:
        self.sync_fails = self.left == 0
        self.left -= 1
        try:
            yield
        finally:
            self.sync_fails = False


@pytest.mark.parametrize("is_kill", [True, False], ids=["kill", "power loss"])
@pytest.mark.parametrize("seed", range(4))
def test_recovery_whose_sync_fails_is_repeated(is_kill: bool, seed: int) -> None:
    refused = 0
    for number in range(60):
        files = SyncFails()
        living = work(open_engine(files), 3, 6)
        if is_kill:
            files.stop()
        else:
            files.crash(random.Random(seed))
        files.left = number
        try:
            open_engine(files)
        except DataDirectoryError as error:
            refused += "input/output error" in str(error)
        if files.left >= 0:
            break
        files.stop()
        engine = open_engine(files)
        assert found_by(engine) == living
        assert engine.report.lost_messages == 0
        # What the kernel has read back out of its memory all the time is now lost, if it was not written again.
        files.crash(random.Random(seed + 1))
        engine = open_engine(files)
        assert found_by(engine) == living, number
        assert engine.report.lost_messages == 0
    assert refused > 3


@pytest.mark.parametrize("seed", range(6))
def test_segments_whose_own_sync_fails_are_written_again(seed: int) -> None:
    for number in range(40):
        files = SyncFails()
        engine = open_engine(files)
        living = work(engine, 3, 6)
        files.left = number
        try:
            # The redo log is old enough to be removed.
            engine._redo._age = 0
            work(engine, 1, 1)
        except OSError:
            pass
        if files.left >= 0:
            break
        files.stop()
        assert living.items() <= found_by(open_engine(files)).items()
        files.crash(random.Random(seed))
        assert living.items() <= found_by(open_engine(files)).items(), number
    assert number > 3


def test_any_history_agrees_with_plain_lists(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (queue_machine, test_store_machine):
        monkeypatch.setattr(module, "open_engine", partial(open_engine, redo_bytes=1500))
    run_state_machine_as_test(
        test_store_machine.DiskMachine,
        settings=settings(max_examples=examples(80), stateful_step_count=60),
    )
