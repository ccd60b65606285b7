"""Numbers that are looked at every few seconds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from leveret.broker.core.stats.history import BASIC, RATES_ONLY, STEP, History, Retention


class Followed:
    """Counters of one object, with their history once there is one.

    Looking at an object where nothing happens costs a comparison, and no memory.

    Attributes:
        history: Its samples; None as long as nothing has happened.
        idle_since: When the look was since which nothing has happened, in seconds since 1970; 0 while something
            happens.
    """

    __slots__ = ("_seen", "history", "idle_since")

    #: Names of the numbers in a row.
    FIELDS: ClassVar[tuple[str, ...]] = ()

    def __init__(self) -> None:
        self.history: History | None = None
        self.idle_since = 0
        self._seen: tuple[int, ...] = ()

    def look(
        self,
        now: int,
        row: tuple[int, ...],
        detailed: bool = True,
        retention: Sequence[Retention] = BASIC,
        from_zero: bool = True,
    ) -> bool:
        """Take a sample; return whether something has happened since the last one.

        Args:
            now: Seconds since 1970, a multiple of the step of histories.
            row: The numbers, by FIELDS.
            detailed: Whether a new history may keep more than the rates take.
            retention: What a detailed one keeps.
            from_zero: Whether the numbers were 0 before the first sample; otherwise they are taken to have been the
                same.
        """
        if row == self._seen or (not self._seen and not any(row)):
            self.idle_since = self.idle_since or now - STEP
            return False
        self._seen = row
        self.idle_since = 0
        if self.history is None:
            self.history = History(len(row), retention if detailed else RATES_ONLY)
            if not from_zero:
                self.history.add(now - STEP, row)
        self.history.add(now, row)
        return True

    @property
    def is_detailed(self) -> bool:
        """Whether it has a history that keeps more than the rates take."""
        return self.history is not None and self.history.is_detailed
