"""Waiting until something is on disk."""

from __future__ import annotations

import asyncio

from aiohttp import web

from leveret.broker.core.broker import Broker
from leveret.broker.core.definitions_gate import ALARM_SECONDS, DefinitionsGate
from leveret.broker.management.http.errors import failure


async def durable(broker: Broker) -> None:
    """Wait until all that queues have taken so far is on disk, as far as it has to be.

    Args:
        broker: Has the queues.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[None] = loop.create_future()

    def finish() -> None:
        if not done.done():
            done.set_result(None)

    # What this turn has brought is written at its end, and only then can it be synced.
    loop.call_soon(broker.storage.when_synced, finish)
    await done
    await written(broker.gate)


async def written(gate: DefinitionsGate) -> None:
    """Wait until all definitions that have been changed so far are on disk.

    Args:
        gate: Knows when.
    Raises:
        HTTPServiceUnavailable: They could not be written for 30 s; they are as soon as that is possible.
    """
    done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def finish() -> None:
        if not done.done():
            done.set_result(None)

    gate.when_written(finish)
    try:
        await asyncio.wait_for(done, 0 if gate.is_failing else ALARM_SECONDS)
    except TimeoutError:
        raise failure(
            web.HTTPServiceUnavailable, "service_unavailable", "definitions cannot be written to the disk now"
        ) from None
