"""Contract of stores in files whose files are damaged."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from leveret.storage.event_format import EventKind
from leveret.storage.format import SEGMENT_HEADER_BYTES, peek_record
from leveret.storage.interface import Entry, MessageStore
from leveret.storage.message import Envelope, Message, TimedMessage
from leveret.storage.stores.segment_store import SegmentStore
from tests.contract.stores import STORES_IN_FILES
from tests.support.examples import examples
from tests.support.segment_stores import files_of, new_cached_store, new_flushed_store
from tests.support.simulated_files import SimulatedFiles, flip

#: More messages and bytes than any test appends.
ALL = 1 << 20
ENVELOPES = [Envelope(b"\x01x\x01k", bytes(14), True, priority) for priority in range(3)]
TRANSIENT = Envelope(b"\x01x\x01k", bytes(14), False, 0)
#: Maximum number of reads until a damaged store is empty: each read removes damaged messages or returns some.
MAX_READS = 1000


class Parts:
    """Makes the inner stores of a store, and keeps a list of them.

    Args:
        make: Factory of an inner store.
    """

    def __init__(self, make: Callable[[], SegmentStore] = new_flushed_store) -> None:
        self._make = make
        self.stores: list[SegmentStore] = []

    def __call__(self) -> SegmentStore:
        self.stores.append(self._make())
        return self.stores[-1]

    def segments(self) -> list[tuple[SimulatedFiles, str, int]]:
        """Return disk, path and size in bytes of all segment files."""
        found: list[tuple[SimulatedFiles, str, int]] = []
        for store in self.stores:
            files = files_of(store)
            found += [(files, path, len(octets)) for path, octets in files.snapshot().items() if path.endswith(".seg")]
        return [each for each in found if each[2]]


def assert_nothing_is_left(store: MessageStore, parts: Parts) -> None:
    """Assert that all messages are taken and settled, and that all counters are 0, whatever was lost."""
    assert (store.ready_count, store.ready_bytes, store.peek()) == (0, 0, None)
    for part in parts.stores:
        assert (part.ready_count, part.ready_bytes) == (0, 0)
        assert (part.taken_count, part.taken_bytes) == (0, 0)
        assert (part.persistent_count, part.persistent_bytes) == (0, 0)


@pytest.fixture(params=list(STORES_IN_FILES))
def kind(request: pytest.FixtureRequest) -> str:
    found: str = request.param
    return found


@pytest.mark.parametrize("drops", [False, True])
@pytest.mark.parametrize("has_gap", [False, True])
def test_expired_messages_behind_a_record_of_a_wrong_length_leave(drops: bool, has_gap: bool) -> None:
    """Its length leads past the next record. Where numbers are missing, nobody knows that there is one."""
    store = new_flushed_store()
    for number in range(5):
        envelope = TRANSIENT if has_gap and number == 1 else ENVELOPES[0]
        store.append([TimedMessage(envelope, b"%d" % number, 5)], 1)
    taken: list[Entry] = []
    while len(taken) < 2:
        taken += store.take(1, ALL)[0]
    store.settle(taken)
    path, octets = next(each for each in files_of(store).snapshot().items() if each[0].endswith("1-0000.seg"))
    header = peek_record(octets, SEGMENT_HEADER_BYTES)
    assert header is not None
    files_of(store).overwrite(path, (3 * header.rec_len).to_bytes(4, "little"), SEGMENT_HEADER_BYTES + 8)
    store.log.release()
    if drops:
        assert store.drop(ALL, ALL, EventKind.EXPIRED, 10) == (3, 3)
    else:
        assert [entry[1].body for entry in store.take_expired(10, ALL)] == [b"2", b"3", b"4"]
    assert store.ready_count == 0


def damage_body(parts: Parts, body: bytes) -> None:
    """Flip one bit of a stored body."""
    for files, path, _ in parts.segments():
        at = files.snapshot()[path].find(body)
        if at >= 0:
            flip(files, path, at, 1)
            return
    pytest.fail(f"{body!r} is in no file")


@pytest.mark.parametrize("damaged", [b"first", b"second one", b"third"])
def test_one_flipped_bit_costs_one_message(kind: str, damaged: bytes) -> None:
    parts = Parts()
    store = STORES_IN_FILES[kind](parts)
    kept = [b"first", b"second one", b"third"]
    for body in kept:
        store.append([Message(ENVELOPES[0], body)], len(body))
    damage_body(parts, damaged)
    kept.remove(damaged)
    entries, taken_bytes = store.take(ALL, ALL)
    assert [entry[1].body for entry in entries] == kept
    assert taken_bytes == sum(map(len, kept)), "what was lost has not been taken"
    assert (store.ready_count, store.ready_bytes) == (0, 0)
    store.settle(entries)
    assert_nothing_is_left(store, parts)


@pytest.mark.parametrize("look", ["take", "take_expired", "drop", "drop_expired", "peek"])
def test_a_store_whose_only_message_is_damaged_is_empty_for_who_looks(kind: str, look: str) -> None:
    parts = Parts()
    store = STORES_IN_FILES[kind](parts)
    store.append([TimedMessage(ENVELOPES[0], b"the only one", 10)], 12)
    # The head of the record, which those look at too that do not read bodies.
    files, path, _ = parts.segments()[0]
    flip(files, path, files.snapshot()[path].find(ENVELOPES[0].route) - 40, 0xFF)
    looks: dict[str, Callable[[], object]] = {
        "take": lambda: store.take(1, ALL),
        "take_expired": lambda: store.take_expired(10, 1),
        "drop": lambda: store.drop(1, ALL),
        "drop_expired": lambda: store.drop(1, ALL, EventKind.EXPIRED, 10),
        "peek": store.peek,
    }
    found = looks[look]()
    # A whole segment is dropped without a look into it.
    assert found in (([], 0), [], (0, 0), None) or "drop" in look
    assert_nothing_is_left(store, parts)


def test_a_requeued_message_that_is_damaged_since_leaves_nothing(kind: str) -> None:
    parts = Parts()
    store = STORES_IN_FILES[kind](parts)
    for body in (b"one", b"number two"):
        store.append([Message(ENVELOPES[1], body)], len(body))
    store.requeue(store.take(ALL, ALL)[0])
    damage_body(parts, b"number two")
    entries, taken_bytes = store.take(ALL, ALL)
    assert ([entry[1].body for entry in entries], taken_bytes) == ([b"one"], 3)
    store.settle(entries)
    assert_nothing_is_left(store, parts)


class DamagedStoreMachine(RuleBasedStateMachine):
    """A store whose files are damaged at times, and a model of the messages it may have at most."""

    kind: str
    make_part: Callable[[], SegmentStore]

    def __init__(self) -> None:
        super().__init__()
        self.parts = Parts(self.make_part)
        self.store = STORES_IN_FILES[self.kind](self.parts)
        self.appended = 0
        #: Bodies, which differ.
        self.ready: set[bytes] = set()
        self.taken: dict[bytes, Entry] = {}

    @rule(
        count=st.integers(1, 6), size=st.integers(4, 60), expires=st.sampled_from([0, 0, 10]), level=st.integers(0, 2)
    )
    def append(self, count: int, size: int, expires: int, level: int) -> None:
        bodies = [f"{self.appended + at:x}".zfill(size).encode() for at in range(count)]
        self.appended += count
        envelope = ENVELOPES[level]
        self.store.append(
            [TimedMessage(envelope, body, expires) if expires else Message(envelope, body) for body in bodies],
            count * size,
        )
        self.ready.update(bodies)

    @rule(data=st.data(), bits=st.integers(1, 255))
    def damage(self, data: st.DataObject, bits: int) -> None:
        segments = self.parts.segments()
        if segments:
            files, path, size = data.draw(st.sampled_from(segments))
            flip(files, path, data.draw(st.integers(0, size - 1)), bits)

    @rule(count=st.integers(1, 12), limit=st.integers(1, 200))
    def take(self, count: int, limit: int) -> None:
        entries, taken_bytes = self.store.take(count, limit)
        assert taken_bytes == sum(len(entry[1].body) for entry in entries)
        self._note_taken(entries)
        if not entries:
            self._assert_is_empty()

    @rule(count=st.integers(1, 12))
    def take_expired(self, count: int) -> None:
        self._note_taken(self.store.take_expired(20, count))

    @rule(count=st.integers(1, 12), limit=st.integers(1, 200))
    def drop(self, count: int, limit: int) -> None:
        self._drop(lambda: self.store.drop(count, limit))

    @rule(count=st.integers(1, 12))
    def drop_expired(self, count: int) -> None:
        self._drop(lambda: self.store.drop(count, ALL, EventKind.EXPIRED, 20))

    @rule()
    def peek(self) -> None:
        head = self.store.peek()
        if head is None:
            self._assert_is_empty()
        else:
            assert head.body in self.ready

    @precondition(lambda self: self.taken)
    @rule(data=st.data(), back=st.booleans())
    def give_back_or_settle(self, data: st.DataObject, back: bool) -> None:
        chosen = data.draw(st.lists(st.sampled_from(sorted(self.taken)), unique=True, min_size=1))
        entries = [self.taken.pop(body) for body in chosen]
        if back:
            self.store.requeue(entries)
            self.ready.update(chosen)
        else:
            self.store.settle(entries)

    @invariant()
    def nothing_is_there_that_cannot_be(self) -> None:
        assert 0 <= self.store.ready_count <= len(self.ready)
        assert self.store.ready_bytes >= 0
        assert self.store.ready_count or not self.store.ready_bytes
        assert sum(part.taken_count for part in self.parts.stores) == len(self.taken)

    def teardown(self) -> None:
        for _ in range(MAX_READS):
            if not self.store.ready_count:
                break
            self._note_taken(self.store.take(3, ALL)[0])
        self.store.settle([*self.taken.values()])
        assert_nothing_is_left(self.store, self.parts)

    def _drop(self, drop: Callable[[], tuple[int, int]]) -> None:
        before = self.store.ready_count
        dropped, dropped_bytes = drop()
        assert dropped <= before - self.store.ready_count
        assert bool(dropped) >= bool(dropped_bytes)

    def _note_taken(self, entries: list[Entry]) -> None:
        for entry in entries:
            body = entry[1].body
            assert body in self.ready, "it comes twice, or is not what was appended"
            self.ready.remove(body)
            self.taken[body] = entry

    def _assert_is_empty(self) -> None:
        assert (self.store.ready_count, self.store.ready_bytes) == (0, 0)


SETTINGS = settings(max_examples=examples(60), stateful_step_count=40)


@pytest.mark.parametrize("make", [new_flushed_store, new_cached_store], ids=["written", "cached"])
def test_any_history_with_damage_ends_at_nothing(kind: str, make: Callable[[], SegmentStore]) -> None:
    members = {"kind": kind, "make_part": staticmethod(make)}
    run_state_machine_as_test(type(f"{kind}_store", (DamagedStoreMachine,), members), settings=SETTINGS)
