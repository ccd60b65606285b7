"""How far behind a node is."""

from __future__ import annotations

from leveret.broker.replication.lag import Lag, Marks


def test_lag_in_operations_bytes_and_seconds() -> None:
    marks = Marks(10, 1000, 0.0)
    marks.note(12, 1500, 1.0)
    marks.note(20, 4000, 2.0)
    assert marks.lag(20, 9.0) == marks.lag(21, 9.0) == Lag()
    assert marks.lag(12, 9.0) == Lag(8, 2500, 7.0)
    assert marks.lag(11, 9.0) == Lag(9, 3000, 8.0)
    # What is older than the first mark is at least as far behind as that.
    assert marks.lag(3, 9.0) == Lag(17, 3000, 9.0)
    # Nothing has come since: the mark stays that of the operation.
    marks.note(20, 4000, 8.0)
    assert marks.lag(12, 9.0).seconds == 7.0


def test_many_marks_are_thinned_out() -> None:
    marks = Marks(0, 0, 0.0)
    for number in range(1, 20_001):
        marks.note(number, 10 * number, float(number))
    for acknowledged in (0, 1, 9_999, 15_001):
        lag = marks.lag(acknowledged, 20_000.0)
        assert lag.operations == 20_000 - acknowledged
        assert 0 <= lag.bytes - 10 * lag.operations < 10 * 512
        assert 0 <= 20_000 - acknowledged - 1 - lag.seconds < 512
