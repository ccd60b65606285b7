from __future__ import annotations

import logging
from collections.abc import Callable

import pytest

from leveret.broker.core.scheduling.turn import TimeSlice, Turn
from tests.support.stepping_clock import SteppingClock


class Worker:
    """A queue and a connection in one; calls the given function when the turn ends."""

    def __init__(self, log: list[str], name: str, work: Callable[[], None] = lambda: None) -> None:
        self.scheduled = False
        self.log = log
        self.name = name
        self.work = work

    def deliver(self) -> None:
        assert not self.scheduled
        self.log.append(f"deliver {self.name}")
        self.work()

    def flush(self) -> None:
        self.log.append(f"flush {self.name}")
        self.work()


@pytest.fixture
def calls() -> list[Callable[[], None]]:
    return []


@pytest.fixture
def turn(calls: list[Callable[[], None]]) -> Turn:
    return Turn(calls.append)


def test_queues_deliver_before_connections_write(turn: Turn, calls: list[Callable[[], None]]) -> None:
    log: list[str] = []
    turn.flush_later(Worker(log, "x"))
    turn.deliver_later(Worker(log, "a"))
    turn.flush_later(Worker(log, "y"))
    turn.deliver_later(Worker(log, "b"))
    assert len(calls) == 1, "one callback ends the turn"
    calls.pop()()
    assert log == ["deliver a", "deliver b", "flush x", "flush y"]
    assert calls == []


def test_what_confirms_durable_messages_makes_nothing_durable(turn: Turn, calls: list[Callable[[], None]]) -> None:
    log: list[str] = []
    turn.before_writing.append(lambda: log.append("write"))
    schedules = (turn.confirm_later, turn.flush_later, turn.deliver_later)
    for schedule in schedules:
        schedule(Worker(log, "x"))
        calls.pop()()
    assert log == ["flush x", "write", "flush x", "deliver x", "write"]
    log.clear()
    turn.confirm_later(Worker(log, "x"))
    turn.end_later()
    calls.pop()()
    assert log == ["write", "flush x"]


def _fail() -> None:
    raise ZeroDivisionError


@pytest.mark.parametrize("also", [False, True], ids=["alone", "with the others"])
def test_an_exception_affects_no_other_queue_or_connection(
    calls: list[Callable[[], None]], caplog: pytest.LogCaptureFixture, also: bool
) -> None:
    turn = Turn(calls.append)
    turn.before_writing.append(_fail)
    log: list[str] = []
    for name, work in (("a", _fail), ("b", _fail if also else lambda: None), ("c", lambda: None)):
        turn.deliver_later(Worker(log, name, work))
        turn.flush_later(Worker(log, name, work))
    with caplog.at_level(logging.ERROR):
        calls.pop()()
    assert log == ["deliver a", "deliver b", "deliver c", "flush a", "flush b", "flush c"]
    assert len(caplog.records) == (5 if also else 3)
    assert {record.exc_info[0] for record in caplog.records if record.exc_info} == {ZeroDivisionError}
    turn.deliver_later(Worker(log, "d"))
    calls.pop()()
    assert log[-1] == "deliver d"


def test_nothing_runs_before_the_end(turn: Turn) -> None:
    log: list[str] = []
    worker = Worker(log, "a")
    turn.deliver_later(worker)
    assert (log, worker.scheduled) == ([], True)


def test_being_noted_twice_means_one_run(turn: Turn, calls: list[Callable[[], None]]) -> None:
    log: list[str] = []
    worker = Worker(log, "a")
    for _ in range(3):
        turn.deliver_later(worker)
    calls.pop()()
    assert log == ["deliver a"]
    turn.deliver_later(worker)
    calls.pop()()
    assert log == ["deliver a", "deliver a"]


def test_what_a_delivery_sends_is_written_in_the_same_turn(turn: Turn, calls: list[Callable[[], None]]) -> None:
    log: list[str] = []
    connection = Worker(log, "x")
    turn.deliver_later(Worker(log, "a", lambda: turn.flush_later(connection)))
    calls.pop()()
    assert log == ["deliver a", "flush x"]
    # The turn may have asked for another end meanwhile, which then has nothing to do.
    while calls:
        calls.pop()()
    assert log == ["deliver a", "flush x"]


def test_work_made_by_a_write_waits_for_the_next_turn(turn: Turn, calls: list[Callable[[], None]]) -> None:
    log: list[str] = []
    queue = Worker(log, "a")
    turn.flush_later(Worker(log, "x", lambda: turn.deliver_later(queue)))
    calls.pop()()
    assert log == ["flush x"]
    assert len(calls) == 1
    calls.pop()()
    assert log == ["flush x", "deliver a"]


def test_a_queue_that_asks_again_while_it_delivers_has_another_turn(
    turn: Turn, calls: list[Callable[[], None]]
) -> None:
    log: list[str] = []
    queue = Worker(log, "a")
    queue.work = lambda: turn.deliver_later(queue) if len(log) < 3 else None
    turn.deliver_later(queue)
    while calls:
        assert len(calls) == 1
        calls.pop()()
    assert log == ["deliver a"] * 3
    assert not queue.scheduled


def test_what_work_causes_shares_its_time_slice() -> None:
    turn = Turn(lambda callback: None, clock := SteppingClock())
    seen: list[TimeSlice] = []

    def outer(time_slice: TimeSlice) -> None:
        seen.append(time_slice)
        seen.append(turn.slice())
        turn.share_slice(seen.append)
        while not time_slice.is_over():
            pass
        # What comes later gets no time of its own.
        assert turn.slice().is_over()

    turn.share_slice(outer)
    assert len({id(each) for each in seen}) == 1
    assert not turn.slice().is_over()
    assert clock() > 0


def test_an_error_ends_a_shared_slice() -> None:
    turn = Turn(lambda callback: None, SteppingClock())

    def fail(time_slice: TimeSlice) -> None:
        while not time_slice.is_over():
            pass
        raise ValueError

    with pytest.raises(ValueError):
        turn.share_slice(fail)
    assert not turn.slice().is_over()
