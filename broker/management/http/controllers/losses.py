"""Lists lost messages of all queues and exchanges: dropped, refused, dead-lettered and unroutable ones, by reason.

RabbitMQ does not have this resource.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from aiohttp import web

from leveret.broker.core.counters.counters import ExchangeCounters, QueueCounters
from leveret.broker.core.counters.history import STEP, LossCounters
from leveret.broker.core.scheduling.slices import in_slices
from leveret.broker.core.vhosts.vhost import DAY, DeletedObjects, VirtualHost
from leveret.broker.management.http.controller import Controller, route
from leveret.broker.management.http.object_lists import View, list_response
from leveret.broker.management.http.request_bodies import parse_integer
from leveret.broker.management.http.responses import bad_request
from leveret.broker.management.http.statistics import Rates
from leveret.policies.dead_letter import REASONS

_KINDS: Final = ("queue", "exchange")
#: Reasons why messages leave a queue without being acknowledged.
_DROPS: Final = (*REASONS, "purged", "deleted")
_ZEROS: Final = {"queue": (0,) * len(QueueCounters.LOSS_FIELDS), "exchange": (0,) * len(ExchangeCounters.LOSS_FIELDS)}

Kind = Literal["queue", "exchange"]
State = Literal["present", "deleted", "sum of deleted"]


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


class Losses(Controller):
    """The resource ``/api/losses``."""

    @route("GET", "losses", "losses/{vhost}")
    async def list(self, request: web.Request) -> web.Response:
        """List all queues and exchanges that have lost messages, those with the most losses first.

        The query may have a window (``age``, in seconds) and a ``kind``. A page also has the totals.
        """
        _, vhosts = self._access.listed_vhosts(request)
        age, kinds = _read_age(request), _read_kinds(request)
        now, rates = self._broker.timers.seconds(), Rates(request, self._broker)
        found = [loss async for loss in in_slices(_losses(vhosts, kinds, now, age)) if loss is not None]
        losses = [loss for loss in found if loss.has_losses]
        view = View[Loss](
            lambda loss: _loss_document(loss, rates, age),
            order=lambda loss: (-loss.lost, loss.vhost, loss.kind, loss.name or "", loss.deleted_at),
            name=lambda loss: loss.name or "",
        )
        totals = {"totals": _loss_totals(losses, self._broker.losses_since, now, age)}
        return await list_response(request, losses, view, paginated=True, extra=totals)


def _read_age(request: web.Request) -> int | None:
    text = request.query.get("age")
    if text is None:
        return None
    try:
        age = parse_integer(text)
    except ValueError:
        age = 0
    if not 1 <= age <= DAY:
        raise bad_request(f"Invalid age: {text}, must be 1 to {DAY} seconds")
    return age


def _read_kinds(request: web.Request) -> Sequence[str]:
    kind = request.query.get("kind")
    if kind is None:
        return _KINDS
    if kind not in _KINDS:
        raise bad_request(f"Invalid kind: {kind}, must be one of {', '.join(_KINDS)}")
    return (kind,)


def _losses(vhosts: Sequence[VirtualHost], kinds: Sequence[str], now: int, age: int | None) -> Iterator[Loss | None]:
    """Yield the losses of each object, one object per step; None for an object without losses."""
    for vhost in vhosts:
        if "queue" in kinds:
            for queue in list(vhost.queues.values()):
                retained = queue.retained_count
                yield _loss("queue", "present", vhost.name, queue.name, queue.counters, now, age, retained=retained)
            yield from _deleted("queue", vhost.name, vhost.deleted_queues, now, age)
        if "exchange" in kinds:
            for exchange in list(vhost.topology.exchanges.values()):
                yield _loss("exchange", "present", vhost.name, exchange.name, exchange.counters, now, age)
            yield from _deleted("exchange", vhost.name, vhost.deleted_exchanges, now, age)


def _deleted(kind: Kind, vhost: str, deleted: DeletedObjects[Any], now: int, age: int | None) -> Iterator[Loss | None]:
    for each in list(deleted.recent):
        yield _loss(kind, "deleted", vhost, each.name, each.counters, now, age, each.deleted_at)
    rows = [counters.loss_row() for counters in (deleted.others, deleted.earlier)]
    # Objects deleted more than a day ago are outside every window.
    window = None if age is None else _window(deleted.others, rows[0], now, age)
    row = tuple(map(sum, zip(*rows, strict=True)))
    yield Loss(kind, "sum of deleted", vhost, None, deleted.others, row, window)


def _loss(
    kind: Kind,
    state: State,
    vhost: str,
    name: str,
    counters: LossCounters,
    now: int,
    age: int | None,
    deleted_at: int = 0,
    retained: int = 0,
) -> Loss | None:
    if not counters.has_losses:
        return None
    row = counters.loss_row(retained)
    window: Window | None = None if age is None else _window(counters, row, now, age)
    return Loss(kind, state, vhost, name, counters, row, window, deleted_at)


def _window(counters: LossCounters, row: Sequence[int], now: int, age: int) -> Window:
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


def _loss_document(loss: Loss, rates: Rates, age: int | None) -> dict[str, Any]:
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


def _loss_totals(losses: Iterable[Loss], since: int, now: int, age: int | None) -> dict[str, Any]:
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
