from __future__ import annotations

from leveret.storage.clock import Clock


def test_it_never_goes_back() -> None:
    times = iter([10, 12, 11, 13])
    clock = Clock(lambda: next(times), lambda: 0)
    assert [clock() for _ in range(4)] == [10, 12, 12, 13]


def test_it_goes_on_at_half_its_pace_while_the_machine_s_clock_is_behind() -> None:
    times = iter([1000, 100, 200, 310, 1000, 1300, 1150])
    ticks = iter([0, 100, 211, 5000])
    clock = Clock(lambda: next(times), lambda: next(ticks))
    assert [clock() for _ in range(4)] == [1000, 1000, 1050, 1105]
    assert clock() == 1105 + (5000 - 210) // 2
    times, ticks = iter([9000, 8000, 8100]), iter([6000, 6100])
    assert [clock() for _ in range(3)] == [9000, 9000, 9050], "as from the beginning"


def test_a_time_can_be_left_behind() -> None:
    clock = Clock(lambda: 10, lambda: 0)
    assert clock() == 10
    clock.advance_past()
    assert clock() == 11
    clock.advance_past(20)
    clock.advance_past(15)
    assert clock() == 21
