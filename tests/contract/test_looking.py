"""Contract of all message stores: what is in them can be looked at, and single ready messages can be taken."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule, run_state_machine_as_test

from leveret.storage.interface import Entry, Level, Look, MessageStore, Seen
from leveret.storage.stores.priority_store import StrictPriorityStore
from tests.contract.stores import STORES
from tests.contract.test_message_store import SETTINGS, StoreMachine, content
from tests.support.messages import message, size_of
from tests.support.segment_stores import WrappedStore

#: More messages and bytes than any test appends.
ALL = 1 << 20


@pytest.fixture(params=list(STORES))
def store(request: pytest.FixtureRequest) -> MessageStore:
    return STORES[request.param]()


def fill(store: MessageStore, *texts: str) -> None:
    for text in texts:
        store.append([message(text)], len(text))


def plain(store: Any) -> Any:
    """Return the store itself, which knows its kind."""
    return store._store if isinstance(store, WrappedStore) else store


def level_of(store: MessageStore) -> Any:
    """Return the level of a store in which the tests' messages are, all of one priority."""
    wanted = number_of_level(store)
    return next(plain(level) for number, level in plain(store).ordered_levels() if number == wanted)


def number_of_level(store: MessageStore) -> int:
    """Return the number of that level: 0, or what counts for messages without a priority."""
    return 4 if isinstance(plain(store), StrictPriorityStore) else 0


def is_on_disk(store: MessageStore) -> bool:
    return bool(level_of(store).has_files)


def pages(level: Level, count: int, body_bytes: int) -> Iterator[Look]:
    """Look at all messages of a level."""
    seq = 0
    while True:
        page = level.look(seq, count, body_bytes)
        assert page.end >= seq
        yield page
        if page.is_over:
            return
        assert page.end > seq
        seq = page.end


def ready_in(store: MessageStore) -> list[Seen]:
    return [seen for seen in level_of(store).look(0, ALL, ALL).seen if seen.is_ready]


def texts(found: list[Seen]) -> list[str]:
    return [seen.message.body.decode() for seen in found]


def test_a_look_shows_what_is_ready_and_changes_nothing(store: MessageStore) -> None:
    fill(store, "a", "bb", "ccc", "d")
    a, _, c = store.take(3, ALL)[0]
    store.requeue([a, c])
    for _ in range(2):
        ready = ready_in(store)
        assert [(seen.message.body, seen.redelivered) for seen in ready] == [
            (b"a", True),
            (b"ccc", True),
            (b"d", False),
        ]
        assert (store.ready_count, store.ready_bytes) == (3, 5)
    assert [entry[1].body for entry in store.take(ALL, ALL)[0]] == [b"a", b"ccc", b"d"]


def test_taken_messages_are_shown_or_said_to_be_missing(store: MessageStore) -> None:
    fill(store, "a", "b")
    taken = store.take(1, ALL)[0]
    found = level_of(store).look(0, ALL, ALL)
    assert texts([seen for seen in found.seen if seen.is_ready]) == ["b"]
    if found.is_complete:
        assert [(seen.seq, seen.is_ready, seen.redelivered) for seen in found.seen] == [
            (taken[0][0], False, True),
            (taken[0][0] + 1, True, False),
        ]
    else:
        # It is not on disk, and its holder has it.
        assert texts(found.seen) == ["b"]
    store.settle(taken)
    found = level_of(store).look(0, ALL, ALL)
    assert (texts(found.seen), found.is_complete) == (["b"], True)


@pytest.mark.parametrize("name", ["segments-written", "priority-segments", "returns-segments"])
def test_taken_messages_on_disk_are_shown(name: str) -> None:
    store = STORES[name]()
    fill(store, "a", "b")
    store.take(1, ALL)
    found = level_of(store).look(0, ALL, ALL)
    assert ([seen.is_ready for seen in found.seen], found.is_complete) == ([False, True], True)


@pytest.mark.parametrize(("limit", "expected"), [(1, ["aaa"]), (3, ["aaa"]), (4, ["aaa", "bb"]), (5, ["aaa", "bb"])])
def test_a_look_ends_once_its_bytes_are_reached(store: MessageStore, limit: int, expected: list[str]) -> None:
    fill(store, "aaa", "bb", "c")
    found = level_of(store).look(0, ALL, limit)
    assert (texts(found.seen), found.is_over) == (expected, False)
    assert found.end == found.seen[-1].seq + 1
    assert texts(level_of(store).look(found.end, ALL, ALL).seen) == ["aaa", "bb", "c"][len(expected) :]


