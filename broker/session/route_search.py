"""Finds the routes of publishes, in time slices if that takes long."""

from __future__ import annotations

from collections.abc import Generator, Sequence

from leveret.broker.core.exchanges.base import Exchange
from leveret.broker.core.messages.routing import Route, route_in_steps
from leveret.broker.core.scheduling.time_slice import Unfinished
from leveret.broker.core.scheduling.turn import Turn
from leveret.broker.core.topology import Topology
from leveret.protocol.field_table import FieldTable


class RouteSearch:
    """Finds routes for one connection, one at a time.

    Args:
        turn: Provides time slices.

    Attributes:
        is_outdated: True if the topology has changed since the search for the last route began.
    """

    __slots__ = ("_query", "_found", "_generation", "_steps", "_turn", "is_outdated")

    def __init__(self, turn: Turn) -> None:
        self._turn = turn
        self._query: tuple[Exchange, Sequence[str], FieldTable, bytes] | None = None
        self._steps: Generator[None, None, Route] | None = None
        self._found: Route | None = None
        self._generation = 0
        self.is_outdated = False

    def find(
        self, topology: Topology, exchange: Exchange, keys: Sequence[str], headers: FieldTable, header: bytes
    ) -> Route:
        """Find a route; for the arguments see route_in_steps().

        Raises:
            Unfinished: The search takes longer than a time slice. After it, the same call returns the route.
        """
        query = exchange, keys, headers, header
        self.is_outdated = False
        if self._query is not None:
            found, is_same = self._found, query == self._query
            self.cancel()
            if found is not None and is_same:
                self.is_outdated = topology.generation != self._generation
                return found
        steps = route_in_steps(topology, exchange, keys, headers, header, counters=exchange.counters)
        try:
            next(steps)
        except StopIteration as end:
            route: Route = end.value
            return route
        self._query, self._steps, self._generation = query, steps, topology.generation
        if not self._search_slice():
            raise Unfinished(self._search_slice)
        return self.find(topology, exchange, keys, headers, header)

    def cancel(self) -> None:
        """Cancel the current search."""
        self._query = self._steps = self._found = None

    def _search_slice(self) -> bool:
        """Continue the search while time is left; return whether it is finished."""
        steps = self._steps
        if steps is None:
            return True
        time_slice = self._turn.slice()
        try:
            next(steps)
            while not time_slice.is_over():
                next(steps)
        except StopIteration as end:
            self._found = end.value
            self._steps = None
            return True
        return False
