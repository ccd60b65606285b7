"""Counters that are sampled every few seconds, their histories, and losses, which have a history of their own.

A row is stored only if a number has changed, so that idle objects need no memory. The retention is RabbitMQ's: samples
every 5 s for ten minutes, every minute for an hour, and for the whole broker coarser ones for a day.
"""

from __future__ import annotations

from abc import abstractmethod
from array import array
from bisect import bisect_right
from collections.abc import Sequence
from operator import add
from typing import Any, ClassVar, Final, NamedTuple, Self

#: Seconds between samples.
STEP: Final = 5


class Retention(NamedTuple):
    """Retention of one level of detail.

    Args:
        step: Seconds between samples.
        age: Age of the oldest sample in seconds.
    """

    step: int
    age: int


#: Retention of single queues, channels and so on.
BASIC: Final = (Retention(STEP, 600), Retention(60, 3600))
#: Retention of the broker and its virtual hosts.
GLOBAL: Final = (*BASIC, Retention(600, 28_800), Retention(1800, 86_400))
#: Enough for rates, for objects above the limit of detailed histories.
RATES_ONLY: Final = (Retention(STEP, STEP),)
#: Retention of losses of queues and exchanges: detailed, and for objects above the limit.
LOSSES: Final = GLOBAL
LOSSES_SPARSE: Final = (Retention(STEP, STEP), Retention(1800, 86_400))


class WindowStart(NamedTuple):
    """Begin of a time window.

    Args:
        row: The numbers at that time.
        time: Seconds since 1970.
        step: Resolution in seconds.
    """

    row: Sequence[int]
    time: int
    step: int


