"""Totals of all counters, for one response."""

from __future__ import annotations

from leveret.broker.core.broker import Broker
from leveret.broker.core.scheduling.slices import in_slices
from leveret.broker.core.stats.census import Census


async def count_all(broker: Broker) -> Census:
    """Add up the counters of all objects in slices; other connections are served in between."""
    census = Census(broker)
    async for _ in in_slices(census.steps()):
        pass
    return census
