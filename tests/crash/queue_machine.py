"""What a queue does with its store, beside a model of lists."""

from __future__ import annotations

import random
from typing import Final

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from leveret.storage.engine import StorageEngine
from leveret.storage.event_format import EventKind
from leveret.storage.interface import Entry
from leveret.storage.message import Envelope, Message, TimedMessage
from leveret.storage.stores.segment_store import SegmentStore
from tests.support.crashing_files import CrashingFiles
from tests.support.messages import ENVELOPE_FIELDS
from tests.support.segment_stores import Clock, open_engine

ALL: Final = 1 << 20
ENVELOPES: Final = [
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
    return message.body, message.expires_at, *(getattr(message.envelope, name) for name in ENVELOPE_FIELDS)


class QueueMachine(RuleBasedStateMachine):
    """Rows are all messages that may still be somewhere; ready and taken are those that the store has."""

    def __init__(self) -> None:
        super().__init__()
        self.files = CrashingFiles()
        self.clock = Clock()
        self.engine: StorageEngine = open_engine(self.files, self.clock)
        self.qid = self.engine.create_queue(True, {"name": "q"}).qid
        self.engine.commit()
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
        entries = self.store.take(count, limit)[0]
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
        assert self.store.drop(count, ALL, EventKind.EXPIRED, now) == (len(dropped), self._size(dropped))
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
