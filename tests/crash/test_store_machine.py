"""Any history of a store beside a model of lists, with clean stops, killed processes and power losses in between."""

from __future__ import annotations

import random
from itertools import pairwise

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from storage.compaction import plan
from storage.engine import StorageEngine
from storage.interface import Entry
from storage.message import Envelope, Message, TimedMessage
from storage.segment_store import SegmentStore
from tests.support.crashing_files import CrashingFiles
from tests.support.segment_stores import Clock, open_engine
from tests.support.simulated_files import SimulatedFiles

ALL = 1 << 20
ENVELOPES = [
    Envelope(b"\x00\x01q", bytes(14), True),
    Envelope(b"\x01x\x01k", bytes(15), True, 3, 60_000, True, ("a", "b\udcff")),
    Envelope(b"\x00\x01q", bytes(14), False),
]


class Row:
    """A message and what has become of it."""

    def __init__(self, seq: int, message: Message) -> None:
        self.seq = seq
        self.message = message
        self.redelivered = False
        self.written = self.confirmed = False
        self.settled = self.settlement_written = self.settlement_synced = False

    @property
    def persistent(self) -> bool:
        return self.message.envelope.persistent


def content(message: Message) -> object:
    return message.body, message.expires_at, *(getattr(message.envelope, name) for name in Envelope.__slots__)


