"""Saves changes, and waits until they are on disk."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from leveret.broker.core.broker import Broker
from leveret.broker.core.definitions_gate import DefinitionsGate
from leveret.broker.management.http.origins import SAFE_METHODS
from leveret.broker.management.http.responses import failure


def save_after_changes(save: Callable[[], None]) -> Middleware:
    """Return a middleware that saves the changes of a request."""

    @web.middleware
    async def save_changes(request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            return await handler(request)
        finally:
            if request.method not in SAFE_METHODS:
                save()

    return save_changes


def wait_for_changes(gate: DefinitionsGate) -> Middleware:
    """Return a middleware that responds when the changes of a request are on disk."""

    @web.middleware
    async def await_changes(request: web.Request, handler: Handler) -> web.StreamResponse:
        changes = gate.changes
        try:
            return await handler(request)
        finally:
            if gate.changes != changes and request.method not in SAFE_METHODS:
                await wait_until_committed(gate)

    return await_changes


async def wait_until_stored(broker: Broker) -> None:
    """Wait until all messages published so far are on disk, as far as they are persistent."""
    done, finish = _completion()
    # The messages of this turn are written at its end and can be synced only then.
    asyncio.get_running_loop().call_soon(broker.stores.when_synced, finish)
    await done
    await wait_until_committed(broker.gate)


async def wait_until_settled(broker: Broker) -> None:
    """Wait until it is on disk which messages have left their queues so far."""
    done, finish = _completion()
    broker.stores.when_settled(finish)
    await done


async def wait_until_committed(gate: DefinitionsGate) -> None:
    """Wait until all changes of definitions so far are on disk.

    Raises:
        HTTPServiceUnavailable: They could not be written for 30 s. They are written as soon as possible.
    """
    done, finish = _completion()
    gate.when_written(finish)
    try:
        await asyncio.wait_for(done, 0 if gate.is_failing else gate.alarm_seconds)
    except TimeoutError:
        raise failure(
            web.HTTPServiceUnavailable, "service_unavailable", "definitions cannot be written to the disk now"
        ) from None


def _completion() -> tuple[asyncio.Future[None], Callable[[], None]]:
    """Return a future and the callback that completes it."""
    done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def finish() -> None:
        if not done.done():
            done.set_result(None)

    return done, finish
