"""Fixtures: a broker in memory and a client."""

from __future__ import annotations

import pytest
from pamqp import commands

from tests.support.memory_broker import MemoryBroker, MemoryClient


@pytest.fixture
def broker() -> MemoryBroker:
    """A broker with a manual clock."""
    return MemoryBroker()


@pytest.fixture
def client(broker: MemoryBroker) -> MemoryClient:
    """An open connection with channel 1 and the queue q."""
    opened = broker.open()
    opened.call(1, commands.Queue.Declare, queue="q")
    return opened
