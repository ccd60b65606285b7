"""Base class of counters that are sampled every few seconds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from leveret.broker.core.stats.history import BASIC, RATES_ONLY, STEP, History, Retention


class SampledCounters:
    """Counters of one object and the history of their samples.

    A sample of an idle object costs one comparison, and no memory.

    Attributes:
        history: The samples; None until a counter has changed.
        idle_since: Time of the last sample with a change, in seconds since 1970; 0 unless the object is idle.
    """

    __slots__ = ("_last_row", "history", "idle_since")

    #: Names of the numbers in a row.
    FIELDS: ClassVar[tuple[str, ...]] = ()

    def __init__(self) -> None:
        self.history: History | None = None
        self.idle_since = 0
        self._last_row: tuple[int, ...] = ()

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
