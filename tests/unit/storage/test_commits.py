"""Messages that move: the original is removed after the copy is on disk, not before."""

from __future__ import annotations

import random
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

import pytest

from leveret.storage.commit import SyncMode
from leveret.storage.engine import EngineOptions, StorageEngine
from leveret.storage.event_format import DEAD_LETTERED, EventKind
from leveret.storage.message import Envelope, Message
from leveret.storage.stores.segment_store import SegmentStore
from tests.support.segment_stores import Clock, open_engine
from tests.support.simulated_files import ROOT, SimulatedFiles
from tests.support.slow_files import SlowFiles

ALL = 1 << 20
PERSISTENT = Envelope(b"\x00\x01q", bytes(14), True)
MOVES = [(EventKind.REJECT, DEAD_LETTERED), (EventKind.RETURNED, 0), (EventKind.MOVED, 0)]


class Moving:
    """An engine with two queues, whose callbacks wait for the test."""

    def __init__(self, sync: SyncMode = SyncMode.ALWAYS, **more: Any) -> None:
        self.files = SlowFiles(1)
        self.calls: SimpleQueue[Callable[[], None]] = SimpleQueue()
        options = EngineOptions(
            segment_bytes=1500, disk_free_limit=0, ballast_bytes=0, sync=sync, sync_interval=1000, **more
        )
        self.engine = StorageEngine(ROOT, self.calls.put, files=self.files, clock=Clock(), options=options)
        self.source_queue, self.target_queue = (self.engine.create_queue(True, {"name": name}) for name in "st")
        self.source, self.target = map(self.engine.store, (self.source_queue, self.target_queue))

    def publish(self, *bodies: bytes) -> None:
        """Publish to the source, and have it synced."""
        for body in bodies:
            self.source.append([Message(PERSISTENT, body)], len(body))
        self.engine.flush()
        done: list[None] = []
        self.engine.commit(lambda: done.append(None))
        while not done:
            self.calls.get(timeout=30)()

    def move(self, count: int, kind: EventKind = EventKind.REJECT, flags: int = DEAD_LETTERED) -> None:
        """Move messages from the source to the target."""
        entries, _ = self.source.take(count, ALL)
        for _, message, _ in entries:
            self.target.append([message], len(message.body))
        self.source.settle(entries, kind, flags)

    def wait_until_gone(self) -> None:
        """Let the engine call back until the originals are forgotten."""
        while self.source.leaving:
            self.calls.get(timeout=30)()


def bodies(store: SegmentStore) -> list[bytes]:
    return [entry[1].body for entry in store.take(ALL, ALL)[0]]


def found_after_power_loss(files: SlowFiles, seed: int = 0) -> list[bytes]:
    """What is in all queues once power has gone."""
    engine = open_engine(files.after_power_loss(random.Random(seed)), Clock(1_800_000_000_000_000))
    return [body for queue in engine.queues.values() for store in queue.stores.values() for body in bodies(store)]


def found_after_kill(files: SimulatedFiles) -> list[bytes]:
    """What is in all queues once the process was killed."""
    copy = SimulatedFiles()
    copy.restore(files.snapshot())
    engine = open_engine(copy, Clock(1_800_000_000_000_000))
    return [body for queue in engine.queues.values() for store in queue.stores.values() for body in bodies(store)]


@pytest.mark.parametrize(("kind", "flags"), MOVES)
def test_the_original_goes_once_the_copy_is_synced(kind: EventKind, flags: int) -> None:
    moving = Moving()
    moving.publish(b"one")
    moving.move(1, kind, flags)
    moving.engine.flush()
    # Somebody else has the event log synced.
    moving.engine.commit(events=True)
    assert found_after_kill(moving.files) == [b"one", b"one"], "found in two places rather than in none"
    # Nobody waits for a confirm, and the copy is still synced.
    moving.wait_until_gone()
    moving.engine.flush()
    assert found_after_kill(moving.files) == [b"one"]
    assert moving.engine.close()