class DiskMachine(RuleBasedStateMachine):
    """Rows are all messages that may still be somewhere; ready and taken are those that the store has."""

    def __init__(self) -> None:
        super().__init__()
        self.files = CrashingFiles()
        self.clock = Clock()
        self.engine: StorageEngine = open_engine(self.files, self.clock)
        self.qid = self.engine.create_queue(True, {"name": "q"}).qid
        self.rows: dict[int, Row] = {}
        self.ready: list[int] = []
        self.taken: dict[int, Entry] = {}
        self.highest = 0
        self.arrived = 0

    @initialize(seed=st.integers(0, 1 << 32))
    def seed(self, seed: int) -> None:
        self.rng = random.Random(seed)

    @property
    def store(self) -> SegmentStore:
        return self.engine.store(self.engine.queues[self.qid])

    # --- what a queue does --------------------------------------------------------------------------------------------

    @rule(
        kinds=st.lists(st.integers(0, len(ENVELOPES) - 1), min_size=1, max_size=6),
        size=st.sampled_from([0, 5, 60, 60, 700]),
        expires=st.sampled_from([0, 0, 10, 20]),
    )
    def append(self, kinds: list[int], size: int, expires: int) -> None:
        for kind in kinds:
            body = f"{self.arrived}.".encode() + (b"LVT1" * size)[:size]
            self.arrived += 1
            message = TimedMessage(ENVELOPES[kind], body, expires) if expires else Message(ENVELOPES[kind], body)
            seq = self.store.next_seq
            assert seq > self.highest, "a number is never used again"
            self.highest = seq
            self.store.append([message], len(body))
            self.rows[seq] = Row(seq, message)
            self.ready.append(seq)

    @rule(count=st.integers(1, 12), limit=st.sampled_from([1, 100, ALL]))
    def take(self, count: int, limit: int) -> None:
        entries = self.store.take(count, limit)
        expected: list[int] = []
        while (
            self.ready and len(expected) < count and sum(len(self.rows[seq].message.body) for seq in expected) < limit
        ):
            expected.append(self.ready.pop(0))
        self._compare(entries, expected)

    @rule(now=st.sampled_from([9, 15, 25]), count=st.integers(1, 12))
    def take_expired(self, now: int, count: int) -> None:
        expected: list[int] = []
        while self.ready and len(expected) < count and 0 < self.rows[self.ready[0]].message.expires_at <= now:
            expected.append(self.ready.pop(0))
        self._compare(self.store.take_expired(now, count), expected)

    @rule(count=st.integers(1, 12), limit=st.sampled_from([1, 100, ALL]))
    def drop(self, count: int, limit: int) -> None:
        dropped: list[int] = []
        while self.ready and len(dropped) < count and self._size(dropped) < limit:
            dropped.append(self.ready.pop(0))
        assert self.store.drop(count, limit) == (len(dropped), self._size(dropped))
        self._settled(dropped)

    @rule(now=st.sampled_from([9, 15, 25]), count=st.integers(1, 12))
    def drop_expired(self, now: int, count: int) -> None:
        dropped: list[int] = []
        while self.ready and len(dropped) < count and 0 < self.rows[self.ready[0]].message.expires_at <= now:
            dropped.append(self.ready.pop(0))
        assert self.store.drop_expired(now, count) == (len(dropped), self._size(dropped))
        self._settled(dropped)

    @precondition(lambda self: self.taken)
    @rule(data=st.data())
    def requeue(self, data: st.DataObject) -> None:
        chosen = self._choose(data)
        self.store.requeue([self.taken.pop(seq) for seq in chosen])
        for seq in chosen:
            self.rows[seq].redelivered = True
        self.ready = sorted(self.ready + chosen)

    @precondition(lambda self: self.taken)
    @rule(data=st.data())
    def settle(self, data: st.DataObject) -> None:
        chosen = self._choose(data)
        self.store.settle([self.taken.pop(seq) for seq in chosen])
        self._settled(chosen)

    @rule()
    def purge(self) -> None:
        assert self.store.purge() == len(self.ready)
        self._settled(self.ready)
        self.ready.clear()

    # --- what the end of a turn does ----------------------------------------------------------------------------------

    @rule()
    def flush(self) -> None:
        self.engine.flush()
        if self.engine._events.waiting:
            assert self.files.room is not None
        else:
            for row in self.rows.values():
                row.settlement_written = row.settlement_written or row.settled
            if self.files.room is None:
                assert all(segment.live > 0 for segment in self.store.log.segments[:-1]), "dead segments go"
        unwritten = self.store._unwritten.first_seq(self.store.next_seq)
        for row in self.rows.values():
            row.written = row.written or (not row.settled and row.persistent and row.seq < unwritten)

    @rule(events=st.booleans())
    def commit(self, events: bool) -> None:
        called: list[bool] = []
        self.engine.commit(lambda: called.append(True), events)
        if not called:
            assert self.engine._events.waiting
            return
        for row in self.rows.values():
            row.confirmed = row.confirmed or (row.written and row.persistent)
            row.settlement_synced = row.settlement_synced or (row.settlement_written and events)

    @rule()
    def housekeeping(self) -> None:
        self.flush()
        if self.files.room is None:
            self.engine.housekeeping()
            self.commit(True)

    @rule()
    def checkpoint(self) -> None:
        self.flush()
        self.engine.checkpoint()

    @rule(lazy=st.booleans())
    def set_lazy(self, lazy: bool) -> None:
        self.store.set_lazy(lazy)

    @rule(body_bytes=st.sampled_from([1, 100, ALL]))
    def page_out(self, body_bytes: int) -> None:
        self.store.page_out(body_bytes)

    @rule(count=st.integers(1, 12), below=st.sampled_from([0, 40, ALL]))
    def preload(self, count: int, below: int) -> None:
        at, _ = self.store.preload(0, count, below)
        self.store.preload(at, count, below)

    @rule(kinds=st.lists(st.integers(0, len(ENVELOPES) - 1), min_size=8, max_size=16))
    def thin_out(self, kinds: list[int]) -> None:
        """Leave segments behind of which little lives."""
        self.append(kinds, 60, 0)
        self.housekeeping()
        self.take(ALL, ALL)
        gone = [seq for seq in self.taken if self.rng.random() < 0.7]
        self.store.settle([self.taken.pop(seq) for seq in gone])
        self._settled(gone)

    @rule()
    def compact(self) -> None:
        """Copy what is sparse, without waiting until it is worth while."""
        self.flush()
        job = plan(self.store.log) if not self.engine._events.waiting else None
        if job is not None:
            self.engine._compactor._start(self.store, job, hurry=True)
            assert not any(segment.busy for segment in self.store.log.segments)

    @rule(room=st.one_of(st.none(), st.integers(0, 2000)))
    def set_room(self, room: int | None) -> None:
        self.files.room = room

    # --- ends and beginnings ------------------------------------------------------------------------------------------

    @rule()
    def stop_and_start(self) -> None:
        self.files.room = None
        self.flush()
        assert self.engine.close()
        kept = sorted(row.seq for row in self.rows.values() if row.persistent and not row.settled)
        taken_once = [seq for seq in kept if seq in self.taken or self.rows[seq].redelivered]
        self._restart(set(kept), set(kept))
        for seq in kept:
            self.rows[seq].redelivered = seq in taken_once

    @rule()
    def kill(self) -> None:
        self.files.stop()
        rows = [row for row in self.rows.values() if row.persistent and row.written]
        self._restart(
            {row.seq for row in rows if not row.settled}, {row.seq for row in rows if not row.settlement_written}
        )

    @rule()
    def lose_power(self) -> None:
        self.files.crash(self.rng)
        rows = self.rows.values()
        certain = {row.seq for row in rows if row.confirmed and not row.settled}
        possible = {row.seq for row in rows if row.persistent and row.written and not row.settlement_synced}
        self._restart(certain, possible)

    @rule(
        changes=st.integers(0, 40),
        power=st.booleans(),
        what=st.sampled_from(["flush", "housekeeping", "checkpoint", "compact", "purge"]),
    )
    def die(self, changes: int, power: bool, what: str) -> None:
        """End while something is done, before any of the changes that it makes to the disk."""
        self.files.room = None
        rows = self.rows.values()
        certain = {row.seq for row in rows if (row.confirmed if power else row.written and row.persistent)}
        certain -= {row.seq for row in rows if row.settled or (what == "purge" and row.seq in self.ready)}
        possible = {row.seq for row in rows if row.persistent}
        possible -= {row.seq for row in rows if (row.settlement_synced if power else row.settlement_written)}
        with self.files.dying(changes):
            if what == "purge":
                self.store.purge()
                self.engine.flush()
            else:
                getattr(self, what)()
            self.engine.commit(events=True)
        if power:
            self.files.crash(self.rng)
        else:
            self.files.stop()
        self._restart(certain, possible)

    def _restart(self, certain: set[int], possible: set[int]) -> None:
        self.files.room = None
        self.engine = open_engine(self.files, self.clock)
        report = self.engine.report
        assert not report.failures
        # A second recovery of the same files finds the same.
        copy = SimulatedFiles()
        copy.restore(self.files.snapshot())
        again = open_engine(copy, self.clock)
        entries = again.store(again.queues[self.qid]).take(ALL, ALL)
        found = [entry[0] for entry in entries]
        assert certain <= set(found) <= possible
        assert found == sorted(found)
        for seq, message, redelivered in entries:
            assert content(message) == content(self.rows[seq].message)
            assert redelivered
        assert (self.store.ready_count, report.messages) == (len(found), len(found))
        assert self.store.ready_bytes == report.body_bytes == sum(len(entry[1].body) for entry in entries)
        assert again.report.lost_messages == 0
        self.rows = {seq: self.rows[seq] for seq in found}
        for row in self.rows.values():
            row.redelivered = row.written = True
            row.confirmed = True
            row.settled = row.settlement_written = row.settlement_synced = False
        self.ready = found
        self.taken.clear()

    # --- always -------------------------------------------------------------------------------------------------------

    @invariant()
    def counts_are_exact(self) -> None:
        store = self.store
        assert store.ready_count == len(self.ready)
        assert store.ready_bytes == sum(len(self.rows[seq].message.body) for seq in self.ready)
        assert store.taken_count == len(self.taken)
        assert store.taken_bytes == sum(len(entry[1].body) for entry in self.taken.values())
        assert store.lost_count == 0
        ram = store.ram
        in_memory = [*ram.window, *ram._kept.values()]
        assert ram.held_bytes == sum(len(message.body) for message in in_memory)
        assert ram.window_bytes == sum(len(message.body) for message in ram.window)
        assert ram.first_seq + len(ram.window) == store.next_seq
        living = [*self.ready, *self.taken]
        persistent = [self.rows[seq] for seq in living if self.rows[seq].persistent]
        assert store.persistent_count == len(persistent)
        head = store.peek()
        assert (head and content(head)) == (content(self.rows[self.ready[0]].message) if self.ready else None)

    @invariant()
    def segments_are_in_order(self) -> None:
        segments = self.store.log.segments
        assert all(earlier.last_seq < later.first_seq for earlier, later in pairwise(segments))
        living = [self.rows[seq] for seq in (*self.ready, *self.taken)]
        written = self.store._unwritten.first_seq(self.store.next_seq)
        for segment in segments:
            inside = range(segment.first_seq, segment.last_seq + 1)
            assert segment.live == sum(row.persistent and row.seq in inside and row.seq < written for row in living)

    def _compare(self, entries: list[Entry], expected: list[int]) -> None:
        assert [(seq, content(message), redelivered) for seq, message, redelivered in entries] == [
            (seq, content(self.rows[seq].message), self.rows[seq].redelivered) for seq in expected
        ]
        for entry in entries:
            self.taken[entry[0]] = entry

    def _size(self, seqs: list[int]) -> int:
        return sum(len(self.rows[seq].message.body) for seq in seqs)

    def _settled(self, seqs: list[int]) -> None:
        for seq in seqs:
            self.rows[seq].settled = True

    def _choose(self, data: st.DataObject) -> list[int]:
        return data.draw(st.lists(st.sampled_from(sorted(self.taken)), unique=True, min_size=1))


def test_any_history_agrees_with_plain_lists() -> None:
    run_state_machine_as_test(
        DiskMachine,
        settings=settings(max_examples=300, stateful_step_count=60, deadline=None, derandomize=True, database=None),
    )
