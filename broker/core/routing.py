"""From an exchange to queues: bindings between exchanges, alternate exchanges, several routing keys."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Final

from leveret.broker.core.bindings import QueueDestination
from leveret.broker.core.exchanges.base import Exchange
from leveret.broker.core.topology import Topology
from leveret.protocol.field_table import FieldTable

#: Routing keys and destinations that a step looks at.
_LOOKS: Final = 1024


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
    """Find the queues of a message, however long that takes; see route_in_steps()."""
    steps = route_in_steps(topology, exchange, routing_keys, headers)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            found: Route = end.value
            return found


def route_in_steps(
    topology: Topology, exchange: Exchange, routing_keys: Sequence[str], headers: FieldTable
) -> Generator[None, None, Route]:
    """Find the queues of a message, in steps of less than a millisecond; as a rule there is none but the last.

    Every exchange is visited once, so that cycles end. An exchange that matched no binding at all, for none of the
    keys, hands the message to its alternate exchange; one whose matches lead nowhere does not.

    Args:
        topology: Of the exchange's virtual host.
        exchange: Published to.
        routing_keys: The message's own, then those of its CC and BCC headers; duplicates do no harm.
        headers: The message's; only exchanges with uses_headers look at them.
    Spec: alternate exchanges and exchange-to-exchange bindings are RabbitMQ extensions.
    """
    keys = tuple(dict.fromkeys(routing_keys))
    # Dictionaries as ordered sets.
    queues: dict[QueueDestination, None] = {}
    seen: dict[Exchange, None] = {exchange: None}
    waiting = [exchange]
    cacheable = True
    looks = 0
    while waiting:
        visited = waiting.pop()
        cacheable = cacheable and not visited.uses_headers
        matched = False
        # Where the keys have no say, one is as good as all.
        for key in keys if visited.uses_keys else keys[:1]:
            for destination in visited.destinations(key, headers):
                looks += 1
                if looks % _LOOKS == 0:
                    yield
                if destination is None:
                    yield
                    continue
                matched = True
                if not isinstance(destination, Exchange):
                    queues[destination] = None
                elif destination not in seen:
                    seen[destination] = None
                    waiting.append(destination)
            looks += 1
            if looks % _LOOKS == 0:
                yield
        # As an alternate the default exchange leads nowhere: no binding is there, the implicit ones do not count.
        if not matched and visited.alternate:
            alternate = topology.exchanges.get(visited.alternate)
            if alternate is not None and alternate not in seen:
                seen[alternate] = None
                waiting.append(alternate)
    return Route(tuple(queues), cacheable)
