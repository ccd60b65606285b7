from __future__ import annotations

from storage.clock import Clock


def test_it_never_goes_back() -> None:
    times = iter([10, 12, 11, 13])
    clock = Clock(lambda: next(times))
    assert [clock() for _ in range(4)] == [10, 12, 12, 13]


def test_a_time_can_be_left_behind() -> None:
    clock = Clock(lambda: 10)
    assert clock() == 10
    clock.leave_behind()
    assert clock() == 11
    clock.leave_behind(20)
    clock.leave_behind(15)
    assert clock() == 21
