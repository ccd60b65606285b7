"""A manifest does not grow forever."""

from __future__ import annotations

import copy
import random
from itertools import pairwise
from typing import Final

from leveret.storage.engine import StorageEngine
from leveret.storage.format import EDIT_BYTES
from leveret.storage.message import Envelope, Message
from leveret.storage.segments.manifest import NAME
from leveret.storage.stores.segment_store import SegmentStore
from tests.support.segment_stores import Clock, open_engine
from tests.support.simulated_files import ROOT, SimulatedFiles

ALL: Final = 1 << 20
PERSISTENT: Final = Envelope(b"\x00\x01q", bytes(14), True)
PATH: Final = f"{ROOT}/q/00000001/{NAME}"
MINUTE: Final = 60_000_000


def publish(engine: StorageEngine, store: SegmentStore, body: bytes) -> None:
    store.append([Message(PERSISTENT, body)], len(body))
    assert not engine.flush()
    engine.commit()


def run_empty(engine: StorageEngine, store: SegmentStore, clock: Clock, times: int) -> None:
    """Have a message come and go, and with it a segment, once a minute."""
    for _ in range(times):
        publish(engine, store, b"x")
        store.settle(store.take(1, ALL)[0])
        for _ in range(2):
            clock.time += MINUTE // 2
            engine.housekeeping()


def test_segments_that_have_gone_are_forgotten_after_a_while() -> None:
    files, clock = SimulatedFiles(), Clock()
    engine = open_engine(files, clock)
    store = engine.store(engine.create_queue(True, {"name": "q"}))
    run_empty(engine, store, clock, 1000)
    assert 20 * EDIT_BYTES < files.size(PATH) < 400 * EDIT_BYTES, "what was deleted lately is known still"
    publish(engine, store, b"kept")
    for seed in range(4):
        left = copy.deepcopy(files)
        left.crash(random.Random(seed))
        again = open_engine(left, Clock(clock.time))
        assert [entry[1].body for entry in again.store(again.queues[1]).take(ALL, ALL)[0]] == [b"kept"]
        assert [*again.report.lines()] == []


def test_what_lives_is_said_still() -> None:
    files, clock = SimulatedFiles(), Clock()
    engine = open_engine(files, clock)
    store = engine.store(engine.create_queue(True, {"name": "q"}))
    for number in range(6):
        publish(engine, store, b"%d" % number * 300)
    held = store.take(6, ALL)[0]
    assert len(store.log.segments) > 2
    run_empty(engine, store, clock, 600)
    assert files.size(PATH) < 400 * EDIT_BYTES
    files.crash(random.Random(1))
    again = open_engine(files, clock)
    found = again.store(again.queues[1]).take(ALL, ALL)[0]
    assert [entry[1].body for entry in found] == [entry[1].body for entry in held]
    assert [*again.report.lines()] == []


def test_power_goes_while_it_is_written_anew() -> None:
    files, clock = SimulatedFiles(), Clock()
    engine = open_engine(files, clock)
    store = engine.store(engine.create_queue(True, {"name": "q"}))
    run_empty(engine, store, clock, 110)
    lengths = [files.size(PATH)]
    # It gets too long in one of these turns.
    for seed in range(60):
        run_empty(engine, store, clock, 1)
        left = copy.deepcopy(files)
        left.crash(random.Random(seed))
        again = open_engine(left, Clock(clock.time))
        assert again.report.messages == 0
        assert [*again.report.lines()] == []
        lengths.append(files.size(PATH))
    assert any(later < earlier for earlier, later in pairwise(lengths)), "it has not been written again"