def test_the_original_goes_once_the_queue_of_the_copy_is_defined() -> None:
    undefined: list[Callable[[], None]] = []
    moving = Moving(when_defined=undefined.append)
    moving.publish(b"one", b"two")
    for _ in range(2):
        moving.move(1)
        moving.engine.flush()
    synced: list[None] = []
    moving.engine.commit(lambda: synced.append(None))
    while not synced:
        moving.calls.get(timeout=30)()
    # Whatever the order is in which they are written, an earlier original does not go later.
    for defined, left in ((1, [b"one", b"two"]), (0, [])):
        undefined[defined]()
        moving.engine.flush()
        assert found_after_kill(moving.files) == [*left, b"one", b"two"]
    assert moving.engine.close()


def test_who_uses_the_store_does_not_see_the_original_any_more() -> None:
    moving = Moving()
    moving.publish(b"one", b"two")
    moving.move(1)
    moving.engine.flush()
    source = moving.source
    assert (source.ready_count, source.ready_bytes, source.taken_count, source.taken_bytes) == (1, 3, 0, 0)
    assert (source.persistent_count, source.persistent_bytes) == (1, 3)
    assert (source.leaving.count, source.leaving.body_bytes) == (1, 3)
    moving.wait_until_gone()
    assert (source.leaving.count, source.leaving.body_bytes) == (0, 0)
    assert moving.engine.close()


def test_what_was_never_written_does_not_wait() -> None:
    moving = Moving()
    moving.source.append([Message(PERSISTENT, b"one")], 3)
    moving.move(1)
    assert not moving.source.leaving
    moving.engine.flush()
    assert found_after_kill(moving.files) == [b"one"]
    assert moving.engine.close()


@pytest.mark.parametrize("seed", range(8))
def test_a_queue_that_is_deleted_leaves_the_copies_of_its_messages(seed: int) -> None:
    moving = Moving()
    moving.publish(b"one", b"two")
    moving.move(1)
    moving.engine.delete_queue(moving.source_queue)
    assert b"one" in found_after_power_loss(moving.files, seed)
    # The group that had the copy calls back to a closed store.
    moving.engine.flush()
    assert moving.engine.close()
    assert found_after_kill(moving.files) == [b"one"]


@pytest.mark.parametrize("sync", SyncMode)
def test_a_clean_stop_leaves_each_message_once(sync: SyncMode) -> None:
    moving = Moving(sync)
    moving.publish(b"one", b"two", b"three")
    moving.move(2)
    assert moving.engine.close()
    assert found_after_power_loss(moving.files) == [b"three", b"one", b"two"]


def test_segments_go_and_ticks_come_while_messages_move_all_the_time() -> None:
    moving = Moving()
    engine, source = moving.engine, moving.source
    moving.publish(*[b"%03d" % number + b"x" * 100 for number in range(200)])
    before, ticked = len(source.log.segments), engine._ticked
    while source.ready_count:
        moving.move(5)
        engine.flush()
        engine.housekeeping()
        if source.ready_count:
            moving.calls.get(timeout=30)()
    assert len(source.log.segments) < before / 2
    assert engine._ticked > ticked
    assert engine.close()
    assert len(found_after_kill(moving.files)) == 200


def test_a_promise_that_a_message_has_moved_waits_for_the_event() -> None:
    moving = Moving()
    moving.publish(b"one")
    moving.move(1)
    moving.engine.flush()
    synced: list[None] = []
    moving.engine.commit(lambda: synced.append(None), events=True)
    while not synced:
        moving.calls.get(timeout=30)()
        moving.engine.flush()
    assert found_after_power_loss(moving.files) == [b"one"]
    assert moving.engine.close()


def test_a_promise_waits_for_its_own_event_not_for_that_of_an_earlier_one() -> None:
    undefined: list[Callable[[], None]] = []
    moving = Moving(when_defined=undefined.append)
    moving.publish(b"one", b"two")
    promised: list[int] = []
    for number in (1, 2):
        moving.move(1)
        moving.engine.flush()
        moving.engine.commit(lambda number=number: promised.append(number), events=True)  # type: ignore[misc]
    synced: list[None] = []
    moving.engine.commit(lambda: synced.append(None))
    while not synced:
        moving.calls.get(timeout=30)()
    undefined[0]()
    moving.engine.flush()
    undefined[1]()
    while not promised:
        moving.calls.get(timeout=30)()
    assert promised == [1]
    moving.engine.flush()
    while len(promised) < 2:
        moving.calls.get(timeout=30)()
    assert promised == [1, 2]
    assert moving.engine.close()
