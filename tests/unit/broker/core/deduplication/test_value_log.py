"""Values on disk: when they are written, what a start reads, and that the store does not grow without end."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leveret.broker.core.deduplication.filter import ValueLog
from leveret.broker.core.deduplication.header_values import NEVER, RememberedValues
from leveret.broker.core.message_stores import SyncWaiter, WriteFailures
from leveret.storage.backings import LevelBacking, StoreRequest
from leveret.storage.engine import StorageEngine
from tests.support.examples import examples
from tests.support.manual_loop import ManualLoop
from tests.support.queues import ManualTimers

_REQUEST = StoreRequest("/", "x", True, persists_transient=True, kind="deduplication")


class Syncs:
    """What waits for the disk."""

    def __init__(self) -> None:
        self.waiting: list[SyncWaiter] = []

    def await_sync(self, waiter: SyncWaiter) -> None:
        self.waiting.append(waiter)

    def sync(self, failures: WriteFailures | None = None) -> None:
        waiting, self.waiting = self.waiting, []
        for waiter in waiting:
            synced = waiter.written(failures or WriteFailures())
            if synced is not None:
                synced()


class Disk:
    """A data directory with the values of one exchange; a context manager."""

    def __init__(self, path: Path, size: int = 1000) -> None:
        self._path, self._size = path, size
        self.loop = ManualLoop()
        self.syncs = Syncs()
        self.open()

    def open(self) -> None:
        self.engine = StorageEngine(str(self._path))
        found = next(iter(self.engine.queues.values()), None)
        self.values = RememberedValues()
        self.backing = LevelBacking(self.engine, _REQUEST, found, _at_once)
        timers = ManualTimers(self.loop)
        self.log = ValueLog(self.backing, self.values, self.syncs, timers, lambda: 0)
        self.log.load(self._size)

    def reopen(self, clean: bool) -> None:
        if clean:
            assert self.engine.close()
        else:
            # As after kill -9: what is written is there, nothing else is.
            self.engine._directory.close()
        self.syncs.waiting.clear()
        self.open()

    def add(self, key: bytes, expiry: int = NEVER) -> None:
        if key not in self.values.expiries:
            while len(self.values) >= self._size:
                self.values.drop_oldest()
            self.values.add(key, expiry)
            self.log.add(key, expiry)


def _at_once(callback: Callable[[], None]) -> None:
    callback()


def key(number: int) -> bytes:
    return number.to_bytes(15, "big")


def test_a_value_is_written_when_its_message_is_on_disk(tmp_path: Path) -> None:
    disk = Disk(tmp_path)
    disk.add(key(1))
    disk.reopen(clean=False)
    assert not disk.values.expiries
    disk.add(key(2))
    disk.syncs.sync()
    disk.add(key(3))
    disk.reopen(clean=False)
    assert list(disk.values.expiries) == [key(2)]
    disk.engine.close()


def test_values_whose_messages_could_not_be_written_wait(tmp_path: Path) -> None:
    disk = Disk(tmp_path)
    disk.add(key(1))
    disk.syncs.sync(WriteFailures([disk.backing.store]))
    assert not disk.syncs.waiting
    disk.loop.advance(1)
    assert disk.backing.store.ready_count == 0
    disk.syncs.sync()
    assert disk.backing.store.ready_count == 1
    disk.engine.close()


def test_a_refused_message_leaves_no_value(tmp_path: Path) -> None:
    disk = Disk(tmp_path)
    for number in (1, 2):
        disk.add(key(number))
    disk.values.remove(key(1))
    disk.log.remove(key(1))
    disk.syncs.sync()
    disk.reopen(clean=True)
    assert list(disk.values.expiries) == [key(2)]
    disk.engine.close()


def test_records_that_are_not_needed_are_removed(tmp_path: Path) -> None:
    disk = Disk(tmp_path, size=100)
    disk.add(b"stays forever..")
    for number in range(30_000):
        if number % 50 == 0:
            # It is used again and again, so it is never the oldest one.
            disk.values.remove(b"stays forever..")
            disk.add(b"stays forever..")
        disk.add(key(number))
        if number % 100 == 0:
            disk.syncs.sync()
            assert disk.backing.store.ready_count < 6000
    disk.syncs.sync()
    expected = list(disk.values.expiries)
    disk.reopen(clean=False)
    assert list(disk.values.expiries) == expected
    disk.engine.close()


def test_a_deleted_log_writes_nothing(tmp_path: Path) -> None:
    disk = Disk(tmp_path)
    disk.add(key(1))
    disk.log.delete()
    disk.syncs.sync()
    assert not disk.engine.queues
    disk.engine.close()


@settings(max_examples=examples(30))
@given(
    st.lists(st.tuples(st.integers(0, 9), st.one_of(st.just(NEVER), st.integers(1, 20))), max_size=80),
    st.integers(1, 6),
    st.booleans(),
)
def test_a_start_remembers_the_same(
    tmp_path_factory: pytest.TempPathFactory, added: list[tuple[int, int]], size: int, clean: bool
) -> None:
    """What expires counts as forgotten from then on, on both sides of the start."""
    path = tmp_path_factory.mktemp("values")
    disk = Disk(path, size)
    for number, ttl in added:
        now = disk.engine.clock()
        disk.values.drop_expired(now, 1000)
        disk.add(key(number), NEVER if ttl == NEVER else now + ttl * 3_600_000_000)
        disk.syncs.sync()
    expected = dict(disk.values.items())
    disk.reopen(clean)
    assert dict(disk.values.items()) == expected
    disk.engine.close()
