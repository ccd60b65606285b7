"""Power that goes while another thread is syncing: whatever has been promised by then holds."""

from __future__ import annotations

import copy
import random
import threading
import time
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, Final

import pytest

from leveret.storage.commit.committer import SyncMode
from leveret.storage.engine import EngineOptions, StorageEngine
from leveret.storage.event_format import DEAD_LETTERED, EventKind
from leveret.storage.message import Envelope, Message
from tests.support.segment_stores import Clock
from tests.support.simulated_files import ROOT, SimulatedFiles

PERSISTENT: Final = Envelope(b"\x00\x01q", bytes(14), True)
QUEUES: Final = 6
#: Queue and number of a message.
Key = tuple[int, int]


class SlowFiles(SimulatedFiles):
    """A disk for several threads whose syncs take a moment, so that much happens meanwhile."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self._lock = threading.RLock()
        self._rng = random.Random(seed)

    def __getattribute__(self, name: str) -> Any:
        found = super().__getattribute__(name)
        if name.startswith("_") or not callable(found):
            return found

        def locked(*arguments: Any, **named: Any) -> Any:
            if name == "fdatasync":
                time.sleep(self._rng.random() * 0.001)
            with self._lock:
                return found(*arguments, **named)

        return locked

    def after_power_loss(self, rng: random.Random) -> SimulatedFiles:
        """What would be left if power went now."""
        left = SimulatedFiles()
        memo: dict[int, Any] = {}
        left._names = copy.deepcopy(self._names, memo)
        left._synced_names = copy.deepcopy(self._synced_names, memo)
        left._directories = set(self._directories)
        left._synced_directories = set(self._synced_directories)
        left.crash(rng)
        return left


class Load:
    """Queues that are published to and consumed from, and what has been promised."""

    def __init__(self, files: SimulatedFiles, options: EngineOptions) -> None:
        self.calls: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self.engine = StorageEngine(ROOT, self.calls.put, files=files, clock=Clock(), options=options)
        self.stores = [self.engine.store(self.engine.create_queue(True, {})) for _ in range(QUEUES)]
        self.written: dict[Key, bytes] = {}
        self.confirmed: set[Key] = set()
        self.settled: set[Key] = set()
        self.gone: set[Key] = set()

    def turn(self, rng: random.Random) -> None:
        """Do something with some queues."""
        for qid, store in enumerate(self.stores, 1):
            for _ in range(rng.choice((0, 0, 1, 3))):
                body = b"%d.%d:" % (qid, store.next_seq) + b"x" * rng.randrange(200)
                self.written[qid, store.next_seq] = body
                store.append([Message(PERSISTENT, body)], len(body))
            entries = store.take(rng.randrange(1, 4), 1 << 20)[0]
            kept = rng.randrange(2)
            store.requeue(entries[:kept])
            store.settle(entries[kept:])
            self.settled |= {(qid, entry[0]) for entry in entries[kept:]}
        published, settled = set(self.written), set(self.settled)
        assert self.engine.flush() == {}
        self.engine.commit(lambda: self.confirmed.update(published))
        if rng.random() < 0.3:
            self.engine.commit(lambda: self.gone.update(settled), events=True)
        if rng.random() < 0.05:
            self.engine.housekeeping()
        if rng.random() < 0.05:
            self.engine.checkpoint()
        while not self.calls.empty():
            self.calls.get()()

    def check(self, files: SimulatedFiles, options: EngineOptions) -> None:
        """Recover what is left, and compare."""
        engine = StorageEngine(ROOT, files=files, clock=Clock(1_800_000_000_000_000), options=options)
        found = {
            (queue.qid, seq): message.body
            for queue in engine.queues.values()
            for seq, message, _ in engine.store(queue).take(1 << 30, 1 << 40)[0]
        }
        assert all(self.written[key] == body for key, body in found.items())
        assert self.confirmed - self.settled <= found.keys(), "a confirmed message is lost"
        assert not self.gone & found.keys(), "a settled message came back"
        assert engine.report.failures == []


@pytest.mark.parametrize(("redo_segments", "redo_bytes"), [(0, 1), (1, 900), (3, 20_000)])
@pytest.mark.parametrize("seed", range(4))
def test_power_goes_at_any_moment(seed: int, redo_segments: int, redo_bytes: int) -> None:
    options = EngineOptions(
        segment_bytes=1500,
        disk_free_limit=0,
        ballast_bytes=0,
        sync=SyncMode.ALWAYS,
        redo_segments=redo_segments,
        redo_bytes=redo_bytes,
    )
    rng = random.Random(seed)
    files = SlowFiles(seed)
    load = Load(files, options)
    for turn in range(120):
        load.turn(rng)
        if turn % 6 == 5:
            load.check(files.after_power_loss(rng), options)
    assert load.engine.close()
    assert load.confirmed == set(load.written)
    load.check(files.after_power_loss(rng), options)


@pytest.mark.parametrize("what", ["delete", "checkpoint", "compact"])
def test_an_event_is_never_on_the_disk_ahead_of_the_dead_letter_it_speaks_of(what: str) -> None:
    for seed in range(12):
        files = SimulatedFiles()
        options = EngineOptions(segment_bytes=1500, disk_free_limit=0, ballast_bytes=0, redo_segments=0)
        # Nothing is called back: only what is done on the way counts.
        engine = StorageEngine(ROOT, files=files, clock=Clock(), options=options)
        queues = [engine.create_queue(True, {"name": name}) for name in ("source", "letters", "other")]
        source, letters, other = map(engine.store, queues)
        message = Message(PERSISTENT, b"x" * 100)
        source.append([message], 100)
        other.append([message], 100)
        engine.flush()
        engine.commit(events=True)
        entries = source.take(1, 1 << 20)[0]
        letters.append([message], 100)
        source.settle(entries, EventKind.REJECT, DEAD_LETTERED)
        engine.flush()
        if what == "delete":
            engine.delete_queue(queues[2])
        elif what == "checkpoint":
            engine.checkpoint()
        else:
            engine._sync(other)
        files.crash(random.Random(seed))
        again = StorageEngine(ROOT, files=files, clock=Clock(1_800_000_000_000_000), options=options)
        found = [again.store(each).ready_count for qid, each in again.queues.items() if qid in (1, 2)]
        assert sum(found) >= 1, f"with seed {seed}"


def test_the_directory_of_a_new_broker_is_on_the_disk() -> None:
    for seed in range(8):
        files = SimulatedFiles()
        engine = StorageEngine(f"{ROOT}/below", files=files, clock=Clock())
        store = engine.store(engine.create_queue(True, {"name": "q"}))
        store.append([Message(PERSISTENT, b"x")], 1)
        engine.flush()
        engine.commit()
        files.crash(random.Random(seed))
        again = StorageEngine(f"{ROOT}/below", files=files, clock=Clock())
        assert again.report.messages == 1
