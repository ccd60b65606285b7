"""From an exchange to queues: bindings between exchanges, alternate exchanges, several routing keys."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from broker.core.bindings import QueueDestination
from broker.core.exchanges.base import Exchange
from broker.core.topology import Topology
from protocol.field_table import FieldTable


@dataclass(frozen=True, slots=True)
class Route:
    """Where a message goes.

    Args:
        queues: Each one once, in an order that depends on the topology and the routing keys only.
        cacheable: The headers had no say: as long as the topology's generation stays, a message with the same
            exchange and routing keys takes the same route.
    """

    queues: tuple[QueueDestination, ...]
    cacheable: bool


def route(topology: Topology, exchange: Exchange, routing_keys: Sequence[str], headers: FieldTable) -> Route:
    """Find the queues of a message.

    Every exchange is visited once, so that cycles end. An exchange that matched no binding at all, for none of the
    keys, hands the message to its alternate exchange; one whose matches lead nowhere does not.

    Args:
        topology: Of the exchange's virtual host.
        exchange: Published to.
        routing_keys: The message's own, then those of its CC and BCC headers; duplicates do no harm.
        headers: The message's; only exchanges with uses_headers look at them.
    Spec: alternate exchanges and exchange-to-exchange bindings are RabbitMQ extensions.
    """
    # Dictionaries as ordered sets.
    queues: dict[QueueDestination, None] = {}
    seen: dict[Exchange, None] = {exchange: None}
    waiting = [exchange]
    cacheable = True
    while waiting:
        visited = waiting.pop()
        cacheable = cacheable and not visited.uses_headers
        matched = False
        for key in dict.fromkeys(routing_keys):
            for destination in visited.destinations(key, headers):
                matched = True
                if not isinstance(destination, Exchange):
                    queues[destination] = None
                elif destination not in seen:
                    seen[destination] = None
                    waiting.append(destination)
        # As an alternate the default exchange leads nowhere: no binding is there, the implicit ones do not count.
        if not matched and visited.alternate:
            alternate = topology.exchanges.get(visited.alternate)
            if alternate is not None and alternate not in seen:
                seen[alternate] = None
                waiting.append(alternate)
    return Route(tuple(queues), cacheable)
