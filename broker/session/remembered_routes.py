"""What a connection remembers of where its publishes go, and when it forgets that."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from leveret.broker.session.publishing import PublishRoute
    from leveret.protocol.events import Publish

#: Publishes that may have a route: as many as the frame reader tells apart.
_PUBLISHES_MAX: Final = 4096
#: Queues that all routes together may name: a route to 10,000 queues takes 80 kB, and each routing key has its own.
_QUEUES_MAX: Final = 100_000


class RememberedRoutes:
    """The routes that publishes of one connection carry.

    Those of an earlier generation are forgotten, since they keep queues and exchanges that were deleted; and all are
    once they have become too many.
    """

    __slots__ = ("_generation", "_publishes", "_queue_count")

    def __init__(self) -> None:
        self._generation = 0
        self._publishes: list[Publish] = []
        self._queue_count = 0

    def remember(self, publish: Publish, route: PublishRoute) -> None:
        """Have a publish carry its route."""
        if route.generation != self._generation or len(self._publishes) >= _PUBLISHES_MAX:
            self.forget()
            self._generation = route.generation
        publish.memo = route
        self._publishes.append(publish)

    def count(self, queues: int) -> None:
        """Learn that a route names so many queues."""
        self._queue_count += queues
        if self._queue_count > _QUEUES_MAX:
            self.forget()

    def forget(self) -> None:
        """Forget all routes."""
        for publish in self._publishes:
            publish.memo = None
        self._publishes.clear()
        self._queue_count = 0