class _Level:
    """The rows of one level, oldest first, with their times."""

    __slots__ = ("_has_forgotten", "_limit", "_rows", "_step", "_times", "_width")

    def __init__(self, retention: Retention, width: int) -> None:
        self._step = retention.step
        self._width = width
        self._limit = retention.age // retention.step + 2
        self._times: array[int] = array("q")
        self._rows: array[int] = array("q")
        self._has_forgotten = False

    def add(self, at: int, row: Sequence[int]) -> None:
        """Add a sample for the next full step."""
        at = -(-at // self._step) * self._step
        if self._times and self._times[-1] == at:
            self._rows[-self._width :] = array("q", row)
            return
        self._times.append(at)
        self._rows.extend(row)
        # Removing rows at the front moves all others, so several are removed at once.
        excess = len(self._times) - self._limit
        if excess > self._limit // 4:
            del self._times[:excess]
            del self._rows[: excess * self._width]
            self._has_forgotten = True

    def newest(self) -> Sequence[int]:
        """Return the newest row; empty if there is none."""
        return self._rows[-self._width :]

    def last(self) -> int:
        """Return the time of the newest row."""
        return self._times[-1]

    def dump(self) -> list[Any]:
        """Return all rows for JSON."""
        return [self._has_forgotten, self._times.tolist(), self._rows.tolist()]

    def load(self, dumped: Sequence[Any], width: int) -> None:
        """Replace all rows by those of dump(). Shorter rows, of an earlier version, get zeros at the end."""
        forgotten, times, rows = dumped
        if len(rows) != len(times) * width or width > self._width:
            raise ValueError("the rows of a history have another width")
        if width < self._width:
            zeros = [0] * (self._width - width)
            rows = [number for at in range(0, len(rows), width) for number in (*rows[at : at + width], *zeros)]
        self._has_forgotten = bool(forgotten)
        self._times, self._rows = array("q", times), array("q", rows)

    def at(self, time: int) -> Sequence[int] | None:
        """Return the numbers at a time, or the oldest known ones; None before the first row that was ever added."""
        place = bisect_right(self._times, time) - 1
        if place < 0 and self._has_forgotten:
            place = 0
        return self._rows[place * self._width : (place + 1) * self._width] if place >= 0 else None


class History:
    """Samples of several numbers.

    Args:
        width: Number of values per sample.
        retention: Levels of detail, finest first.
    """

    __slots__ = ("_levels", "_retention", "_zeros")

    def __init__(self, width: int, retention: Sequence[Retention] = BASIC) -> None:
        self._retention = retention
        self._levels = [_Level(each, width) for each in retention]
        self._zeros = (0,) * width

    @property
    def is_detailed(self) -> bool:
        """Whether it keeps more than rates need."""
        return self._retention not in (RATES_ONLY, LOSSES_SPARSE)

    def add(self, at: int, row: Sequence[int]) -> None:
        """Add a sample that differs from the last one.

        Args:
            at: Seconds since 1970, a multiple of STEP; later than all earlier samples.
            row: The numbers.
        """
        for level in self._levels:
            level.add(at, row)

    def dump(self) -> list[Any]:
        """Return all levels but the finest, for JSON."""
        return [level.dump() for level in self._levels[1:]]

    def load(self, dumped: Sequence[Any], width: int, now: int) -> None:
        """Restore the result of dump() of a history with the same retention.

        Args:
            dumped: The result of dump().
            width: Numbers in each of its rows; not more than in a sample.
            now: Seconds since 1970; the finest level begins at this time, with the newest numbers.
        Raises:
            ValueError: It has another form.
        """
        if len(dumped) != len(self._levels) - 1:
            raise ValueError("a history has other levels")
        for level, each in zip(self._levels[1:], dumped, strict=True):
            level.load(each, width)
        self._levels[0].add(now, self._levels[1].newest() or self._zeros)

    def rates(self, now: int) -> list[float]:
        """Return the changes per second over the last step.

        Args:
            now: Time of the last sample that was due, in seconds since 1970.
        """
        level = self._levels[0]
        if level.last() < now:
            return [0.0] * len(self._zeros)
        new, old = level.at(now) or self._zeros, level.at(now - STEP) or self._zeros
        return [(new[place] - old[place]) / STEP for place in range(len(new))]

    def samples(self, age: int, times: Sequence[int]) -> list[Sequence[int]]:
        """Return the numbers at several times; 0 before the first sample.

        Args:
            age: Age of the oldest time in seconds; it selects the level.
            times: Seconds since 1970.
        """
        level = self._levels[self._level_for(age)]
        return [level.at(time) or self._zeros for time in times]

    def start(self, now: int, age: int) -> WindowStart:
        """Return the numbers at the begin of a time window, rounded down to a step.

        Args:
            now: Seconds since 1970.
            age: Length of the window in seconds.
        """
        chosen = self._level_for(age)
        step = self._retention[chosen].step
        time = (now - age) // step * step
        return WindowStart(self._levels[chosen].at(time) or self._zeros, time, step)

    def _level_for(self, age: int) -> int:
        """Return the index of the finest level that covers an age."""
        for place, retention in enumerate(self._retention):
            if age <= retention.age:
                return place
        return len(self._retention) - 1


class SampledCounters:
    """Counters of one object and the history of their samples.

    A sample of an idle object costs one comparison, and no memory.
    """

    #: The samples; None until a counter has changed.
    history: History | None = None
    #: Time of the last sample with a change, in seconds since 1970; 0 unless the object is idle.
    idle_since = 0
    _last_row: tuple[int, ...] = ()

    #: Names of the numbers in a row.
    FIELDS: ClassVar[tuple[str, ...]] = ()

    def sample(
        self,
        now: int,
        row: tuple[int, ...],
        detailed: bool = True,
        retention: Sequence[Retention] = BASIC,
        from_zero: bool = True,
    ) -> bool:
        """Take a sample; return whether a number has changed since the last one.

        Args:
            now: Seconds since 1970, a multiple of the step of histories.
            row: The numbers, by FIELDS.
            detailed: Whether a new history may be detailed.
            retention: Retention of a detailed history.
            from_zero: Whether the numbers were 0 before the first sample; otherwise the first sample counts as no
                change.
        """
        if row == self._last_row or (not self._last_row and not any(row)):
            self.idle_since = self.idle_since or now - STEP
            return False
        self._last_row = row
        self.idle_since = 0
        if self.history is None:
            self.history = History(len(row), retention if detailed else RATES_ONLY)
            if not from_zero:
                self.history.add(now - STEP, row)
        self.history.add(now, row)
        return True

    @property
    def is_detailed(self) -> bool:
        """Whether it has a detailed history, which keeps more than rates need."""
        return self.history is not None and self.history.is_detailed


class LossHistory(SampledCounters):
    """The samples of one object's losses; only objects with losses have one."""


class LossCounters(SampledCounters):
    """Counters of an object that may lose messages.

    Args:
        since: See below; 0 for a sum of counters.
    """

    #: Samples of losses; None until a sample has found any.
    losses: LossHistory | None = None
    #: Losses before the last restart, by LOSS_FIELDS; empty if there were none.
    earlier: tuple[int, ...] = ()

    #: Names of the numbers in a row of losses; the first is the number of permanently lost messages.
    LOSS_FIELDS: ClassVar[tuple[str, ...]] = ("lost",)

    def __init__(self, since: int = 0) -> None:
        super().__init__()
        #: Time since when losses are counted, in seconds since 1970; restarts may lie in between.
        self.since = since

    @property
    @abstractmethod
    def has_losses(self) -> bool:
        """Whether it may have lost messages; a fast check."""

    @abstractmethod
    def current_loss_row(self, retained: int = 0) -> tuple[int, ...]:
        """Return the losses since the last restart, by LOSS_FIELDS; see loss_row()."""

    def loss_row(self, retained: int = 0) -> tuple[int, ...]:
        """Return the losses, including those before the last restart, by LOSS_FIELDS.

        Args:
            retained: Dead letters that a queue retains until a target accepts them; they are not lost.
        """
        row = self.current_loss_row(retained)
        return tuple(map(add, row, self.earlier)) if self.earlier else row

    @abstractmethod
    def absorb(self, other: Self) -> None:
        """Add the counters of a deleted object."""

    def add_earlier(self, row: Sequence[int]) -> None:
        """Add losses before the last restart, by LOSS_FIELDS."""
        if any(row):
            self.earlier = tuple(map(add, self.earlier, row)) if self.earlier else tuple(row)

    def restore_history(self, dumped: Sequence[Any], width: int, now: int) -> None:
        """Restore the samples of an earlier run.

        Args:
            dumped: The result of History.dump().
            width: Numbers in each of its rows.
            now: Seconds since 1970, a multiple of the step of histories.
        Raises:
            ValueError: They have another form.
        """
        retention = LOSSES if len(dumped) == len(LOSSES) - 1 else LOSSES_SPARSE
        history = History(len(self.LOSS_FIELDS), retention)
        history.load(dumped, width, now)
        self.losses = LossHistory()
        self.losses.history = history

    def sample_losses(self, now: int, detailed: bool, retained: int = 0) -> None:
        """Take a sample of the losses.

        Args:
            now: Seconds since 1970, a multiple of the step of histories.
            detailed: Whether a new history may keep samples of finer resolution than half an hour.
            retained: See loss_row().
        """
        if self.losses is None:
            self.losses = LossHistory()
        self.losses.sample(now, self.loss_row(retained), retention=LOSSES if detailed else LOSSES_SPARSE)
