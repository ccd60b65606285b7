"""Losses as JSON: dropped, refused, dead-lettered and unroutable messages by reason."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from leveret.broker.core.counters.counters import ExchangeCounters, QueueCounters
from leveret.broker.core.counters.history import STEP, LossCounters, LossHistory
from leveret.broker.management.http.statistics import Rates, numbers
from leveret.policies.dead_letter import REASONS

#: Reasons why messages leave a queue without being acknowledged.
_DROPS: Final = (*REASONS, "purged", "deleted")

_NUMBERS: Final = {
    QueueCounters: numbers(QueueCounters.LOSS_FIELDS, *QueueCounters.LOSS_FIELDS),
    ExchangeCounters: numbers(ExchangeCounters.LOSS_FIELDS, *ExchangeCounters.LOSS_FIELDS),
}
_ZEROS: Final = {"queue": (0,) * len(QueueCounters.LOSS_FIELDS), "exchange": (0,) * len(ExchangeCounters.LOSS_FIELDS)}
_NO_HISTORY: Final = LossHistory()

Kind = Literal["queue", "exchange"]
State = Literal["present", "deleted", "sum of deleted"]


def loss_stats(counters: QueueCounters | ExchangeCounters, rates: Rates, retained: int = 0) -> dict[str, Any]:
    """Return the losses of one object with rates and samples, like ``message_stats``; empty without losses.

    Args:
        counters: Counters of the object.
        rates: Rates of the request. The range of message rates applies.
        retained: Number of dead letters that wait for a queue that accepts them.
    """
    if not counters.has_losses:
        return {}
    row = counters.loss_row(retained)
    if not any(row):
        return {}
    return rates.add_to({}, _NUMBERS[type(counters)], row, counters.losses or _NO_HISTORY, "msg_rates")


@dataclass(frozen=True, slots=True)
class Window:
    """The losses within a time window.

    Args:
        row: The losses, in the order of LOSS_FIELDS.
        start: Start of the window in seconds since 1970. If counting started later, that time.
        step: Resolution of the start in seconds.
    """

    row: tuple[int, ...]
    start: int
    step: int


@dataclass(frozen=True, slots=True)
class Loss:
    """One row of the list: the losses of an object, or the sum of deleted objects.

    Args:
        kind: Kind of the object.
        state: Whether the object exists.
        name: Its name; None for a sum.
        counters: Its counters, which have the history.
        row: The losses, in the order of LOSS_FIELDS.
        window: The losses within the requested window, if any.
        deleted_at: Time of deletion in seconds since 1970; 0 if it exists, or for a sum.
    """

    kind: Kind
    state: State
    vhost: str
    name: str | None
    counters: LossCounters
    row: tuple[int, ...]
    window: Window | None
    deleted_at: int = 0

    @property
    def has_losses(self) -> bool:
        """Whether anything was lost, in the window if there is one."""
        return any(self.row if self.window is None else self.window.row)

    @property
    def lost(self) -> int:
        """Number of messages that were permanently lost, in the window if there is one."""
        return self.row[0] if self.window is None else self.window.row[0]


def losses_within(counters: LossCounters, row: Sequence[int], now: int, age: int) -> Window:
    """Return the losses within a window that ends now.

    Args:
        counters: The counters, which have the history.
        now: Current time in seconds since 1970.
        age: Length of the window in seconds.
    """
    history = None if counters.losses is None else counters.losses.history
    if history is None:
        return Window(tuple(row), max(counters.since, now - age), STEP)
    start = history.start(now, age)
    # Retained dead letters count as losses while they wait, so a number may also decrease.
    within = tuple(max(0, value - before) for value, before in zip(row, start.row, strict=True))
    return Window(within, max(counters.since, start.time), start.step)


def loss_document(loss: Loss, rates: Rates, age: int | None) -> dict[str, Any]:
    """Return one row as JSON.

    Args:
        age: Length of the requested window in seconds, if any.
    """
    document = {
        "kind": loss.kind,
        "state": loss.state,
        "vhost": loss.vhost,
        "name": loss.name,
        "since": loss.counters.since * 1000,
        "deleted_at": loss.deleted_at * 1000 or None,
        **_amounts(**{loss.kind: loss.row}),
        "lost_details": {"rate": 0.0 if loss.counters.losses is None else rates.rate(loss.counters.losses, (0,))},
    }
    if loss.window is not None:
        document["window"] = {
            "age": age,
            "from": loss.window.start * 1000,
            "resolution": loss.window.step,
            **_amounts(**{loss.kind: loss.window.row}),
        }
    return document


def loss_totals(losses: Iterable[Loss], since: int, now: int, age: int | None) -> dict[str, Any]:
    """Return the sum of rows as JSON.

    Args:
        since: Start of counting in seconds since 1970.
        now: Current time in seconds since 1970.
        age: Length of the requested window in seconds, if any.
    """
    rows, windows = dict(_ZEROS), dict(_ZEROS)
    for loss in losses:
        rows[loss.kind] = _sum(rows[loss.kind], loss.row)
        if loss.window is not None:
            windows[loss.kind] = _sum(windows[loss.kind], loss.window.row)
    document = {"since": since * 1000, **_amounts(**rows)}
    if age is not None:
        document["window"] = {"age": age, "from": max(since, now - age) * 1000, **_amounts(**windows)}
    return document


def _amounts(queue: Sequence[int] = _ZEROS["queue"], exchange: Sequence[int] = _ZEROS["exchange"]) -> dict[str, Any]:
    """Return rows of losses as JSON. They have the order of the LOSS_FIELDS of queues and of exchanges."""
    of_queues = dict(zip(QueueCounters.LOSS_FIELDS, queue, strict=True))
    of_exchanges = dict(zip(ExchangeCounters.LOSS_FIELDS, exchange, strict=True))
    # Of an exchange only delayed messages are refused, or deleted with it.
    both = {name: of_queues.get(name, 0) + value for name, value in of_exchanges.items()}
    return {
        "lost": both["lost"],
        "dropped": {name: both.get(f"drop_{name}", of_queues[f"drop_{name}"]) for name in _DROPS},
        "refused": both["refuse"],
        "refused_told": both["refuse_told"],
        "dead_lettered": {reason: of_queues[f"dead_letter_{reason}"] for reason in REASONS},
        "dead_letters_lost": {reason: of_queues[f"dead_letter_lost_{reason}"] for reason in REASONS},
        "unroutable": {"dropped": both["drop_unroutable"], "returned": both["return_unroutable"]},
    }


def _sum(one: Sequence[int], other: Sequence[int]) -> tuple[int, ...]:
    return tuple(a + b for a, b in zip(one, other, strict=True))
