"""Finds the queues of a message, through exchange-to-exchange bindings and alternate exchanges."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from leveret.broker.core.deduplication.filtered_route import FilteredRoute
from leveret.broker.core.delays.delay_header import read_delay
from leveret.broker.core.exchanges.base import Exchange
from leveret.broker.core.exchanges.deduplicating import DeduplicatingExchange
from leveret.broker.core.exchanges.delayed import DelayedExchange, inner_of
from leveret.broker.core.exchanges.recent_history import RecentHistoryExchange, remembers
from leveret.broker.core.queues.target import Target
from leveret.broker.core.stats.counters import ExchangeCounters
from leveret.broker.core.topology import Topology
from leveret.protocol.field_table import FieldTable

#: Destinations that one step visits.
_STEP: Final = 1024

#: Something that has to remember the messages of a route, besides its queues.
Remembering: TypeAlias = RecentHistoryExchange | FilteredRoute


@dataclass(frozen=True, slots=True)
class Route:
    """The queues that a message is routed to, and the exchanges that keep it until it is due.

    Args:
        queues: The queues, what keeps delayed messages and what drops duplicates, each once, in an order that depends
            on the topology and the routing keys only.
        cacheable: Whether headers were irrelevant: until the topology's generation changes, messages with the same
            exchange and routing keys have the same route.
        varies: Whether even an equal message may have another route.
        histories: What has to remember the message.
    """

    queues: tuple[Target, ...]
    cacheable: bool
    varies: bool = False
    histories: tuple[Remembering, ...] = ()


def route(
    topology: Topology,
    exchange: Exchange,
    routing_keys: Sequence[str],
    headers: FieldTable,
    header: bytes = b"",
    counters: ExchangeCounters | None = None,
) -> Route:
    """Find the queues of a message in one call; see route_in_steps()."""
    steps = route_in_steps(topology, exchange, routing_keys, headers, header, counters=counters)
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
    counters: ExchangeCounters | None = None,
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
        counters: Counters of the exchange, if the caller counts the queues of the route there.
    Spec: alternate exchanges and exchange-to-exchange bindings are RabbitMQ extensions.
    """
    keys = tuple(dict.fromkeys(routing_keys))
    seen: dict[Exchange, None] = {exchange: None}
    found = yield from _search(topology, exchange, keys, headers, header, is_due, counters, seen, None)
    return found


def _search(
    topology: Topology,
    exchange: Exchange,
    keys: tuple[str, ...],
    headers: FieldTable,
    header: bytes,
    is_due: bool,
    counters: ExchangeCounters | None,
    seen: dict[Exchange, None],
    opened: Exchange | None,
) -> Generator[None, None, Route]:
    """Find the queues of a message from one exchange on.

    Args:
        topology: As the next ones, see route_in_steps().
        exchange: Where to start.
        keys: The routing keys, without duplicates.
        headers: See above.
        header: See above.
        is_due: See above.
        counters: See above.
        seen: The exchanges visited so far; others are added.
        opened: The exchange itself if what is behind its filter of duplicates is wanted.
    """
    # Dictionaries as ordered sets.
    queues: dict[Target, None] = {}
    waiting = [exchange]
    histories: list[Remembering] = []
    filters: list[Exchange] = []
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
        if isinstance(router, DeduplicatingExchange) and router.duplicates is not None and visited is not opened:
            filters.append(visited)
            continue
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
    for visited in filters:
        found, filtered = yield from _search_behind(
            topology, visited, keys, headers, header, is_due, counters, seen, queues
        )
        cacheable, varies = cacheable and found.cacheable and bool(filtered.targets), varies or found.varies
        if filtered.targets:
            queues[filtered] = None
        else:
            histories.append(filtered)
    return Route(tuple(queues), cacheable and not varies, varies, tuple(histories))


def _search_behind(
    topology: Topology,
    visited: Exchange,
    keys: tuple[str, ...],
    headers: FieldTable,
    header: bytes,
    is_due: bool,
    counters: ExchangeCounters | None,
    seen: dict[Exchange, None],
    queues: dict[Target, None],
) -> Generator[None, None, tuple[Route, FilteredRoute]]:
    """Find what is behind an exchange that drops duplicates.

    Args:
        topology: As the other arguments, see _search().
        visited: The exchange.
        keys: See above.
        headers: See above.
        header: See above.
        is_due: See above.
        counters: See above.
        seen: See above.
        queues: What a message reaches in another way, too, so that it is not behind the filter.
    """
    found = yield from _search(topology, visited, keys, headers, header, is_due, counters, seen, visited)
    router = inner_of(visited)
    assert isinstance(router, DeduplicatingExchange)
    assert router.duplicates is not None
    behind = tuple([target for target in found.queues if target not in queues])
    filtered = FilteredRoute(topology.vhost_name, visited.name, router.duplicates, behind, found.histories, counters)
    return found, filtered
