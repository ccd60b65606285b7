"""Finds the queues of a message, through exchange-to-exchange bindings and alternate exchanges."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Final

from leveret.broker.core.delays.delay_header import read_delay
from leveret.broker.core.exchanges.base import Exchange
from leveret.broker.core.exchanges.delayed import DelayedExchange
from leveret.broker.core.exchanges.recent_history import RecentHistoryExchange, remembers
from leveret.broker.core.queues.target import Target
from leveret.broker.core.topology import Topology
from leveret.protocol.field_table import FieldTable

#: Destinations that one step visits.
_STEP: Final = 1024


@dataclass(frozen=True, slots=True)
class Route:
    """The queues that a message is routed to, and the exchanges that keep it until it is due.

    Args:
        queues: The queues and what keeps delayed messages, without duplicates, in an order that depends on the topology
            and the routing keys only.
        cacheable: Whether headers were irrelevant: until the topology's generation changes, messages with the same
            exchange and routing keys have the same route.
        varies: Whether even an equal message may have another route.
        histories: Exchanges that have to remember the message.
    """

    queues: tuple[Target, ...]
    cacheable: bool
    varies: bool = False
    histories: tuple[RecentHistoryExchange, ...] = ()


def route(
    topology: Topology, exchange: Exchange, routing_keys: Sequence[str], headers: FieldTable, header: bytes = b""
) -> Route:
    """Find the queues of a message in one call; see route_in_steps()."""
    steps = route_in_steps(topology, exchange, routing_keys, headers, header)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            found: Route = end.value
            return found


def route_in_steps(
    topology: Topology,
    exchange: Exchange,
    routing_keys: Sequence[str],
    headers: FieldTable,
    header: bytes = b"",
    is_due: bool = False,
) -> Generator[None, None, Route]:
    """Find the queues of a message in steps of less than a millisecond; usually one step is enough.

    Every exchange is visited once, so that cycles end. If no binding of an exchange matches any of the keys, the
    message goes to its alternate exchange. It does not if a binding matches but leads to no queue.

    Args:
        topology: Topology of the virtual host.
        exchange: The exchange that the message is published to.
        routing_keys: The routing key of the message, then those of CC and BCC; may contain duplicates.
        headers: Headers of the message; only exchanges with uses_headers need them.
        header: Its content header, which has its properties; empty if it has none. They need it too.
        is_due: Whether the message has been delayed already.
    Spec: alternate exchanges and exchange-to-exchange bindings are RabbitMQ extensions.
    """
    keys = tuple(dict.fromkeys(routing_keys))
    # Dictionaries as ordered sets.
    queues: dict[Target, None] = {}
    seen: dict[Exchange, None] = {exchange: None}
    waiting = [exchange]
    histories: list[RecentHistoryExchange] = []
    cacheable, varies = True, False
    visits = 0
    while waiting:
        visited = waiting.pop()
        router = visited
        if isinstance(visited, DelayedExchange):
            if not is_due and visited.waiting is not None and read_delay(headers):
                queues[visited.waiting] = None
                cacheable = False
                continue
            router = visited.inner
            cacheable = cacheable and is_due
        cacheable = cacheable and not router.uses_headers
        varies = varies or router.varies
        if isinstance(router, RecentHistoryExchange) and remembers(headers):
            histories.append(router)
        matched = False
        for destination in router.find(keys, headers, header):
            visits += 1
            if visits % _STEP == 0:
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
        visits += 1
        if visits % _STEP == 0:
            yield
        # The default exchange as an alternate routes nothing: implicit bindings do not count.
        if not matched and visited.alternate:
            alternate = topology.exchanges.get(visited.alternate)
            if alternate is not None and alternate not in seen:
                seen[alternate] = None
                waiting.append(alternate)
    return Route(tuple(queues), cacheable and not varies, varies, tuple(histories))
