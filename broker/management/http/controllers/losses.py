"""Lists lost messages of all queues and exchanges. RabbitMQ does not have this resource."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from aiohttp import web

from leveret.broker.core.counters.history import LossCounters
from leveret.broker.core.scheduling.slices import in_slices
from leveret.broker.core.vhosts.vhost import DAY, DeletedObjects, VirtualHost
from leveret.broker.management.http.controller import Controller, route
from leveret.broker.management.http.documents.losses import (
    Kind,
    Loss,
    State,
    Window,
    loss_document,
    loss_totals,
    losses_within,
)
from leveret.broker.management.http.object_lists import View, list_response
from leveret.broker.management.http.request_bodies import parse_integer
from leveret.broker.management.http.responses import bad_request
from leveret.broker.management.http.statistics import Rates

_KINDS: Final = ("queue", "exchange")


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
            lambda loss: loss_document(loss, rates, age),
            order=lambda loss: (-loss.lost, loss.vhost, loss.kind, loss.name or "", loss.deleted_at),
            name=lambda loss: loss.name or "",
        )
        totals = {"totals": loss_totals(losses, self._broker.losses_since, now, age)}
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
    window = None if age is None else losses_within(deleted.others, rows[0], now, age)
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
    window: Window | None = None if age is None else losses_within(counters, row, now, age)
    return Loss(kind, state, vhost, name, counters, row, window, deleted_at)
