"""What several priorities mean; what a store does besides is in the contract of all stores."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from leveret.storage.event_format import EventKind
from leveret.storage.interface import Entry
from leveret.storage.message import Envelope, Message, TimedMessage
from leveret.storage.stores.priority_store import PriorityStore
from tests.support.examples import examples
from tests.support.messages import bodies
from tests.support.segment_stores import memory_store

MAX_PRIORITY = 5
ALL = 1 << 20

#: Priority as counted, number of arrival, message, redelivered.
Row = tuple[int, int, Message, bool]


def append(store: PriorityStore, priority: int, body: str, expires_at: int = 0) -> Message:
    envelope = Envelope(b"\x00\x01q", b"", priority=priority)
    octets = body.encode()
    message = TimedMessage(envelope, octets, expires_at) if expires_at else Message(envelope, octets)
    store.append([message], len(octets))
    return message


def filled(*messages: tuple[int, str]) -> PriorityStore:
    store = PriorityStore(MAX_PRIORITY, lambda level: memory_store())
    for priority, body in messages:
        append(store, priority, body)
    return store


def test_the_place_of_a_message_is_its_priority_and_its_number_there() -> None:
    store = filled((1, "a"), (9, "b"), (1, "c"))
    assert [store.place_of(entry) for entry in store.take(ALL, ALL)[0]] == [(5, 1), (1, 1), (1, 2)]


def test_what_was_not_stored_is_noted_by_the_lowest_priority_there_is() -> None:
    store = filled()
    store.note(EventKind.REFUSED, 2, 7)
    assert [*store.levels] == [0]
    store = filled((4, "a"), (3, "b"))
    store.note(EventKind.REFUSED, 2, 7)
    assert sorted(store.levels) == [3, 4]
    assert bodies(store.take(ALL, ALL)[0]) == ["a", "b"]


class PriorityMachine(RuleBasedStateMachine):
    """The store beside a sorted list."""

    def __init__(self) -> None:
        super().__init__()
        self.store = PriorityStore(MAX_PRIORITY, lambda level: memory_store())
        self.arrived = 0
        self.ready: list[Row] = []
        self.taken: list[tuple[Row, Entry]] = []

    @rule(priority=st.integers(0, 8), size=st.integers(0, 5), expires_at=st.sampled_from([0, 0, 10, 20]))
    def append(self, priority: int, size: int, expires_at: int) -> None:
        message = append(self.store, priority, "x" * size, expires_at)
        self.ready.append((min(priority, MAX_PRIORITY), self.arrived, message, False))
        self.ready.sort(key=lambda row: (-row[0], row[1]))
        self.arrived += 1

    @rule(count=st.integers(1, 10), limit=st.integers(1, 20))
    def take(self, count: int, limit: int) -> None:
        expected: list[Row] = []
        while self.ready and len(expected) < count and sum(len(row[2].body) for row in expected) < limit:
            expected.append(self.ready.pop(0))
        self._compare(self.store.take(count, limit)[0], expected)

    @rule(count=st.integers(1, 10), now=st.integers(5, 25))
    def take_expired(self, count: int, now: int) -> None:
        expected: list[Row] = []
        while self.ready and len(expected) < count and 0 < self.ready[0][2].expires_at <= now:
            expected.append(self.ready.pop(0))
        self._compare(self.store.take_expired(now, count), expected)

    @precondition(lambda self: self.taken)
    @rule(data=st.data(), back=st.booleans())
    def give_up(self, data: st.DataObject, back: bool) -> None:
        chosen = data.draw(st.permutations(range(len(self.taken))))[: data.draw(st.integers(1, 5))]
        rows = [self.taken[at] for at in chosen]
        self.taken = [held for at, held in enumerate(self.taken) if at not in chosen]
        (self.store.requeue if back else self.store.settle)([entry for _, entry in rows])
        if back:
            self.ready += [(priority, arrival, message, True) for (priority, arrival, message, _), _ in rows]
            self.ready.sort(key=lambda row: (-row[0], row[1]))

    @rule()
    def purge(self) -> None:
        assert self.store.purge() == len(self.ready)
        self.ready.clear()

    @invariant()
    def counts_are_exact(self) -> None:
        assert self.store.ready_count == len(self.ready)
        assert self.store.ready_bytes == sum(len(row[2].body) for row in self.ready)
        assert self.store.peek() is (self.ready[0][2] if self.ready else None)

    def _compare(self, entries: list[Entry], expected: list[Row]) -> None:
        assert [(entry[1], entry[2]) for entry in entries] == [(row[2], row[3]) for row in expected]
        self.taken += zip(expected, entries, strict=True)


PriorityMachine.TestCase.settings = settings(max_examples=examples(80), stateful_step_count=40)
TestPriorityMachine = PriorityMachine.TestCase
