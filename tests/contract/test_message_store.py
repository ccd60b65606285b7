"""Contract of all message stores."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from leveret.storage.interface import Entry, MessageStore
from leveret.storage.message import Envelope, Message, TimedMessage
from tests.contract.stores import STORES
from tests.support.messages import ENVELOPE, ENVELOPE_FIELDS, bodies, message, size_of

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


def test_a_drop_of_bytes_leaves_empty_bodies_behind_them(store: MessageStore) -> None:
    fill(store, "aaaa")
    fill(store, "")
    assert store.drop(ALL, 4) == (1, 4)
    assert (store.ready_count, store.ready_bytes) == (1, 0)


def test_a_take_ends_at_its_count(store: MessageStore) -> None:
    fill(store, "a", "b", "c")
    assert bodies(store.take(2, ALL)[0]) == ["a", "b"]
    assert bodies(store.take(2, ALL)[0]) == ["c"]


@pytest.mark.parametrize(
    ("limit", "expected"),
    [(1, ["aaa"]), (3, ["aaa"]), (4, ["aaa", "", "bb"]), (5, ["aaa", "", "bb"]), (6, ["aaa", "", "bb", "c"])],
)
def test_a_take_ends_once_its_bytes_are_reached(store: MessageStore, limit: int, expected: list[str]) -> None:
    fill(store, "aaa", "", "bb", "c", "d")
    assert bodies(store.take(ALL, limit)[0]) == expected


@pytest.mark.parametrize(("limit", "expected"), [(1, ["a"]), (2, ["a", "bbb"]), (5, ["a", "bbb", "cc"])])
def test_one_append_may_have_bodies_of_different_lengths(store: MessageStore, limit: int, expected: list[str]) -> None:
    messages = [message(text) for text in ("a", "bbb", "cc", "d")]
    store.append(messages, size_of(messages), longest=3)
    assert (store.ready_count, store.ready_bytes) == (4, 7)
    assert bodies(store.take(ALL, limit)[0]) == expected


def test_the_byte_limit_holds_for_requeued_messages_too(store: MessageStore) -> None:
    fill(store, "aa", "bb", "cc")
    store.requeue(store.take(2, ALL)[0])
    assert bodies(store.take(ALL, 2)[0]) == ["aa"]
    assert bodies(store.take(ALL, 3)[0]) == ["bb", "cc"]


def test_peek_shows_what_the_next_take_takes(store: MessageStore) -> None:
    first, second = fill(store, "a", "b")
    assert content(store.peek()) == content(first)
    entries = store.take(1, ALL)[0]
    assert content(store.peek()) == content(second)
    store.requeue(entries)
    assert content(store.peek()) == content(first)
    assert store.ready_count == 2


def test_requeued_messages_stand_where_they_stood(store: MessageStore) -> None:
    fill(store, "a", "b", "c", "d", "e")
    a, b, c, d = store.take(4, ALL)[0]
    store.requeue([d])
    store.requeue([b, a])
    assert (store.ready_count, store.ready_bytes) == (4, 4)
    taken = store.take(ALL, ALL)[0]
    assert bodies(taken) == ["a", "b", "d", "e"]
    assert [entry[2] for entry in taken] == [True, True, True, False]
    store.requeue([taken[2], c])
    assert bodies(store.take(ALL, ALL)[0]) == ["c", "d"]


def test_numbers_rise_and_are_kept(store: MessageStore) -> None:
    fill(store, "a", "b")
    taken = store.take(ALL, ALL)[0]
    store.requeue(taken)
    again = store.take(ALL, ALL)[0]
    assert [entry[0] for entry in again] == [entry[0] for entry in taken]
    assert again[0][0] < again[1][0]


def test_a_purge_takes_ready_messages_only(store: MessageStore) -> None:
    fill(store, "a", "b", "c", "d")
    a, b = store.take(2, ALL)[0]
    store.requeue([b])
    assert store.purge() == 3
    assert (store.ready_count, store.ready_bytes, store.peek()) == (0, 0, None)
    fill(store, "e")
    store.requeue([a])
    taken = store.take(ALL, ALL)[0]
    assert bodies(taken) == ["a", "e"]


def test_numbers_are_not_used_again_after_a_purge(store: MessageStore) -> None:
    fill(store, "a", "b", "c")
    (first,) = store.take(1, ALL)[0]
    store.purge()
    fill(store, "d")
    (last,) = store.take(1, ALL)[0]
    assert last[0] > first[0] + 2


def test_settled_messages_do_not_come_back(store: MessageStore) -> None:
    fill(store, "a", "b", "c")
    a, b, c = store.take(ALL, ALL)[0]
    store.settle([b])
    store.requeue([c, a])
    store.settle([])
    assert bodies(store.take(ALL, ALL)[0]) == ["a", "c"]


def expiring(store: MessageStore, *times: int) -> None:
    """Append messages with these expiry times as their bodies; 0 for never."""
    for expires_at in times:
        body = str(expires_at).encode()
        store.append([TimedMessage(ENVELOPE, body, expires_at) if expires_at else Message(ENVELOPE, body)], len(body))


def test_expired_messages_are_taken_from_the_head_only(store: MessageStore) -> None:
    expiring(store, 10, 20, 30, 0, 10)
    assert bodies(store.take_expired(9, ALL)) == []
    assert bodies(store.take_expired(20, ALL)) == ["10", "20"]
    assert bodies(store.take_expired(20, ALL)) == []
    assert bodies(store.take_expired(99, ALL)) == ["30"]
    assert bodies(store.take_expired(99, ALL)) == [], "what never expires keeps those behind it"
    assert (store.ready_count, store.ready_bytes) == (2, 3)
    assert bodies(store.take(ALL, ALL)[0]) == ["0", "10"]


def test_taking_expired_messages_ends_at_its_count(store: MessageStore) -> None:
    expiring(store, 10, 10, 10)
    assert len(store.take_expired(10, 2)) == 2
    assert len(store.take_expired(10, 2)) == 1
    assert store.take_expired(10, 2) == []


def test_dropped_messages_are_gone(store: MessageStore) -> None:
    for text in ("a", "bb", "ccc", "dddd", "eeeee"):
        fill(store, text)
    first, second = store.take(2, ALL)[0]
    store.requeue([second])
    assert store.drop(1, ALL) == (1, 2)
    assert store.drop(ALL, 4) == (2, 7), "it ends once the bytes are reached"
    assert (store.ready_count, store.ready_bytes) == (1, 5)
    store.requeue([first])
    assert store.drop(ALL, 1) == (1, 1)
    assert bodies(store.take(ALL, ALL)[0]) == ["eeeee"]
    assert store.drop(ALL, ALL) == (0, 0)


def test_expired_messages_are_dropped_from_the_head_only(store: MessageStore) -> None:
    expiring(store, 10, 20, 30, 0, 10)
    assert store.drop_expired(9, ALL) == (0, 0)
    assert store.drop_expired(20, 1) == (1, 2)
    assert store.drop_expired(20, ALL) == (1, 2)
    assert store.drop_expired(99, ALL) == (1, 2)
    assert store.drop_expired(99, ALL) == (0, 0), "what never expires keeps those behind it"
    assert bodies(store.take(ALL, ALL)[0]) == ["0", "10"]


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


def test_requeued_messages_expire_too(store: MessageStore) -> None:
    expiring(store, 10, 20)
    store.requeue(store.take(1, ALL)[0])
    assert [(entry[1].body, entry[2]) for entry in store.take_expired(15, ALL)] == [(b"10", True)]


def test_expired_messages_may_return(store: MessageStore) -> None:
    expiring(store, 10, 20)
    store.requeue(store.take_expired(15, ALL))
    assert bodies(store.take(ALL, ALL)[0]) == ["10", "20"]


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
        assert self.store.drop_expired(now, count) == (len(dropped), size_of(dropped))

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


SETTINGS = settings(max_examples=80, stateful_step_count=40, deadline=None, derandomize=True, database=None)


@pytest.mark.parametrize("name", STORES)
def test_any_history_agrees_with_plain_lists(name: str) -> None:
    machine = type(f"{name}_store", (StoreMachine,), {"make_store": staticmethod(STORES[name])})
    run_state_machine_as_test(machine, settings=SETTINGS)
