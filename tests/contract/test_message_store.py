"""Contract of all message stores. Most of it is that any history agrees with plain lists (`test_looking.py`)."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from leveret.storage.event_format import EventKind
from leveret.storage.interface import Entry, MessageStore
from leveret.storage.message import Envelope, Message, TimedMessage
from tests.contract.stores import STORES
from tests.support.examples import examples
from tests.support.messages import ENVELOPE_FIELDS, bodies, message, size_of

#: More messages and bytes than any test appends.
ALL = 1 << 20


@pytest.fixture(params=list(STORES))
def store(request: pytest.FixtureRequest) -> MessageStore:
    return STORES[request.param]()


def fill(store: MessageStore, *texts: str) -> list[Message]:
    messages = [message(text) for text in texts]
    store.append(messages, size_of(messages))
    return messages


def test_an_empty_store_has_nothing(store: MessageStore) -> None:
    assert (store.ready_count, store.ready_bytes) == (0, 0)
    assert store.take(ALL, ALL)[0] == []
    assert store.peek() is None
    assert store.purge() == 0


def content(each: Message | None) -> object:
    """Return the fields that identify a message; a store may return a new object for the same message."""
    return each and (each.body, each.expires_at, *(getattr(each.envelope, name) for name in ENVELOPE_FIELDS))


def test_messages_come_out_in_order_with_all_they_say(store: MessageStore) -> None:
    envelopes = [Envelope(b"\x01x\x01k", b"header 1", True, 3, 60_000), Envelope(b"\x00\x00", b"header 2", priority=3)]
    for envelope, body in zip((envelopes[0], envelopes[1], envelopes[0]), (b"a", b"bb", b"ccc"), strict=True):
        store.append([Message(envelope, body)], len(body))
    assert (store.ready_count, store.ready_bytes) == (3, 6)
    taken = store.take(ALL, ALL)[0]
    assert [entry[1].body for entry in taken] == [b"a", b"bb", b"ccc"]
    for entry, envelope in zip(taken, (envelopes[0], envelopes[1], envelopes[0]), strict=True):
        assert content(entry[1]) == content(Message(envelope, entry[1].body))
    assert [entry[2] for entry in taken] == [False] * 3
    assert (store.ready_count, store.ready_bytes) == (0, 0)


def test_a_take_of_no_bytes_takes_nothing(store: MessageStore) -> None:
    fill(store, "a")
    assert store.take(1, 0) == ([], 0)


def test_a_drop_of_bytes_leaves_empty_bodies_behind_them(store: MessageStore) -> None:
    fill(store, "aaaa")
    fill(store, "")
    assert store.drop(ALL, 4) == (1, 4)
    assert (store.ready_count, store.ready_bytes) == (1, 0)


@pytest.mark.parametrize(("limit", "expected"), [(1, ["a"]), (2, ["a", "bbb"]), (5, ["a", "bbb", "cc"])])
def test_one_append_may_have_bodies_of_different_lengths(store: MessageStore, limit: int, expected: list[str]) -> None:
    messages = [message(text) for text in ("a", "bbb", "cc", "d")]
    store.append(messages, size_of(messages), longest=3)
    assert (store.ready_count, store.ready_bytes) == (4, 7)
    assert bodies(store.take(ALL, limit)[0]) == expected


def test_numbers_are_not_used_again_after_a_purge(store: MessageStore) -> None:
    fill(store, "a", "b", "c")
    (first,) = store.take(1, ALL)[0]
    store.purge()
    fill(store, "d")
    (last,) = store.take(1, ALL)[0]
    assert last[0] > first[0] + 2


def test_a_long_queue_is_dropped_in_a_few_calls(store: MessageStore) -> None:
    for _ in range(10):
        fill(store, *["abc"] * 1000)
    calls = 0
    while store.ready_count:
        dropped, dropped_bytes = store.drop(ALL, ALL)
        assert dropped_bytes == 3 * dropped > 0
        calls += 1
    assert calls <= 20
    assert store.ready_bytes == 0


def test_close_forgets_everything(store: MessageStore) -> None:
    fill(store, "a", "b")
    store.take(1, ALL)
    store.close()
    assert (store.ready_count, store.ready_bytes) == (0, 0)


class StoreMachine(RuleBasedStateMachine):
    """A store and a model of two lists: ready messages, in order, and taken messages.

    A row of the model is arrival number, message, redelivered.
    """

    make_store: Callable[[], MessageStore]

    def __init__(self) -> None:
        super().__init__()
        self.store = self.make_store()
        self.arrived = 0
        self.ready: list[tuple[int, Message, bool]] = []
        self.taken: dict[int, Entry] = {}
        self.numbers: dict[int, int] = {}

    @rule(count=st.integers(1, 8), size=st.integers(0, 40), expires_at=st.sampled_from([0, 0, 10, 20, 30]))
    def append(self, count: int, size: int, expires_at: int) -> None:
        # Bodies differ, so that no two messages can be taken for each other; some are empty nevertheless.
        texts = [f"{self.arrived + at:x}".zfill(size)[-size:] if size else "" for at in range(count)]
        messages = [message(text) for text in texts]
        if expires_at:
            messages = [TimedMessage(each.envelope, each.body, expires_at) for each in messages]
        self.store.append(messages, count * size)
        for each in messages:
            self.ready.append((self.arrived, each, False))
            self.arrived += 1

    @rule(count=st.integers(1, 12), limit=st.integers(1, 100))
    def take(self, count: int, limit: int) -> None:
        entries = self.store.take(count, limit)[0]
        expected: list[tuple[int, Message, bool]] = []
        while self.ready and len(expected) < count and size_of([row[1] for row in expected]) < limit:
            expected.append(self.ready.pop(0))
        self._compare(entries, expected)

    @rule(now=st.integers(5, 35), count=st.integers(1, 12))
    def take_expired(self, now: int, count: int) -> None:
        entries = self.store.take_expired(now, count)
        expected: list[tuple[int, Message, bool]] = []
        while self.ready and len(expected) < count and 0 < self.ready[0][1].expires_at <= now:
            expected.append(self.ready.pop(0))
        self._compare(entries, expected)

    @rule(count=st.integers(1, 12), limit=st.integers(1, 100))
    def drop(self, count: int, limit: int) -> None:
        dropped: list[Message] = []
        while self.ready and len(dropped) < count and size_of(dropped) < limit:
            dropped.append(self.ready.pop(0)[1])
        assert self.store.drop(count, limit) == (len(dropped), size_of(dropped))

    @rule(now=st.integers(5, 35), count=st.integers(1, 12))
    def drop_expired(self, now: int, count: int) -> None:
        dropped: list[Message] = []
        while self.ready and len(dropped) < count and 0 < self.ready[0][1].expires_at <= now:
            dropped.append(self.ready.pop(0)[1])
        assert self.store.drop(count, ALL, EventKind.EXPIRED, now) == (len(dropped), size_of(dropped))

    def _compare(self, entries: list[Entry], expected: list[tuple[int, Message, bool]]) -> None:
        """Compare taken messages with the expected ones, and add them to the taken ones."""
        assert [(content(entry[1]), entry[2]) for entry in entries] == [(content(row[1]), row[2]) for row in expected]
        for (arrival, _, _), entry in zip(expected, entries, strict=True):
            # A message never changes its number.
            assert self.numbers.setdefault(arrival, entry[0]) == entry[0]
            self.taken[arrival] = entry

    @precondition(lambda self: self.taken)
    @rule(data=st.data())
    def requeue(self, data: st.DataObject) -> None:
        chosen = self._choose(data)
        self.store.requeue([self.taken[arrival] for arrival in chosen])
        self.ready += [(arrival, self.taken.pop(arrival)[1], True) for arrival in chosen]
        self.ready.sort(key=lambda row: row[0])

    @precondition(lambda self: self.taken)
    @rule(data=st.data())
    def settle(self, data: st.DataObject) -> None:
        chosen = self._choose(data)
        self.store.settle([self.taken.pop(arrival) for arrival in chosen])

    @rule()
    def purge(self) -> None:
        assert self.store.purge() == len(self.ready)
        self.ready.clear()

    @invariant()
    def counts_are_exact(self) -> None:
        assert self.store.ready_count == len(self.ready)
        assert self.store.ready_bytes == size_of([row[1] for row in self.ready])
        assert content(self.store.peek()) == content(self.ready[0][1] if self.ready else None)

    @invariant()
    def numbers_rise_with_arrival(self) -> None:
        numbers = [number for _, number in sorted(self.numbers.items())]
        assert all(earlier < later for earlier, later in pairwise(numbers))

    def teardown(self) -> None:
        self.store.close()
        assert (self.store.ready_count, self.store.ready_bytes) == (0, 0)

    def _choose(self, data: st.DataObject) -> list[int]:
        """Return indices of some taken messages, in any order."""
        return data.draw(st.lists(st.sampled_from(sorted(self.taken)), unique=True, min_size=1))


SETTINGS = settings(max_examples=examples(80), stateful_step_count=40)
