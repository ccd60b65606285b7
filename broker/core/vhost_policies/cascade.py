"""Predicts what the dead letters of a policy's preview do in the queues that they reach: what leaves these in turn."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from typing import Final

from leveret.broker.core.deduplication.filtered_route import names_of
from leveret.broker.core.messages.published import published_to
from leveret.broker.core.messages.routing import route_in_steps
from leveret.broker.core.queues.limits import UNBOUNDED, Limits
from leveret.broker.core.queues.queue import Queue
from leveret.broker.core.vhost import VirtualHost
from leveret.broker.core.vhost_policies.preview import Preview
from leveret.policies.settings import QueueSettings
from leveret.protocol.properties import Properties

#: Runs of dead letters that are followed; queues that form very many paths are not followed to their ends.
_RUNS_MAX: Final = 10_000


@dataclass(slots=True)
class Reached:
    """A queue that dead letters reach.

    Args:
        room: How many more messages it has room for; UNBOUNDED without a limit.

    Attributes:
        arriving: Number of dead letters that are sent to it.
        leaving: Number of messages that it drops or refuses for them.
        lost: Number of these that reach no other queue.
    """

    room: int
    arriving: int = 0
    leaving: int = 0
    lost: int = 0


@dataclass(slots=True)
class Cascade:
    """What becomes of dead letters.

    Attributes:
        reached: The queues that they reach, by name.
        lost: Number of messages that end in no queue: those without a route, and those that others have no room for.
        is_estimate: Whether routing keys or sizes were not known of each message, or not all runs were followed.
    """

    reached: dict[str, Reached] = field(default_factory=dict)
    lost: int = 0
    is_estimate: bool = False


@dataclass(frozen=True, slots=True)
class _Run:
    """Messages that leave a queue, with the queues that they have left before."""

    queue: Queue
    count: int
    size: int
    path: tuple[str, ...]


def follow_letters(vhost: VirtualHost, previews: Sequence[Preview]) -> Generator[None, None, Cascade]:
    """Follow the dead letters of all previews; a step is the route of one run.

    Args:
        vhost: The virtual host of the policy.
        previews: The previews of all queues that it concerns.
    """
    work = _Work(vhost, previews)
    runs = [
        _Run(each.queue, each.drop.messages, each.drop.body_bytes // each.drop.messages, ())
        for each in previews
        if each.drop.messages and each.dead_letters_to is not None
    ]
    followed = 0
    while runs and followed < _RUNS_MAX:
        followed += 1
        runs += yield from work.follow(runs.pop())
        yield
    work.found.is_estimate |= bool(runs)
    return work.found


class _Work:
    def __init__(self, vhost: VirtualHost, previews: Sequence[Preview]) -> None:
        self.found = Cascade()
        self._vhost = vhost
        self._settings = {each.queue: each.after for each in previews}
        self._dropping = {each.queue for each in previews if each.drop.messages}

    def follow(self, run: _Run) -> Generator[None, None, list[_Run]]:
        """Send one run; return the runs that leave the queues that it reaches."""
        path = (*run.path, run.queue.name)
        names = yield from self._targets(run)
        # As in RabbitMQ, a cycle ends where it would begin again.
        targets = [self._vhost.queues[name] for name in names if name not in path and name in self._vhost.queues]
        if not targets:
            self.found.lost += run.count
        runs: list[_Run] = []
        for target in targets:
            yield
            settings = self._settings.get(target, target.settings)
            reached = self.found.reached.get(target.name)
            if reached is None:
                reached = self.found.reached[target.name] = Reached(self._room(target, settings, run.size))
            before = max(0, reached.arriving - reached.room)
            reached.arriving += run.count
            more = max(0, reached.arriving - reached.room) - before
            if not more:
                continue
            reached.leaving += more
            if (
                settings.overflow != "reject-publish"
                and settings.dead_letter_exchange in self._vhost.topology.exchanges
            ):
                runs.append(_Run(target, more, run.size, path))
            else:
                reached.lost += more
                self.found.lost += more
        return runs

    def _targets(self, run: _Run) -> Generator[None, None, list[str]]:
        """Return the names of the queues that the dead letters of a queue are routed to."""
        settings = self._settings.get(run.queue, run.queue.settings)
        exchange = self._vhost.topology.exchanges.get(settings.dead_letter_exchange or "")
        if exchange is None:
            return []
        key, header = settings.dead_letter_routing_key, b""
        head = run.queue.store.peek() if run.queue.store.ready_count else None
        if (key is None and exchange.type_name != "fanout") or exchange.uses_headers:
            # The oldest message stands for all.
            self.found.is_estimate = True
            header = b"" if head is None else head.envelope.header
        if key is None:
            key = "" if head is None else published_to(head.envelope)[1]
        headers = Properties(header).headers() if header else ()
        found = yield from route_in_steps(self._vhost.topology, exchange, [key], headers, header)
        return names_of(found.queues)

    def _room(self, queue: Queue, settings: QueueSettings, size: int) -> int:
        limits = self._limits(queue, settings)
        if limits is None:
            return UNBOUNDED
        if queue in self._dropping:
            return 0
        return max(0, limits.room(queue.store, size))

    def _limits(self, queue: Queue, settings: QueueSettings) -> Limits | None:
        """Return the limits that dead letters meet."""
        limits = None
        if not queue.traits.keeps_messages:
            limits = queue.traits.limits(settings, queue.contents.unacked, queue.contents.waiting)
        return None if limits is None or (limits.refuses and not queue.traits.refuses_dead_letters) else limits
