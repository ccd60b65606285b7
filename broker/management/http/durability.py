"""Waits until changes are on disk."""

from __future__ import annotations

import asyncio

from aiohttp import web

from leveret.broker.core.broker import Broker
from leveret.broker.core.definitions.gate import ALARM_SECONDS, DefinitionsGate
from leveret.broker.management.http.errors import failure


async def wait_until_stored(broker: Broker) -> None:
    """Wait until all messages published so far are on disk, as far as they are persistent.

    Args:
        broker: The broker with the queues.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[None] = loop.create_future()

    def finish() -> None:
        if not done.done():
            done.set_result(None)

    # The messages of this turn are written at its end and can be synced only then.
    loop.call_soon(broker.storage.when_synced, finish)
    await done
    await wait_until_committed(broker.gate)


async def wait_until_committed(gate: DefinitionsGate) -> None:
    """Wait until all changes of definitions so far are on disk.

    Args:
        gate: Calls back when they are written.
    Raises:
        HTTPServiceUnavailable: They could not be written for 30 s. They are written as soon as possible.
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
