"""How a few numbers have changed over time.

A row is kept only where a number has changed, so that what stands still takes no room. RabbitMQ's retention: samples
every 5 s for ten minutes, every minute for an hour, and for the broker as a whole coarser ones for a day.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

#: Seconds between samples.
STEP: Final = 5


class Retention(NamedTuple):
    """One level of detail.

    Args:
        step: Seconds between its samples.
        age: Seconds that they reach back.
    """

    step: int
    age: int


#: Of single queues, channels and so on.
BASIC: Final = (Retention(STEP, 600), Retention(60, 3600))
#: Of the broker and its virtual hosts.
GLOBAL: Final = (*BASIC, Retention(600, 28_800), Retention(1800, 86_400))
#: Enough for rates, for objects beyond the number that samples are kept of.
RATES_ONLY: Final = (Retention(STEP, STEP),)
#: Of what queues and exchanges have lost: "since this morning" has to be answered; and of those beyond the number.
LOSSES: Final = GLOBAL
LOSSES_SPARSE: Final = (Retention(STEP, STEP), Retention(1800, 86_400))


class Start(NamedTuple):
    """Where a window of time begins.

    Args:
        row: What the numbers were then.
        time: When that is, in seconds since 1970.
        step: How exact it is, in seconds.
    """

    row: Sequence[int]
    time: int
    step: int


class _Level:
    """The rows of one level, oldest first: for each a time, and what the numbers were then.

    Args:
        retention: What is kept.
        width: Numbers in a row.
    """

    __slots__ = ("_has_forgotten", "_limit", "_rows", "_step", "_times", "_width")

    def __init__(self, retention: Retention, width: int) -> None:
        self._step = retention.step
        self._width = width
        self._limit = retention.age // retention.step + 2
        self._times: array[int] = array("q")
        self._rows: array[int] = array("q")
        self._has_forgotten = False

    def add(self, at: int, row: Sequence[int]) -> None:
        """Keep what the numbers are, as a sample of the next full step."""
        at = -(-at // self._step) * self._step
        if self._times and self._times[-1] == at:
            self._rows[-self._width :] = array("q", row)
            return
        self._times.append(at)
        self._rows.extend(row)
        # Taking rows off the front moves all others: a few at a time.
        excess = len(self._times) - self._limit
        if excess > self._limit // 4:
            del self._times[:excess]
            del self._rows[: excess * self._width]
            self._has_forgotten = True

    def newest(self) -> Sequence[int]:
        """The newest row; empty if there is none."""
        return self._rows[-self._width :]

    def last(self) -> int:
        """The time of the newest row."""
        return self._times[-1]

    def dump(self) -> list[Any]:
        """All of it, for JSON."""
        return [self._has_forgotten, self._times.tolist(), self._rows.tolist()]

    def load(self, dumped: Sequence[Any]) -> None:
        """Take the place of what was dumped."""
        forgotten, times, rows = dumped
        if len(rows) != len(times) * self._width:
            raise ValueError("the rows of a history have another width")
        self._has_forgotten = bool(forgotten)
        self._times, self._rows = array("q", times), array("q", rows)

    def at(self, time: int) -> Sequence[int] | None:
        """What the numbers were at a time, as far as that is known; None before the first row there ever was."""
        place = bisect_right(self._times, time) - 1
        if place < 0 and self._has_forgotten:
            place = 0
        return self._rows[place * self._width : (place + 1) * self._width] if place >= 0 else None


class History:
    """Samples of some numbers.

    Args:
        width: How many numbers.
        retention: What is kept, finest level first.
    """

    __slots__ = ("_levels", "_retention", "_zeros")

    def __init__(self, width: int, retention: Sequence[Retention] = BASIC) -> None:
        self._retention = retention
        self._levels = [_Level(each, width) for each in retention]
        self._zeros = (0,) * width

    @property
    def is_detailed(self) -> bool:
        """Whether it keeps more than the rates take."""
        return self._retention is not RATES_ONLY and self._retention is not LOSSES_SPARSE

    def add(self, at: int, row: Sequence[int]) -> None:
        """Keep a sample that differs from the last one.

        Args:
            at: Seconds since 1970, a multiple of STEP; later than all before.
            row: The numbers.
        """
        for level in self._levels:
            level.add(at, row)

    def dump(self) -> list[Any]:
        """All but the finest level, for JSON."""
        return [level.dump() for level in self._levels[1:]]

    def load(self, dumped: Sequence[Any], now: int) -> None:
        """Take the place of one that was dumped, with the same retention.

        Args:
            dumped: As dump() returned it.
            now: Seconds since 1970; of the finest level only what the numbers were last is known, as of now.
        Raises:
            ValueError: It is of another form.
        """
        if len(dumped) != len(self._levels) - 1:
            raise ValueError("a history has other levels")
        for level, each in zip(self._levels[1:], dumped, strict=True):
            level.load(each)
        self._levels[0].add(now, self._levels[1].newest() or self._zeros)

    def rates(self, now: int) -> list[float]:
        """Changes per second over the last step.

        Args:
            now: When the last sample was due, in seconds since 1970.
        """
        level = self._levels[0]
        if level.last() < now:
            return [0.0] * len(self._zeros)
        new, old = level.at(now) or self._zeros, level.at(now - STEP) or self._zeros
        return [(new[place] - old[place]) / STEP for place in range(len(new))]

    def samples(self, age: int, times: Sequence[int]) -> list[Sequence[int]]:
        """What the numbers were at some times; 0 before the first sample.

        Args:
            age: Seconds that the oldest of them lies back; it chooses the level.
            times: Seconds since 1970.
        """
        level = self._levels[self._choose(age)]
        return [level.at(time) or self._zeros for time in times]

    def start(self, now: int, age: int) -> Start:
        """The numbers at the beginning of a window, which is at most one step earlier than asked for.

        Args:
            now: Seconds since 1970.
            age: Seconds that the window reaches back.
        """
        chosen = self._choose(age)
        step = self._retention[chosen].step
        time = (now - age) // step * step
        return Start(self._levels[chosen].at(time) or self._zeros, time, step)

    def _choose(self, age: int) -> int:
        """The finest level that reaches back so far."""
        for place, retention in enumerate(self._retention):
            if age <= retention.age:
                return place
        return len(self._retention) - 1
