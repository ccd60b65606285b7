"""Lost messages of queues and exchanges: counters by reason, and their histories."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from operator import add
from typing import Any, ClassVar, Self

from leveret.broker.core.stats.history import LOSSES, LOSSES_SPARSE, History
from leveret.broker.core.stats.sampled_counters import SampledCounters


class LossHistory(SampledCounters):
    """The samples of one object's losses; only objects with losses have one."""

    __slots__ = ()


class LossCounters(SampledCounters):
    """Counters of an object that may lose messages.

    Args:
        since: See below; 0 for a sum of counters.

    Attributes:
        losses: Samples of losses; None until a sample has found any.
        since: Time since when losses are counted, in seconds since 1970; restarts may lie in between.
        earlier: Losses before the last restart, by LOSS_FIELDS; empty if there were none.
    """

    __slots__ = ("earlier", "losses", "since")

    #: Names of the numbers in a row of losses; the first is the number of permanently lost messages.
    LOSS_FIELDS: ClassVar[tuple[str, ...]] = ("lost",)

    def __init__(self, since: int = 0) -> None:
        super().__init__()
        self.losses: LossHistory | None = None
        self.since = since
        self.earlier: tuple[int, ...] = ()

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
