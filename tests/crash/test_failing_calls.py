"""Every call of the file system fails once, one after the other, and the next one succeeds: nothing confirmed is lost.

A sync that failed proves nothing when it is tried again: the kernel has dropped what it could not write. So the
simulated disk drops it, too, and says that the second sync was successful.
"""

from __future__ import annotations

import errno
import random
from collections import Counter
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Any, Final

import pytest

from leveret.storage.commit import SyncMode
from leveret.storage.directory.directory_format import DataDirectoryError
from leveret.storage.engine import EngineOptions, StorageEngine
from leveret.storage.message import Envelope, Message
from leveret.storage.stores.segment_store import SegmentStore
from tests.support.segment_stores import Clock
from tests.support.simulated_files import ROOT
from tests.support.slow_files import SlowFiles

PERSISTENT: Final = Envelope(b"\x00\x01q", bytes(14), True)
ALL: Final = 1 << 40
QUEUES: Final = 4
TURNS: Final = 14
SYNCS: Final = ("fdatasync", "sync_directory")
CHANGES: Final = ("append", "truncate", "open", "rename", "unlink", "make_directory")
READS: Final = ("pread", "read_all", "size", "list_directory")
#: Of kinds with more calls than a few, every second one fails.
FEW, STEP = 40, 2
#: Queue and number of a message.
Key = tuple[int, int]


class FailingFiles(SlowFiles):
    """A disk of which one call fails."""

    def __init__(self, kind: str = "", number: int | None = None) -> None:
        super().__init__(0)
        self._kind = kind
        self._number = number
        self._calls: Counter[str] = Counter()
        #: Directories of which something was dropped.
        self._dropped: set[str] = set()

    def __getattribute__(self, name: str) -> Any:
        found = super().__getattribute__(name)
        if name not in SYNCS + CHANGES + READS:
            return found

        def may_fail(*arguments: Any, **named: Any) -> Any:
            self._calls[name] += 1
            if name == self._kind and self._calls[name] - 1 == self._number:
                if name == "fdatasync":
                    self._handles[arguments[0]][1].drop_unsynced()
                elif name == "sync_directory":
                    self._dropped.add(arguments[0])
                raise OSError(errno.EIO, "input/output error")
            if name == "sync_directory" and arguments[0] in self._dropped:
                # It says that it has succeeded.
                return None
            return found(*arguments, **named)

        return may_fail

    def calls(self, kind: str) -> int:
        """How often a method was called."""
        return self._calls[kind]

    def fail_no_more(self) -> None:
        """Let all calls succeed from now on: recovery from a failure has a disk that works."""
        self._number = None


class Load:
    """Queues that are published to and consumed from, and what has been promised."""

    def __init__(self, files: FailingFiles, options: EngineOptions) -> None:
        self._calls: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self.failures: list[OSError] = []
        self.engine = StorageEngine(
            ROOT, self._calls.put, self.failures.append, files=files, clock=Clock(), options=options
        )
        self._rng = random.Random(1)
        self.stores: dict[int, SegmentStore] = {}
        self.written: dict[Key, bytes] = {}
        self.confirmed: set[Key] = set()
        self.settled: set[Key] = set()
        self.gone: set[Key] = set()
        self.lost = 0

    def run(self) -> None:
        """Work until a sync fails, or to the end."""
        for turn in range(TURNS):
            if self.failures:
                return
            self._turn(turn)
            self.engine._commits.wait()
            try:
                while True:
                    self._calls.get_nowait()()
            except Empty:
                pass

    def _turn(self, turn: int) -> None:
        if len(self.stores) < QUEUES:
            try:
                queue = self.engine.create_queue(True, {})
                self.stores[queue.qid] = self.engine.store(queue)
            except OSError:
                # Its declaration is refused.
                return
        for qid, store in self.stores.items():
            for _ in range(turn % 3 + 1):
                body = b"%d.%d:" % (qid, store.next_seq) + b"x" * self._rng.randrange(150)
                self.written[qid, store.next_seq] = body
                store.append([Message(PERSISTENT, body)], len(body))
            entries = store.take(2, ALL)[0]
            store.requeue(entries[:1])
            store.settle(entries[1:])
            self.settled |= {(qid, entry[0]) for entry in entries[1:]}
        published, settled = set(self.written), set(self.settled)
        if not self.engine.flush():
            self.engine.commit(lambda: self.confirmed.update(published))
        self.engine.commit(lambda: self.gone.update(settled), events=True)
        if turn % 5 == 3:
            self.engine.housekeeping()
            self.engine.checkpoint()

    def check(self, left: Any, options: EngineOptions) -> None:
        """Recover what is left, and compare."""
        engine = StorageEngine(ROOT, files=left, clock=Clock(1_800_000_000_000_000), options=options)
        found: dict[Key, bytes] = {}
        for queue in engine.queues.values():
            for seq, message, _ in engine.store(queue).take(1 << 30, ALL)[0]:
                found[queue.qid, seq] = message.body
        assert all(self.written[key] == body for key, body in found.items())
        assert self.confirmed - self.settled <= found.keys(), "a confirmed message is lost"
        assert not self.gone & found.keys(), "a settled message came back"


def options(redo_segments: int) -> EngineOptions:
    return EngineOptions(
        segment_bytes=900,
        disk_free_limit=0,
        ballast_bytes=100,
        sync=SyncMode.ALWAYS,
        redo_segments=redo_segments,
        redo_bytes=2000,
    )


def calls_of(kind: str, redo_segments: int) -> int:
    files = FailingFiles()
    Load(files, options(redo_segments)).run()
    return files.calls(kind)


@pytest.mark.parametrize("redo_segments", [0, 3])
@pytest.mark.parametrize("kind", SYNCS + CHANGES + READS)
def test_one_call_fails(kind: str, redo_segments: int) -> None:
    count = calls_of(kind, redo_segments)
    assert count, "it is never called"
    wrong: list[str] = []
    refused = 0
    for number in range(0, count, STEP if count > FEW else 1):
        files = FailingFiles(kind, number)
        try:
            load = Load(files, options(redo_segments))
        except (OSError, DataDirectoryError):
            refused += 1
            continue
        try:
            load.run()
            # Commits that wait together are synced together, so that a run may have fewer calls than were counted.
            files.fail_no_more()
            for what in ("power loss", "kill"):
                left = files.after_power_loss(random.Random(number)) if what == "power loss" else files
                if what == "kill":
                    files.stop()
                load.check(left, options(redo_segments))
        except (AssertionError, OSError, KeyError, IndexError) as error:
            wrong.append(f"{kind} {number} of {count}: {type(error).__name__}: {str(error).splitlines()[0]}")
    assert wrong == []
    assert refused < count or count < 3
