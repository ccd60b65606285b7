"""Routes of publishes on one connection: their search, in time slices if it takes long, and their cache."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Final

from leveret.broker.core.exchanges.base import Exchange
from leveret.broker.core.messages import Remembering, Target
from leveret.broker.core.scheduling.turn import Turn
from leveret.broker.core.vhosts.routing import Route, route_in_steps
from leveret.broker.core.vhosts.topology import Topology
from leveret.broker.unfinished import Unfinished
from leveret.protocol.field_table import FieldTable
from leveret.protocol.frame_events import Publish
from leveret.storage.message import NO_ENVELOPE

#: Maximum number of cached routes: the number of publishes that the frame reader caches.
_PUBLISHES_MAX: Final = 4096
#: Maximum number of queues in all routes: a route to 10,000 queues takes 80 kB, and each routing key has one.
_QUEUES_MAX: Final = 100_000


class PublishRoute:
    """Cached route of publishes with the same exchange, routing key and flags on one connection.

    Args:
        generation: Generation of topology and permissions for which the route is valid.
        keys_replies: Direct reply-to consumers named by the routing key alone.

    Attributes:
        header: The content header for which envelope, queues, awaits_sync and replies are valid; None if they are not
            reusable.
        envelope: Envelope of messages with this header.
        queues: Target queues of messages with this header.
        awaits_sync: Whether confirms of these messages wait for the sync to disk.
        replies: Target direct reply-to consumers, by name.
        varies: Whether the queues are those of one message only: the next one may go to others.
        histories: What has to remember messages with this header.
        keys_queues: Target queues by routing key alone, for messages without CC and BCC; None if they depend on
            headers.
        sync_checked_queues: The queues for which `needs_sync` was computed.
        needs_sync: Whether confirms of transient messages, and those of persistent ones, wait for the sync.
    """

    __slots__ = (
        "awaits_sync",
        "envelope",
        "exchange",
        "generation",
        "header",
        "histories",
        "keys_queues",
        "keys_replies",
        "queues",
        "replies",
        "needs_sync",
        "sync_checked_queues",
        "varies",
    )

    def __init__(self, generation: int, exchange: Exchange, keys_replies: tuple[str, ...]) -> None:
        self.generation = generation
        self.exchange = exchange
        self.header: bytes | None = None
        self.envelope = NO_ENVELOPE
        self.queues: tuple[Target, ...] = ()
        self.awaits_sync = False
        self.replies: tuple[str, ...] = ()
        self.varies = False
        self.histories: tuple[Remembering, ...] = ()
        self.keys_queues: tuple[Target, ...] | None = None
        self.keys_replies = keys_replies
        self.sync_checked_queues: tuple[Target, ...] = ()
        self.needs_sync = False, False


def cached_route(publish: Publish) -> PublishRoute | None:
    """Return the cached route of a publish; None if there is none."""
    memo = publish.memo
    return memo if isinstance(memo, PublishRoute) else None


class RouteCache:
    """Cached routes of publishes on one connection.

    Routes of an earlier generation are removed, since they refer to deleted queues and exchanges. The cache is cleared
    when it exceeds its limits.
    """

    __slots__ = ("_generation", "_publishes", "_queue_count")

    def __init__(self) -> None:
        self._generation = 0
        self._publishes: list[Publish] = []
        self._queue_count = 0

    def add(self, publish: Publish, route: PublishRoute) -> None:
        """Cache the route of a publish."""
        if route.generation != self._generation or len(self._publishes) >= _PUBLISHES_MAX:
            self.clear()
            self._generation = route.generation
        publish.memo = route
        self._publishes.append(publish)

    def add_queues(self, count: int) -> None:
        """Add the number of queues of a new route; clear the cache if it is too large."""
        self._queue_count += count
        if self._queue_count > _QUEUES_MAX:
            self.clear()

    def clear(self) -> None:
        """Remove all routes."""
        for publish in self._publishes:
            publish.memo = None
        self._publishes.clear()
        self._queue_count = 0


class RouteSearch:
    """Finds routes for one connection, one at a time.

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
