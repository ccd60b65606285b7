"""Finding the routes of one connection's publishes, also those that take long to find."""

from __future__ import annotations

from collections.abc import Generator, Sequence

from leveret.broker.core.exchanges.base import Exchange
from leveret.broker.core.routing import Route, route_in_steps
from leveret.broker.core.topology import Topology
from leveret.broker.core.turn import Turn
from leveret.broker.session.unfinished import Unfinished
from leveret.protocol.field_table import FieldTable


class RouteSearch:
    """Finds one route after the other.

    Args:
        turn: Has the slices of time.

    Attributes:
        is_outdated: The topology has changed since the search for the last route began.
    """

    __slots__ = ("_asked", "_found", "_generation", "_steps", "_turn", "is_outdated")

    def __init__(self, turn: Turn) -> None:
        self._turn = turn
        self._asked: tuple[Exchange, Sequence[str], FieldTable] | None = None
        self._steps: Generator[None, None, Route] | None = None
        self._found: Route | None = None
        self._generation = 0
        self.is_outdated = False

    def find(self, topology: Topology, exchange: Exchange, keys: Sequence[str], headers: FieldTable) -> Route:
        """Find a route; for the arguments see route_in_steps().

        Raises:
            Unfinished: It takes longer than a slice of time. Once that is over, the same question is answered at once.
        """
        asked = exchange, keys, headers
        self.is_outdated = False
        if self._asked is not None:
            found, is_same = self._found, asked == self._asked
            self.forget()
            if found is not None and is_same:
                self.is_outdated = topology.generation != self._generation
                return found
        steps = route_in_steps(topology, exchange, keys, headers)
        try:
            next(steps)
        except StopIteration as end:
            route: Route = end.value
            return route
        self._asked, self._steps, self._generation = asked, steps, topology.generation
        if not self._go_on():
            raise Unfinished(self._go_on)
        return self.find(topology, exchange, keys, headers)

    def forget(self) -> None:
        """Give up a search that has been begun."""
        self._asked = self._steps = self._found = None

    def _go_on(self) -> bool:
        """Search as long as time is left; return whether that is done."""
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
