"""Messages by number: in memory, and in files."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from leveret.storage.event_format import EventKind
from leveret.storage.message import Envelope, TimedMessage
from leveret.storage.stores.numbered_store import NumberedStore
from leveret.storage.stores.segment_store import SegmentStore
from tests.support.messages import ENVELOPE, ENVELOPE_FIELDS, bodies
from tests.support.segment_stores import commit, files_of, memory_store, new_flushed_store
from tests.support.simulated_files import flip

_ALL = 1 << 40
_PERSISTENT = Envelope(ENVELOPE.route, ENVELOPE.header, True)


def timed(body: str, at: int = 5) -> TimedMessage:
    return TimedMessage(_PERSISTENT, body.encode(), at)


def on_disk() -> tuple[NumberedStore, SegmentStore]:
    wrapped = new_flushed_store()
    store: SegmentStore = wrapped._store  # type: ignore[attr-defined]
    return NumberedStore(store), store


def filled(make: Callable[[], NumberedStore], count: int) -> NumberedStore:
    store = make()
    for number in range(1, count + 1):
        assert store.append([timed(f"{number:03}", number)], 3) == number
    if store._store.has_files:
        commit(store._store)
    return store


@pytest.fixture(params=[lambda: NumberedStore(memory_store()), lambda: on_disk()[0]], ids=["memory", "disk"])
def make(request: pytest.FixtureRequest) -> Callable[[], NumberedStore]:
    made: Callable[[], NumberedStore] = request.param
    return made


def test_takes_in_any_order(make: Callable[[], NumberedStore]) -> None:
    store = filled(make, 200)
    numbers = list(range(1, 201))
    random.Random(1).shuffle(numbers)
    found: list[str] = []
    for at in range(0, 200, 20):
        entries, used = store.take(numbers[at : at + 20], _ALL)
        assert used == 20
        assert not any(entry[2] for entry in entries)
        found += bodies(entries)
        store.settle(entries, EventKind.ROUTED)
        assert (store.ready_count, store.ready_bytes) == (200 - len(found), 3 * (200 - len(found)))
    assert found == [f"{number:03}" for number in numbers]


def test_stops_at_the_bytes(make: Callable[[], NumberedStore]) -> None:
    store = filled(make, 10)
    entries, used = store.take([3, 4, 5, 9], 7)
    assert (bodies(entries), used) == (["003", "004", "005"], 3)
    assert store.ready_count == 7


def test_puts_back(make: Callable[[], NumberedStore]) -> None:
    store = filled(make, 10)
    entries, _ = store.take([2, 7, 4], _ALL)
    store.put_back(entries[:2])
    store.settle(entries[2:], EventKind.CANCELLED)
    assert (store.ready_count, store.ready_bytes) == (9, 27)
    entries, used = store.take([7, 2, 3], _ALL)
    assert (bodies(entries), used) == (["007", "002", "003"], 3)


def test_reads_without_taking(make: Callable[[], NumberedStore]) -> None:
    store = filled(make, 10)
    found = store.read(7)
    assert found is not None
    assert (found.body, found.expires_at) == (b"007", 7)
    assert store.ready_count == 10
    assert store.next_seq == 11


def test_a_look_shows_ready_messages_in_order_and_takes_none(make: Callable[[], NumberedStore]) -> None:
    store = filled(make, 6)
    entries, _ = store.take([2, 4], _ALL)
    store.put_back(entries[1:])
    found = store.look(0, 2, _ALL)
    first = found.seen[0]
    assert (first.seq, first.message.body, first.is_ready, first.redelivered) == (1, b"001", True, False)
    rest = store.look(found.end, 100, _ALL)
    assert [seen.seq for seen in (*found.seen, *rest.seen)] == [1, 3, 4, 5, 6]
    assert (found.is_over, rest.is_over, rest.end) == (False, True, 7)
    assert (store.ready_count, store.ready_bytes) == (5, 15)


def test_a_look_ends_at_its_count_and_once_its_bytes_are_reached(make: Callable[[], NumberedStore]) -> None:
    store = filled(make, 5)
    found = store.look(2, 2, _ALL)
    assert ([seen.seq for seen in found.seen], found.end, found.is_over) == ([2, 3], 4, False)
    found = store.look(2, 100, 4)
    assert ([seen.seq for seen in found.seen], found.end, found.is_over) == ([2, 3], 4, False)
    found = store.look(2, 100, 3)
    assert ([seen.seq for seen in found.seen], found.end, found.is_over) == ([2], 3, False)
    assert store.look(6, 100, _ALL)[:3] == ([], 6, True)


def test_messages_of_this_turn_are_not_written_yet() -> None:
    store, segments = on_disk()
    first = store.append([timed("a"), timed("b")], 2)
    assert not store.is_written(first)
    commit(segments)
    assert store.is_written(first)
    assert store.is_written(first + 1)


def test_moved_messages_stay_until_their_copies_are_synced() -> None:
    store, segments = on_disk()
    store.append([timed("a"), timed("b")], 2)
    commit(segments)
    store.settle(store.take([2], _ALL)[0], EventKind.ROUTED)
    assert (len(segments.leaving), 2 in segments.log.dead) == (1, False)
    segments.settle_left(1)
    assert 2 in segments.log.dead
    store.settle(store.take([1], _ALL)[0], EventKind.CANCELLED)
    assert 1 in segments.log.dead
    assert segments.persistent_count == 0


def test_a_damaged_message_is_lost_and_the_others_are_not(caplog: pytest.LogCaptureFixture) -> None:
    store, segments = on_disk()
    for number in range(1, 31):
        store.append([timed(f"{number:03}")], 3)
    commit(segments)
    files = files_of(segments)
    path = f"{segments.place.directory}/{segments.log.segments[0].name}"
    flip(files, path, (files.read_all(path) or b"").index(b"003"), 1)
    found: list[str] = []
    seq, end = 0, store.next_seq
    while seq < end:
        entries, seq = store.scan(seq, end, 7)
        found += bodies(entries)
    assert found == [f"{number:03}" for number in range(1, 31) if number != 3]
    assert (store.ready_count, segments.lost_count) == (29, 1)
    assert "cannot be read" in caplog.text
    entries, used = store.take([2, 4], _ALL)
    assert (bodies(entries), used) == (["002", "004"], 2)


def test_scan_skips_what_is_gone() -> None:
    store, segments = on_disk()
    for number in range(1, 11):
        store.append([timed(f"{number:03}")], 3)
    commit(segments)
    store.settle(store.take([1, 5, 6, 10], _ALL)[0], EventKind.CANCELLED)
    found: list[str] = []
    seq = 0
    while seq < 11:
        entries, seq = store.scan(seq, 11, 100)
        found += bodies(entries)
    assert found == ["002", "003", "004", "007", "008", "009"]


def test_a_purge_leaves_what_is_taken(make: Callable[[], NumberedStore]) -> None:
    store = filled(make, 10)
    taken, _ = store.take([4, 5, 9], _ALL)
    assert store.purge() == 7
    assert (store.ready_count, store.ready_bytes) == (0, 0)
    store.put_back(taken[:1])
    store.settle(taken[1:], EventKind.RETURNED)
    assert (store.ready_count, store.ready_bytes) == (1, 3)
    assert store.append([timed("new")], 3) == 11
    if store._store.has_files:
        commit(store._store)
    entries, _ = store.take([4, 11], _ALL)
    assert bodies(entries) == ["004", "new"]
    store.settle(entries, EventKind.ACK)
    assert store.purge() == 0


def test_a_purge_on_disk_knows_what_is_unwritten_and_what_is_leaving() -> None:
    store, segments = on_disk()
    store.append([timed("a"), timed("b"), timed("c")], 3)
    commit(segments)
    store.settle(store.take([2], _ALL)[0], EventKind.RETURNED)
    store.append([timed("d")], 1)
    assert store.purge() == 3
    assert 2 not in segments.log.dead
    assert all(number in segments.log.dead for number in (1, 3, 4))
    commit(segments)
    segments.settle_left(1)
    assert 2 in segments.log.dead
    assert (segments.persistent_count, segments.persistent_bytes, segments.ready_bytes) == (0, 0, 0)


def test_a_purge_removes_the_file_that_is_written_to() -> None:
    store, segments = on_disk()
    store.append([timed("a")], 1)
    commit(segments)
    assert segments.log.size > 0
    store.purge()
    commit(segments)
    assert segments.log.size == 0


def test_envelopes_are_read_as_they_were_written() -> None:
    store, segments = on_disk()
    shown = Envelope(b"\0\0", b"", True, 3, 7, True, ("k",), 2, 1 << 60)
    store.append([TimedMessage(shown, b"a", 5)], 1)
    commit(segments)
    found = store.read(1)
    assert found is not None
    assert ENVELOPE_FIELDS
    for name in ENVELOPE_FIELDS:
        assert getattr(found.envelope, name) == getattr(shown, name), name
