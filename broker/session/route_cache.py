"""Cache of the routes of publishes on one connection."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from leveret.broker.session.publishing import PublishRoute
    from leveret.protocol.events import Publish

#: Maximum number of cached routes: the number of publishes that the frame reader caches.
_PUBLISHES_MAX: Final = 4096
#: Maximum number of queues in all routes: a route to 10,000 queues takes 80 kB, and each routing key has one.
_QUEUES_MAX: Final = 100_000


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
