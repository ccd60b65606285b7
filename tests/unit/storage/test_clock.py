from __future__ import annotations

from collections.abc import Iterable

from leveret.storage.clock import AscendingClock, Clock


class ScriptedClock(Clock):
    """A clock that returns these times, one per reading.

    Args:
        wall: Wall-clock times in microseconds.
        monotonic: Monotonic times in microseconds.
    """

    def __init__(self, wall: Iterable[int], monotonic: Iterable[int] = ()) -> None:
        super().__init__()
        self._wall = iter(wall)
        self._monotonic = iter(monotonic)

    def now(self) -> int:
        """Return the next wall-clock time."""
        return next(self._wall)

    def monotonic(self) -> int:
        """Return the next monotonic time."""
        return next(self._monotonic)


def test_timestamps_never_go_back() -> None:
    clock = AscendingClock(ScriptedClock([10, 12, 11, 13], [0]))
    assert [clock() for _ in range(4)] == [10, 12, 12, 13]


def test_timestamps_advance_at_half_speed_after_the_wall_clock_was_set_back() -> None:
    wall = [1000, 100, 200, 310, 1000, 9000, 8000, 8100]
    clock = AscendingClock(ScriptedClock(wall, [0, 100, 211, 5000, 6000, 6100]))
    assert [clock() for _ in range(4)] == [1000, 1000, 1050, 1105]
    assert clock() == 1105 + (5000 - 210) // 2
    assert [clock() for _ in range(3)] == [9000, 9000, 9050], "as from the beginning"


def test_timestamps_can_be_advanced_past_a_time() -> None:
    clock = AscendingClock(ScriptedClock([10, 10, 10], [0, 0]))
    assert clock() == 10
    clock.advance_past()
    assert clock() == 11
    clock.advance_past(20)
    clock.advance_past(15)
    assert clock() == 21


def test_while_the_clock_is_held_it_is_read_once() -> None:
    clock = AscendingClock(ScriptedClock([10, 30, 40]))
    assert clock() == 10
    clock.hold()
    assert [clock(), clock.now()] == [30, 30]
    clock.advance_past()
    assert clock() == 31, "what is written at the end of a turn is later than all before it"
    clock.release()
    assert clock() == 40
