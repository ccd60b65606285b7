"""Queues without a virtual host, and bindings to them, for tests of routing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from leveret.broker.core.exchanges.base import Binding, Destination, Exchange
from leveret.broker.core.queues.classic_queue import ClassicQueue
from leveret.broker.core.queues.queue import QueueDeclaration
from leveret.broker.core.vhosts.topology import Topology
from leveret.protocol.field_table import FieldTable, FieldValue
from tests.support.manual_loop import ManualLoop
from tests.support.queues import new_vhost
from tests.support.simulated_stores import memory_backing

#: Of their clock and timers.
_HOST = new_vhost(ManualLoop())


def named_queue(name: str) -> ClassicQueue:
    """Return a transient queue that no virtual host has."""
    return ClassicQueue(_HOST, QueueDeclaration(name, False, False, None, ()), memory_backing(name))


def table(*entries: tuple[str, str, object]) -> FieldTable:
    """Return a field table of (key, type letter, value) entries."""
    return tuple((key, FieldValue(kind, value)) for key, kind, value in entries)


def names(destinations: Iterable[Destination | None]) -> list[str]:
    """Return the distinct names of destinations, sorted."""
    return sorted({destination.name for destination in destinations if destination is not None})


def bind_named(exchange: Exchange, name: str, key: str = "", arguments: FieldTable = ()) -> Binding:
    """Bind a new queue with a name to an exchange."""
    binding = Binding(exchange, named_queue(name), key, arguments)
    assert exchange.bind(binding)
    return binding


def add_exchange(
    topology: Topology,
    name: str,
    type_name: str = "fanout",
    *,
    auto_delete: bool = False,
    arguments: FieldTable = (),
) -> Exchange:
    """Declare a transient exchange."""
    return topology.declare_exchange(name, type_name, False, auto_delete, False, arguments)


def add_queues(topology: Topology, *queue_names: str) -> Sequence[ClassicQueue]:
    """Add queues with these names."""
    queues = [named_queue(name) for name in queue_names]
    for queue in queues:
        topology.add_queue(queue)
    return queues
