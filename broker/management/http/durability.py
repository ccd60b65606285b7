"""Waiting until something is on disk."""

from __future__ import annotations

import asyncio

from broker.core.broker import Broker


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
