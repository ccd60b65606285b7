"""Totals for an answer."""

from __future__ import annotations

from leveret.broker.core.broker import Broker
from leveret.broker.core.slices import in_slices
from leveret.broker.core.stats.census import Census


async def count_all(broker: Broker) -> Census:
    """Add up what all objects have counted, without holding anybody up."""
    census = Census(broker)
    async for _ in in_slices(census.steps()):
        pass
    return census
