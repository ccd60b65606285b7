"""What objects have lost: counters by reason, when that was, and what has been deleted since."""

from __future__ import annotations

import time
from abc import abstractmethod
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from operator import add
from typing import Any, ClassVar, Final, Generic, Self, TypeVar

from leveret.broker.core.stats.followed import Followed
from leveret.broker.core.stats.history import LOSSES, LOSSES_SPARSE, STEP, History

#: The longest that a window reaches back, in seconds; deleted objects are known by name for as long.
DAY: Final = 86_400
#: Deleted objects of a virtual host and kind that are known by name.
_DELETED_MAX: Final = 200


class LossHistory(Followed):
    """The samples of one object's losses. There is none for an object that has never lost anything."""

    __slots__ = ()


class LosingCounters(Followed):
    """Counters of an object that may lose messages.

    Attributes:
        losses: When it lost them; None until a sample has found any.
        since: When counting of losses began, in seconds since 1970; perhaps by an earlier run.
        earlier: What was lost in earlier runs, by LOSS_FIELDS; empty if nothing was. The other counters begin at 0.
    """

    __slots__ = ("earlier", "losses", "since")

    #: Names of the numbers in a row of losses; the first is the sum of what is lost for good.
    LOSS_FIELDS: ClassVar[tuple[str, ...]] = ("lost",)

    def __init__(self) -> None:
        super().__init__()
        self.losses: LossHistory | None = None
        self.since = int(time.time())
        self.earlier: tuple[int, ...] = ()

    @property
    @abstractmethod
    def has_losses(self) -> bool:
        """Whether it may have lost anything; cheap."""

    @abstractmethod
    def current_loss_row(self, retained: int = 0) -> tuple[int, ...]:
        """The losses of this run, by LOSS_FIELDS; see loss_row()."""

    def loss_row(self, retained: int = 0) -> tuple[int, ...]:
        """The losses of this run and of earlier ones, by LOSS_FIELDS.

        Args:
            retained: Dead letters that wait for somebody to take them: not lost yet.
        """
        row = self.current_loss_row(retained)
        return tuple(map(add, row, self.earlier)) if self.earlier else row

    @abstractmethod
    def absorb(self, other: Self) -> None:
        """Add those of an object that has gone."""

    def add_earlier(self, row: Sequence[int]) -> None:
        """Add losses of an earlier run, by LOSS_FIELDS."""
        if any(row):
            self.earlier = tuple(map(add, self.earlier, row)) if self.earlier else tuple(row)

    def restore_history(self, dumped: Sequence[Any], now: int) -> None:
        """Take over the samples of an earlier run.

        Args:
            dumped: As History.dump() returned them.
            now: Seconds since 1970, a multiple of the step of histories.
        Raises:
            ValueError: They are of another form.
        """
        retention = LOSSES if len(dumped) == len(LOSSES) - 1 else LOSSES_SPARSE
        history = History(len(self.LOSS_FIELDS), retention)
        history.load(dumped, now)
        self.losses = LossHistory()
        self.losses.history = history

    def look_at_losses(self, now: int, detailed: bool, retained: int = 0) -> None:
        """Take a sample of the losses.

        Args:
            now: Seconds since 1970, a multiple of the step of histories.
            detailed: Whether a new history may keep fine samples, beside those of half an hour.
            retained: See loss_row().
        """
        if self.losses is None:
            self.losses = LossHistory()
        self.losses.look(now, self.loss_row(retained), retention=LOSSES if detailed else LOSSES_SPARSE)


Counters = TypeVar("Counters", bound=LosingCounters)


@dataclass(frozen=True, slots=True)
class Deleted(Generic[Counters]):
    """An object that was deleted.

    Args:
        name: Its name.
        counters: What it had counted.
        deleted_at: When, in seconds since 1970.
    """

    name: str
    counters: Counters
    deleted_at: int


class DeletedObjects(Generic[Counters]):
    """The losses of a virtual host's deleted queues, or exchanges.

    Those of the last day are known by name, up to a number; of all others only the sums are kept.

    Args:
        earlier: For the sums of those that were deleted more than a day ago.
        others: For the sums of those that are too many, or too short-lived, to be known by name.

    Attributes:
        recent: Known by name, oldest first.
        earlier: Sums of those that were deleted more than a day ago.
        others: Sums of the rest; its history says when they were added.
    """

    def __init__(self, earlier: Counters, others: Counters) -> None:
        self.recent: deque[Deleted[Counters]] = deque()
        self.earlier = earlier
        self.others = others

    def note(self, name: str, counters: Counters, now: int, by_name: bool = True) -> None:
        """Note an object that is being deleted.

        Args:
            name: Its name.
            counters: What it has counted.
            now: Seconds since 1970.
            by_name: Whether it is worth being known by name.
        """
        if not counters.has_losses:
            return
        if not by_name:
            self.others.absorb(counters)
            return
        counters.look_at_losses(now // STEP * STEP + STEP, detailed=False)
        self.restore(name, counters, now)

    def restore(self, name: str, counters: Counters, deleted_at: int) -> None:
        """Put one behind all others; see note()."""
        self.recent.append(Deleted(name, counters, deleted_at))
        if len(self.recent) > _DELETED_MAX:
            self.others.absorb(self.recent.popleft().counters)

    def look(self, now: int) -> None:
        """Take a sample, and forget the names of those that were deleted a day ago."""
        while self.recent and self.recent[0].deleted_at < now - DAY:
            self.earlier.absorb(self.recent.popleft().counters)
        if self.others.has_losses:
            self.others.look_at_losses(now, detailed=True)