def test_a_look_ends_at_its_count(store: MessageStore) -> None:
    fill(store, "a", "b", "c")
    found = list(pages(level_of(store), 2, ALL))
    assert [texts(page.seen) for page in found if page.seen] == [["a", "b"], ["c"]]
    assert [page.is_over for page in found[-2:]] == [False, True]
    assert found[-1].end == level_of(store).next_seq


def test_a_look_behind_the_last_message_finds_none(store: MessageStore) -> None:
    fill(store, "a")
    end = level_of(store).next_seq
    assert level_of(store).look(end, ALL, ALL)[:3] == ([], end, True)
    assert level_of(store).look(end + 7, ALL, ALL)[:3] == ([], end + 7, True)


def test_picked_messages_are_taken_and_the_others_keep_their_order(store: MessageStore) -> None:
    fill(store, "a", "bb", "c", "dddd", "e")
    store.requeue(store.take(1, ALL)[0])
    ready = ready_in(store)
    picked = store.pick(number_of_level(store), [ready[1], ready[3]])
    assert [(entry[1].body, entry[2]) for entry in picked] == [(b"bb", False), (b"dddd", False)]
    assert (store.ready_count, store.ready_bytes) == (3, 3)
    assert [(seen.message.body, seen.redelivered) for seen in ready_in(store)] == [
        (b"a", True),
        (b"c", False),
        (b"e", False),
    ]
    store.requeue(picked[:1])
    store.settle(picked[1:])
    back = store.take(ALL, ALL)[0]
    assert [(entry[1].body, entry[2]) for entry in back] == [(b"a", True), (b"bb", True), (b"c", False), (b"e", False)]


def test_an_entry_has_the_place_at_which_it_was_seen(store: MessageStore) -> None:
    fill(store, "a", "b")
    second = ready_in(store)[1]
    entry = store.pick(number_of_level(store), [second])[0]
    assert store.place_of(entry) == (number_of_level(store), second.seq)


@pytest.mark.parametrize("name", [name for name in STORES if "segments" in name])
def test_why_a_message_on_disk_is_not_ready(name: str) -> None:
    store = STORES[name]()
    fill(store, "a", "b", "c")
    first, second = store.take(2, ALL)[0]
    store.settle([first])
    level = level_of(store)
    numbers = [first[0], second[0], level.next_seq, level.next_seq + 1]
    assert level.absences(numbers) == ["gone", "unacked", "unknown", "unknown"]


class LookingMachine(StoreMachine):
    """Looks at a store with any history, and picks messages from it."""

    @precondition(lambda self: self.arrived)
    @rule(count=st.integers(1, 12), limit=st.integers(1, 100))
    def look(self, count: int, limit: int) -> None:
        found = list(pages(level_of(self.store), count, limit))
        for page in found:
            assert len(page.seen) <= count
            assert size_of([seen.message for seen in page.seen[:-1]]) < limit
        seen = [each for page in found for each in page.seen]
        assert [(content(each.message), each.redelivered) for each in seen if each.is_ready] == [
            (content(row[1]), row[2]) for row in self.ready
        ]
        taken = [content(self.taken[arrival][1]) for arrival in sorted(self.taken)]
        shown = [content(each.message) for each in seen if not each.is_ready]
        # Those that are not on disk are missing.
        assert shown == [each for each in taken if each in shown]
        assert all(page.is_complete for page in found) is (len(shown) == len(taken))

    @precondition(lambda self: self.ready)
    @rule(data=st.data())
    def pick(self, data: st.DataObject) -> None:
        ready = ready_in(self.store)
        chosen = sorted(data.draw(st.lists(st.sampled_from(range(len(ready))), unique=True, min_size=1)))
        entries: list[Entry] = self.store.pick(number_of_level(self.store), [ready[at] for at in chosen])
        expected = [self.ready[at] for at in chosen]
        for at in reversed(chosen):
            del self.ready[at]
        self._compare(entries, expected)

    @invariant()
    def it_is_known_what_became_of_each(self) -> None:
        if not self.numbers:
            return
        level = level_of(self.store)
        ready = {row[0] for row in self.ready}
        for arrival, number in self.numbers.items():
            assert level.is_ready(number) is (arrival in ready)
            assert number < level.next_seq
            if is_on_disk(self.store) and arrival not in ready:
                assert level.absences([number]) == ["unacked" if arrival in self.taken else "gone"]


@pytest.mark.parametrize("name", STORES)
def test_any_history_agrees_with_plain_lists(name: str) -> None:
    make: Callable[[], MessageStore] = STORES[name]
    machine = type(f"{name}_store", (LookingMachine,), {"make_store": staticmethod(make)})
    run_state_machine_as_test(machine, settings=SETTINGS)
