from __future__ import annotations

import queue
import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from leveret.broker.core.definitions_gate import ALARM_SECONDS, DefinitionsGate
from leveret.broker.core.resources.alarms import Alarms
from leveret.broker.core.scheduling.turn import TimeSlice
from leveret.protocol.faults import ConnectionFault
from leveret.storage.definitions_database import Changes, DefinitionsDamagedError, DefinitionsDatabase
from leveret.storage.event_format import EventKind
from leveret.storage.message import Envelope, Message
from tests.support.manual_loop import ManualLoop
from tests.support.segment_stores import SMALL, open_engine
from tests.support.simulated_files import SimulatedFiles
from tests.support.stepping_clock import SteppingClock


class FailingDatabase(DefinitionsDatabase):
    """A database whose commits fail, or wait, when the test wants that."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.failure: Exception | None = None
        self.written: list[Changes] = []
        self.goes_on: queue.Queue[None] | None = None

    def write(self, changes: Changes) -> None:
        """Write as ever, or fail."""
        if self.goes_on is not None:
            self.goes_on.get(timeout=30)
        if self.failure is not None:
            raise self.failure
        super().write(changes)
        self.written.append(changes)


class Output:
    """The output of a connection."""

    def __init__(self, log: list[str], name: str) -> None:
        self.log = log
        self.name = name

    def hold(self) -> None:
        self.log.append(f"hold {self.name}")

    def release(self) -> None:
        self.log.append(f"release {self.name}")


class Gate:
    """A gate with all that is around it."""

    def __init__(self, path: Path) -> None:
        self.database = FailingDatabase(path / "definitions.sqlite")
        self.clock = ManualLoop()
        self.alarms = Alarms()
        self.calls: queue.Queue[Callable[[], None]] = queue.Queue()
        self.turns = 0
        self.log: list[str] = []
        self.gate = DefinitionsGate(self.clock.call_later, self.alarms)
        self.gate.attach(self.database, self.calls.put, self.end_turn)

    def end_turn(self) -> None:
        self.turns += 1

    def finish(self) -> None:
        """Let a commit come to its end."""
        self.calls.get(timeout=30)()

    def put(self, name: str) -> None:
        self.gate.put("queue", ("/", name), {})

    def rows(self) -> list[str]:
        return [key[1] for key, _ in self.database.load("queue")]


@pytest.fixture
def made(tmp_path: Path) -> Iterator[Gate]:
    made = Gate(tmp_path)
    yield made
    made.database.failure = None
    made.database.goes_on = None
    made.gate.close()
    made.database.close()


def test_what_relies_on_a_definition_waits_for_it(made: Gate) -> None:
    gate = made.gate
    assert gate.is_open
    made.put("q")
    assert made.turns == 1
    assert gate.is_unwritten("queue", ("/", "q"))
    gate.hold(Output(made.log, "a"))
    gate.when_written(lambda: made.log.append("called"))
    gate.write()
    assert made.log == ["hold a"]
    made.finish()
    assert made.log == ["hold a", "release a", "called"]
    assert made.rows() == ["q"]
    assert gate.is_open


def test_moved_messages_wait_for_earlier_definitions_only(made: Gate) -> None:
    engine = open_engine(SimulatedFiles(), options=replace(SMALL, when_defined=made.gate.when_written))
    source, target = (engine.store(engine.create_queue(True, {})) for _ in range(2))
    message = Message(Envelope(b"\0\1q", bytes(14), True), b"m")
    source.append([message], 1)
    engine.flush()
    entries, _ = source.take(1, 1)
    target.append([message], 1)
    source.settle(entries, EventKind.MOVED)
    for number in range(4):
        # A client declares one queue after the other.
        made.put(str(number))
        engine.flush()
        made.gate.write()
        assert engine.is_moving() == (not number)
        made.put(f"{number}, before the end of the write")
        made.finish()
    assert engine.close()


def test_very_many_callbacks_are_called_in_slices(made: Gate) -> None:
    gate, clock = made.gate, SteppingClock()
    gate._new_slice = lambda: TimeSlice(clock)
    made.put("q")
    for number in range(20):
        gate.when_written(partial(made.log.append, str(number)))
    gate.write()
    made.finish()
    assert 0 < len(made.log) < 10
    made.put("r")
    gate.when_written(lambda: made.log.append("r"))
    gate.write()
    made.finish()
    made.clock.advance(1)
    assert made.log == [*map(str, range(20)), "r"]


def test_callbacks_that_are_left_are_called_before_the_end(made: Gate) -> None:
    clock = SteppingClock()
    made.gate._new_slice = lambda: TimeSlice(clock)
    made.put("q")
    for number in range(20):
        made.gate.when_written(partial(made.log.append, str(number)))
    made.gate.write_now()
    assert len(made.log) == 20


def test_nothing_is_held_for_what_is_written(made: Gate) -> None:
    made.gate.hold(Output(made.log, "a"))
    made.gate.when_written(lambda: made.log.append("called"))
    assert made.log == ["called"]


def test_changes_grow_with_what_is_not_written_only(made: Gate) -> None:
    gate = made.gate
    made.put("q")
    before = gate.changes
    gate.rely_on("queue", ("/", "other"))
    assert gate.changes == before
    gate.rely_on("queue", ("/", "q"))
    assert gate.changes == before + 1
    gate.write()
    made.finish()
    gate.rely_on("queue", ("/", "q"))
    assert gate.changes == before + 1


def test_one_batch_at_a_time(made: Gate) -> None:
    """What comes while a batch is written is one batch, however many turns it takes."""
    gate = made.gate
    made.database.goes_on = queue.Queue()
    made.put("1")
    gate.hold(Output(made.log, "a"))
    gate.write()
    for name in ("2", "3"):
        made.put(name)
        gate.write()
    gate.hold(Output(made.log, "b"))
    made.database.goes_on.put(None)
    made.finish()
    assert made.log == ["hold a", "hold b", "release a"]
    assert gate.is_unwritten("queue", ("/", "3"))
    made.database.goes_on.put(None)
    made.finish()
    assert made.log[3:] == ["release b"]
    assert [len(batch) for batch in made.database.written] == [1, 2]


def test_a_batch_that_failed_is_written_with_what_came_after_it(made: Gate) -> None:
    gate, database = made.gate, made.database
    database.failure = sqlite3.OperationalError("database is locked")
    made.put("1")
    made.put("2")
    gate.hold(Output(made.log, "a"))
    gate.write()
    made.finish()
    gate.delete("queue", ("/", "1"))
    gate.hold(Output(made.log, "b"))
    gate.write()
    assert made.calls.empty(), "it is tried again after a second"
    assert made.log == ["hold a", "hold b"]
    database.failure = None
    made.clock.advance(1)
    made.finish()
    assert made.log[2:] == ["release a", "release b"]
    assert made.rows() == ["2"]


def test_after_30_seconds_new_ones_are_refused(made: Gate) -> None:
    gate, alarms = made.gate, made.alarms
    made.database.failure = sqlite3.OperationalError("disk I/O error")
    made.put("q")
    gate.write()
    made.finish()
    for _ in range(int(ALARM_SECONDS) - 1):
        made.clock.advance(1)
        made.finish()
    gate.refuse_if_failing("queue 'other'")
    assert not alarms.any
    made.clock.advance(1)
    assert alarms.resources == {"disk"}
    with pytest.raises(ConnectionFault, match=r"506.*cannot declare queue 'other'"):
        gate.refuse_if_failing("queue 'other'")
    made.finish()
    made.database.failure = None
    made.clock.advance(1)
    made.finish()
    assert not alarms.any
    gate.refuse_if_failing("queue 'other'")


def test_the_alarm_of_a_full_disk_is_another_one(made: Gate) -> None:
    made.alarms.set("disk")
    made.alarms.set("disk", "definitions")
    made.alarms.clear("disk", "definitions")
    assert made.alarms.resources == {"disk"}
    assert made.alarms.reason == "low on disk"
    made.alarms.clear("disk")
    assert not made.alarms.any


@pytest.mark.parametrize("failure", [DefinitionsDamagedError("x"), OSError("x"), RuntimeError("a mistake")])
def test_whatever_goes_wrong_the_gate_stays_closed_and_tries_again(made: Gate, failure: Exception) -> None:
    made.database.failure = failure
    made.put("q")
    made.gate.hold(Output(made.log, "a"))
    made.gate.write()
    made.finish()
    assert made.log == ["hold a"]
    made.database.failure = None
    made.clock.advance(1)
    made.finish()
    assert made.log == ["hold a", "release a"]


def test_a_stop_waits_for_what_is_under_way_and_writes_the_rest(made: Gate) -> None:
    gate, database = made.gate, made.database
    database.goes_on = queue.Queue()
    made.put("1")
    gate.write()
    made.put("2")
    for _ in range(2):
        database.goes_on.put(None)
    gate.write_now()
    assert made.rows() == ["1", "2"]
    assert gate.is_open
    made.finish()
    assert gate.is_open, "what the thread has to say comes too late"


def test_a_stop_after_a_failure_writes_all_of_it(made: Gate) -> None:
    gate, database = made.gate, made.database
    database.failure = sqlite3.OperationalError("disk I/O error")
    made.put("1")
    gate.write()
    made.finish()
    made.put("2")
    with pytest.raises(sqlite3.OperationalError):
        gate.write_now()
    assert not gate.is_open
    database.failure = None
    gate.write_now()
    assert made.rows() == ["1", "2"]


def test_a_callback_that_fails_takes_no_other_with_it(made: Gate, caplog: pytest.LogCaptureFixture) -> None:
    fails = partial(divmod, 1, 0)
    made.gate.before_write(fails)
    made.gate.before_write(partial(made.log.append, "before"))
    made.put("1")
    made.gate.when_written(fails)
    made.gate.when_written(partial(made.log.append, "after"))
    made.gate.write()
    made.finish()
    assert made.log == ["before", "after"]
    assert len(caplog.records) == 2


def test_replies_wait_for_copies_too(made: Gate) -> None:
    class Machines:
        waiting: queue.Queue[Callable[[], None]] = queue.Queue()

        def when_copied(self, callback: Callable[[], None]) -> None:
            self.waiting.put(callback)

        def wait(self, seconds: float) -> bool:
            return True

    made.gate.copies = machines = Machines()
    recorded: list[Changes] = []
    made.database.on_written = recorded.append
    made.put("q")
    made.gate.hold(Output(made.log, "a"))
    made.gate.write()
    copied = machines.waiting.get(timeout=30)
    assert (made.rows(), len(recorded), made.calls.empty()) == (["q"], 1, True)
    copied()
    made.finish()
    assert made.log == ["hold a", "release a"]
