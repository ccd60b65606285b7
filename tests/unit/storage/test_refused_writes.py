"""What the engine does when a store cannot write: it continues, and retries later."""

from __future__ import annotations

import pytest

from leveret.storage.message import Envelope, Message
from leveret.storage.stores.segment_store import SegmentStore
from tests.support.segment_stores import open_engine
from tests.support.simulated_files import SimulatedFiles

ALL = 1 << 20
PERSISTENT = Envelope(b"\x00\x01q", bytes(14), True)


def publish(store: SegmentStore, *bodies: bytes) -> None:
    for body in bodies:
        store.append([Message(PERSISTENT, body)], len(body))


def test_a_full_disk_is_not_tried_again_at_once() -> None:
    files = SimulatedFiles()
    asked: list[None] = []
    engine = open_engine(files, on_work=lambda: asked.append(None))
    full, other = (engine.store(engine.create_queue(True, {"name": name})) for name in ("full", "other"))
    files.room = 300
    publish(full, b"x" * 500)
    assert len(asked) == 1
    assert [*engine.flush()] == [full]
    assert len(asked) == 1, "it would come to a loop without a pause"
    publish(other, b"y")
    assert len(asked) == 2, "others have to be written still"
    files.room = None
    engine.housekeeping()
    assert not engine.flush()
    assert full.log.persistent_count == other.log.persistent_count == 1


def test_a_deleted_queue_is_not_written_again() -> None:
    files = SimulatedFiles()
    engine = open_engine(files)
    queue = engine.create_queue(True, {"name": "q"})
    store = engine.store(queue)
    files.room = 300
    publish(store, b"x" * 500)
    assert [*engine.flush()] == [store]
    engine.delete_queue(queue)
    assert engine.flush() == {}


def test_a_segment_whose_file_was_removed_is_no_obstacle(caplog: pytest.LogCaptureFixture) -> None:
    files = SimulatedFiles()
    engine = open_engine(files)
    store = engine.store(engine.create_queue(True, {"name": "q"}))
    publish(store, b"1")
    assert not engine.flush()
    engine.commit()
    store.log.chains[0].release()
    files.unlink(f"{store.place.directory}/{store.log.segments[0].name}")
    publish(store, b"2")
    assert not engine.flush()
    engine.commit(events=True)
    assert [entry[1].body for entry in store.take(ALL, ALL)[0]] == [b"2"]
    assert store.lost_count == 1
    assert "1 messages from number 1 on cannot be read; they are lost" in caplog.text
    files.stop()
    again = open_engine(files)
    assert [entry[1].body for entry in again.store(again.queues[1]).take(ALL, ALL)[0]] == [b"2"]


def test_times_of_arrival_of_what_is_on_disk_are_not_kept() -> None:
    engine = open_engine(SimulatedFiles())
    store = engine.store(engine.create_queue(True, {"name": "q"}))
    for number in range(50):
        publish(store, b"%d" % number)
        engine.flush()
    assert len(store.ram._arrivals) <= 1
    taken = store.take(1, ALL)[0]
    publish(store, b"x")
    engine.flush()
    assert len(store.ram._arrivals) <= 2
    store.settle(taken)
