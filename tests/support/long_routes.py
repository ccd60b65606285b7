"""Routes that take several time slices to find."""

from __future__ import annotations

import itertools
from typing import Final

from pamqp import commands

from tests.support.memory_broker import MemoryClient, method

#: A routing key that takes long to match with the patterns of bind_wild().
LONG_KEY: Final = ".".join("a" * 20 + "b" * 40)


def bind_wild(client: MemoryClient, depth: int) -> None:
    """Bind the queue q to amq.topic with every pattern of this many words."""
    for pattern in itertools.product("*#a", repeat=depth):
        client.send(method(1, commands.Queue.Bind, queue="q", exchange="amq.topic", routing_key=".".join(pattern)))
    client.methods()
