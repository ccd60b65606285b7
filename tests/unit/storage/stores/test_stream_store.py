"""Streams on a simulated disk: appending, reading from any place, retention, damage, restarts."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from leveret.storage.engine import EngineOptions, StorageEngine, StoredQueue
from leveret.storage.event_format import Event, EventKind
from leveret.storage.event_log import EventPosition
from leveret.storage.interface import Entry
from leveret.storage.message import Envelope, Message, StoredMessage
from leveret.storage.stores.segment_store import SegmentStore
from leveret.storage.stores.stream_store import StreamStore, file_bytes
from tests.support.examples import examples
from tests.support.messages import ENVELOPE, bodies
from tests.support.segment_stores import Clock, open_engine
from tests.support.simulated_files import SimulatedFiles, flip

_ALL = 1 << 40
#: A turn needs its own file sooner or later: a record of a short body has 80 bytes.
_OPTIONS = EngineOptions(segment_bytes=600, disk_free_limit=0, ballast_bytes=0)


@dataclass
class Disk:
    """A stream in a data directory.

    Attributes:
        unit_bytes: Size of its segments.
        engine, stored, segments, stream: The parts.
    """

    unit_bytes: int = 1800
    files: SimulatedFiles = field(default_factory=SimulatedFiles)
    clock: Clock = field(default_factory=Clock)

    def __post_init__(self) -> None:
        self.engine: StorageEngine = open_engine(self.files, self.clock, _OPTIONS)
        attributes = {"name": "s", "persists_transient": True, "stream_segment_bytes": self.unit_bytes}
        self.stored: StoredQueue = self.engine.create_queue(True, attributes)
        self._open()

    def _open(self) -> None:
        self.segments: SegmentStore = self.engine.store(self.stored)
        self.segments.set_lazy(True)
        self.stream = StreamStore(self.segments, self.unit_bytes)

    def add(self, *texts: str) -> None:
        """Append messages, and end the turn."""
        messages = [Message(ENVELOPE, text.encode()) for text in texts]
        self.stream.append(messages, sum(map(len, texts)), max(map(len, texts)))
        self.end_turn()

    def end_turn(self) -> None:
        self.engine.flush()
        self.engine.commit()

    def restart(self, clean: bool = True) -> None:
        """Close the engine, or kill the process, and open the data directory again."""
        if clean:
            assert self.engine.close()
        else:
            self.files.stop()
        self.engine = open_engine(self.files, self.clock, _OPTIONS)
        self.stored = self.engine.queues[self.stored.qid]
        self._open()

    def texts(self, number: int = 0) -> list[str]:
        """Return the bodies of all messages from a number on."""
        return bodies(self.entries(number))

    def entries(self, number: int = 0, count: int = 1 << 20) -> list[Entry]:
        reader = self.stream.reader_at(number)
        found: list[Entry] = []
        while entries := reader.read(count, _ALL, self.stream.next_number):
            found += entries
        return found

    @property
    def file_count(self) -> int:
        return len(self.segments.log.segments)

    def path(self, at: int) -> str:
        return f"{self.segments.place.directory}/{self.segments.log.segments[at].name}"

    def events(self, kind: EventKind) -> list[Event]:
        return [each for each in self.engine.events_since(EventPosition(0, 0)) if each.kind == kind]


@pytest.fixture
def disk() -> Disk:
    return Disk()


def numbered(count: int, start: int = 1) -> list[str]:
    return [f"{number:04}" for number in range(start, start + count)]


def test_reading_removes_nothing(disk: Disk) -> None:
    disk.add(*numbered(100))
    assert disk.texts() == numbered(100)
    assert disk.texts() == numbered(100)
    assert [entry[0] for entry in disk.entries()] == list(range(1, 101))
    assert not any(entry[2] for entry in disk.entries())
    assert disk.stream.count == 100


@pytest.mark.parametrize("keeps_tail", [False, True])
def test_reads_from_any_number(disk: Disk, keeps_tail: bool) -> None:
    disk.stream.keeps_tail = keeps_tail
    for text in numbered(50):
        disk.add(text)
    for number in range(1, 51):
        assert disk.texts(number) == numbered(51 - number, number)
    assert disk.texts(51) == []


def test_a_reader_in_the_future_waits_for_its_number(disk: Disk) -> None:
    disk.add(*numbered(8))
    reader = disk.stream.reader_at(13)
    assert reader.read(10, _ALL, disk.stream.next_number) == []
    disk.add(*numbered(8, 9))
    assert bodies(reader.read(10, _ALL, disk.stream.next_number)) == numbered(4, 13)


def test_reads_no_further_than_the_end(disk: Disk) -> None:
    disk.stream.keeps_tail = True
    disk.add(*numbered(10))
    reader = disk.stream.reader_at(1)
    assert bodies(reader.read(100, _ALL, 4)) == numbered(3)
    assert reader.read(100, _ALL, 4) == []
    assert bodies(reader.read(2, _ALL, 11)) == ["0004", "0005"]
    assert bodies(reader.read(100, 9, 11)) == ["0006", "0007", "0008"]


def test_the_newest_messages_are_read_from_memory(disk: Disk) -> None:
    disk.add(*numbered(20))
    disk.stream.keeps_tail = True
    disk.add(*numbered(20, 21))
    before = disk.segments.log.disk_reads
    assert disk.texts(21) == numbered(20, 21)
    assert disk.segments.log.disk_reads == before
    disk.stream.idle()
    assert disk.texts(21) == numbered(20, 21)
    assert disk.segments.log.disk_reads == before
    disk.stream.idle()
    assert disk.texts(21) == numbered(20, 21)
    assert disk.segments.log.disk_reads > before


def test_the_newest_messages_in_memory_are_few(disk: Disk) -> None:
    disk.stream.keeps_tail = True
    for _ in range(8):
        disk.add("x" * 300_000)
    tail = disk.stream._tail
    assert tail.body_bytes == sum(page.body_bytes for page in tail._pages) <= 1 << 20
    assert len(disk.entries()) == 8
    for _ in range(10):
        disk.add(*["y"] * 5000)
    assert tail._count == sum(len(page.entries) for page in tail._pages) <= 8192


def test_readers_in_one_place_share_what_is_read(disk: Disk) -> None:
    disk.add(*numbered(200))
    readers = [disk.stream.reader_at(1) for _ in range(3)]
    found: list[list[str]] = [[] for _ in readers]
    for _ in range(40):
        for reader, texts in zip(readers, found, strict=True):
            texts += bodies(reader.read(5, _ALL, 201))
    assert found == [numbered(200)] * 3
    assert disk.segments.log.disk_reads == 200


def test_finds_the_first_message_of_a_time(disk: Disk) -> None:
    arrivals: list[int] = []
    for at in range(40):
        disk.add(*numbered(1 + at % 3))
        arrivals += [disk.clock.time] * (1 + at % 3)
    known = {entry[0]: arrived_at(entry) for entry in disk.entries()}
    for time in sorted({*known.values(), *(each + 1 for each in known.values()), 0}):
        expected = min((number for number, arrived in known.items() if arrived >= time), default=len(known) + 1)
        assert disk.stream.number_at(time) == expected


def test_the_last_batch(disk: Disk) -> None:
    assert disk.stream.last_batch() == 1
    disk.add(*numbered(10))
    disk.add(*numbered(7, 11))
    assert disk.stream.last_batch() == 11
    disk.restart()
    assert disk.stream.last_batch() == 11


@pytest.mark.parametrize("clean", [True, False])
def test_numbering_goes_on_after_a_restart(disk: Disk, clean: bool) -> None:
    for text in numbered(30):
        disk.add(text)
    disk.restart(clean)
    assert disk.texts() == numbered(30)
    assert (disk.stream.count, disk.stream.next_number) == (30, 31)
    disk.add("0031")
    assert disk.texts(30) == ["0030", "0031"]


def test_transient_messages_survive(disk: Disk) -> None:
    disk.stream.append([Message(Envelope(ENVELOPE.route, ENVELOPE.header, False), b"t")], 1)
    disk.end_turn()
    disk.restart(clean=False)
    assert disk.texts() == ["t"]


# -- retention --------------------------------------------------------------------------------------------


def test_nothing_is_removed_without_limits(disk: Disk) -> None:
    for text in numbered(100):
        disk.add(text)
    assert disk.stream.retain(None, None) == (0, 0)
    assert disk.stream.count == 100


def test_whole_segments_are_removed(disk: Disk) -> None:
    for text in numbered(100):
        disk.add(text)
    files = disk.file_count
    log = disk.segments.log
    sizes = log.size
    removed = disk.stream.retain(4000, None)
    disk.end_turn()
    assert removed.messages == 100 - disk.stream.count > 0
    assert disk.texts() == numbered(disk.stream.count, removed.messages + 1)
    # The files of a segment go together: one has 1800 bytes, in files of 600.
    assert (files - disk.file_count) % 3 == 0
    assert log.size <= 4000 < log.size + 3 * 700 < sizes
    (event,) = disk.events(EventKind.RETENTION)
    assert (event.seq, event.length) == (1, removed.messages)
    disk.restart()
    assert disk.texts() == numbered(disk.stream.count, removed.messages + 1)
    assert disk.stream.retain(4000, None) == (0, 0)


def test_the_newest_segment_stays(disk: Disk) -> None:
    for text in numbered(100):
        disk.add(text)
    disk.stream.retain(0, disk.clock.time + 1)
    disk.end_turn()
    assert 0 < disk.stream.count < 20
    assert disk.texts()[-1] == "0100"


def test_a_segment_is_removed_once_all_its_files_are_complete(disk: Disk) -> None:
    # A segment has three files.
    while disk.file_count < 3:
        disk.add("x" * 100)
    assert disk.stream.retain(0, None) == (0, 0)
    while disk.file_count < 4:
        disk.add("x" * 100)
    count = disk.stream.count
    removed = disk.stream.retain(0, None)
    disk.end_turn()
    assert removed.messages == count - 1
    assert (disk.stream.count, disk.file_count) == (1, 1)


def test_old_segments_are_removed(disk: Disk) -> None:
    for text in numbered(100):
        disk.add(text)
    entries = disk.entries()
    middle = arrived_at(entries[49])
    assert disk.stream.excess(None, middle - 1_000_000) == (0, 0)
    excess = disk.stream.excess(None, middle)
    removed = disk.stream.retain(None, middle)
    assert removed == excess
    disk.end_turn()
    assert 20 < removed.messages < 50
    assert disk.texts() == numbered(100 - removed.messages, removed.messages + 1)


def test_retention_in_steps_is_as_retention_at_once() -> None:
    steps, once = Disk(), Disk()
    for text in numbered(100):
        steps.add(text)
        steps.stream.retain(4000, None)
        once.add(text)
    steps.end_turn()
    once.stream.retain(4000, None)
    once.end_turn()
    assert steps.texts() == once.texts()


def test_a_reader_in_a_removed_segment_goes_on_from_the_first_that_is_left(disk: Disk) -> None:
    for text in numbered(100):
        disk.add(text)
    reader = disk.stream.reader_at(1)
    assert bodies(reader.read(3, _ALL, 101)) == numbered(3)
    removed = disk.stream.retain(2000, None).messages
    disk.end_turn()
    found: list[str] = []
    while entries := reader.read(7, _ALL, 101):
        found += bodies(entries)
    assert found[-(100 - removed) :] == numbered(100 - removed, removed + 1)


@pytest.mark.parametrize("unit_bytes", [0, 1, 8, 9, 100])
def test_tiny_segments_have_a_file_for_each_turn(unit_bytes: int) -> None:
    disk = Disk(unit_bytes)
    disk.add(*numbered(50))
    assert disk.file_count == 1
    disk.add("x" * 70_000, *numbered(50, 51))
    assert disk.texts()[:50] == numbered(50)
    assert disk.file_count <= 3
    assert disk.stream.retain(0, None).messages >= 50
    disk.end_turn()
    disk.restart()
    assert disk.texts()[-1] == "0100"


def test_very_many_files_are_removed_in_parts() -> None:
    disk = Disk(1)
    for _ in range(1500):
        disk.stream.append([Message(ENVELOPE, b"x")], 1)
        disk.engine.flush()
    assert disk.stream.excess(0, None).messages == 1499
    assert disk.stream.retain(0, None).messages == 1024
    assert disk.stream.retain(0, None).messages == 475
    assert disk.stream.retain(0, None).messages == 0
    disk.end_turn()
    assert disk.file_count == 1


def test_a_new_file_is_noted(disk: Disk) -> None:
    assert not disk.stream.has_rolled()
    disk.add("a")
    assert disk.stream.has_rolled()
    assert not disk.stream.has_rolled()
    disk.add("x" * 700)
    disk.add("b")
    assert disk.stream.has_rolled()


@pytest.mark.parametrize(
    ("unit_bytes", "most", "expected"),
    [(500_000_000, 16 << 20, 16_666_667), (1000, 16 << 20, 1000), (16 << 20, 16 << 20, 16 << 20), (0, 100, 0)],
)
def test_the_files_of_a_segment_have_one_size(unit_bytes: int, most: int, expected: int) -> None:
    assert file_bytes(unit_bytes, most) == expected


# -- damage -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("restarts", [False, True])
def test_a_damaged_message_is_skipped_and_counted(disk: Disk, caplog: pytest.LogCaptureFixture, restarts: bool) -> None:
    for text in numbered(30):
        disk.add(text)
    if restarts:
        assert disk.engine.close()
    path = disk.path(0)
    flip(disk.files, path, (disk.files.read_all(path) or b"").index(b"0003"), 1)
    if restarts:
        disk.engine = open_engine(disk.files, disk.clock, _OPTIONS)
        disk.stored = disk.engine.queues[disk.stored.qid]
        disk._open()
    expected = [text for text in numbered(30) if text != "0003"]
    assert disk.texts() == expected
    assert disk.texts() == expected
    assert (disk.stream.count, disk.segments.lost_count) == (29, 1)
    disk.end_turn()
    assert [(each.seq, each.length) for each in disk.events(EventKind.LOST)] == [(3, 1)]
    assert "cannot be read" in caplog.text


def test_a_missing_file_is_skipped(disk: Disk) -> None:
    for text in numbered(30):
        disk.add(text)
    first = disk.segments.log.segments[1]
    disk.files.unlink(disk.path(1))
    assert disk.texts() == [
        text for number, text in enumerate(numbered(30), 1) if not first.first_seq <= number <= first.last_seq
    ]


def test_numbers_of_a_lost_end_are_not_used_again(disk: Disk) -> None:
    for text in numbered(30):
        disk.add(text)
    path = disk.path(-1)
    disk.files.stop()
    disk.files.unlink(path)
    disk.restart(clean=False)
    disk.add("new")
    (entry,) = disk.entries(31)
    assert entry[0] > 1 << 20


# -- model ------------------------------------------------------------------------------------------------


def arrived_at(entry: Entry) -> int:
    """Return the arrival of a message that was read from disk."""
    assert isinstance(entry[1], StoredMessage)
    return entry[1].arrived_at


class StreamMachine(RuleBasedStateMachine):
    """A stream beside a list of what it has to have."""

    def __init__(self) -> None:
        super().__init__()
        self.disk = Disk()
        self.expected: dict[int, str] = {}
        self.next = 1

    @rule(sizes=st.lists(st.integers(1, 900), min_size=1, max_size=6))
    def append(self, sizes: list[int]) -> None:
        assert self.disk.stream.next_number >= self.next
        self.next = self.disk.stream.next_number
        texts = [f"<{self.next + at}>".ljust(size, ".") for at, size in enumerate(sizes)]
        self.disk.add(*texts)
        for text in texts:
            self.expected[self.next] = text
            self.next += 1

    @rule(clean=st.booleans())
    def restart(self, clean: bool) -> None:
        self.disk.restart(clean)

    @rule(most=st.integers(0, 20_000))
    def retain(self, most: int) -> None:
        removed = self.disk.stream.retain(most, None).messages
        self.disk.end_turn()
        for number in sorted(self.expected)[:removed]:
            del self.expected[number]

    @rule(data=st.data())
    def retain_by_age(self, data: st.DataObject) -> None:
        time = data.draw(st.sampled_from(sorted({*self.arrivals(), 0, self.disk.clock.time + 1})))
        arrivals = self.arrivals()
        removed = self.disk.stream.retain(None, time).messages
        self.disk.end_turn()
        assert all(arrived < time for arrived in arrivals[:removed])
        for number in sorted(self.expected)[:removed]:
            del self.expected[number]

    def arrivals(self) -> list[int]:
        # Those in memory have no arrival.
        self.disk.stream.end_reading()
        return [arrived_at(entry) for entry in self.disk.entries()]

    @rule(data=st.data())
    def damage(self, data: st.DataObject) -> None:
        if not self.expected:
            return
        number = data.draw(st.sampled_from(sorted(self.expected)))
        at = next(
            at for at, each in enumerate(self.disk.segments.log.segments) if each.first_seq <= number <= each.last_seq
        )
        path = self.disk.path(at)
        place = (self.disk.files.read_all(path) or b"").index(self.expected[number].encode())
        flip(self.disk.files, path, place, 64)
        self.disk.stream.end_reading()
        self.disk.entries()
        self.disk.end_turn()
        del self.expected[number]

    @rule(data=st.data(), keeps_tail=st.booleans())
    def read(self, data: st.DataObject, keeps_tail: bool) -> None:
        self.disk.stream.keeps_tail = keeps_tail
        if not keeps_tail:
            self.disk.stream.end_reading()
        start = data.draw(st.integers(0, self.next + 2))
        count = data.draw(st.integers(1, 10))
        found = {entry[0]: entry[1].body.decode() for entry in self.disk.entries(start, count)}
        assert found == {number: text for number, text in self.expected.items() if number >= start}

    @rule(data=st.data())
    def seek(self, data: st.DataObject) -> None:
        times = sorted({*self.arrivals(), 0})
        time = data.draw(st.sampled_from(times)) + data.draw(st.integers(0, 1))
        entries = self.disk.entries()
        wanted = [entry[0] for entry in entries if arrived_at(entry) >= time]
        assert self.disk.stream.number_at(time) == (wanted[0] if wanted else self.disk.stream.next_number)

    @invariant()
    def counts(self) -> None:
        assert self.disk.stream.count == len(self.expected)
        assert self.disk.stream.next_number >= self.next
        if self.expected:
            assert self.disk.stream.first_number == min(self.expected)


def test_a_stream_is_what_the_model_says() -> None:
    run_state_machine_as_test(StreamMachine, settings=settings(max_examples=examples(40), stateful_step_count=25))
