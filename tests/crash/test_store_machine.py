"""Any history of a store beside a model of lists, with clean stops, killed processes and power losses in between."""

from __future__ import annotations

import os
from itertools import pairwise

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, rule, run_state_machine_as_test

from leveret.storage.compaction import plan
from tests.crash.queue_machine import ALL, ENVELOPES, QueueMachine, content
from tests.support.segment_stores import open_engine
from tests.support.simulated_files import SimulatedFiles

#: The same ones in each run; to look for faults on purpose, ask for many more.
HISTORIES = int(os.environ.get("STORE_HISTORIES", "200"))


class DiskMachine(QueueMachine):
    """Beside that, what the end of a turn does, ends and beginnings."""

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
        unwritten = self.store.paging.first_unwritten(self.store.next_seq)
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
        at, _ = self.store.paging.preload(0, count, below)
        self.store.paging.preload(at, count, below)

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
        """Compact all segments with dead messages, without waiting until it pays."""
        self.flush()
        job = plan(self.store.log) if not self.engine._events.waiting else None
        if job is not None:
            self.engine._compactor._start(self.store, job, urgent=True)
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
        entries = again.store(again.queues[self.qid]).take(ALL, ALL)[0]
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
        written = self.store.paging.first_unwritten(self.store.next_seq)
        for segment in segments:
            inside = range(segment.first_seq, segment.last_seq + 1)
            assert segment.live == sum(row.persistent and row.seq in inside and row.seq < written for row in living)


def test_any_history_agrees_with_plain_lists() -> None:
    run_state_machine_as_test(
        DiskMachine,
        settings=settings(max_examples=HISTORIES, stateful_step_count=60),
    )
