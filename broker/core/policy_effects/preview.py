"""Predicts the effect of a policy on the queues of a virtual host without applying it, and of its dead letters."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final

from leveret.broker.core.messages.origin import published_to
from leveret.broker.core.messages.target import names_of
from leveret.broker.core.queues.queue import Queue
from leveret.broker.core.queues.stream_queue import StreamQueue, retention_limits
from leveret.broker.core.queues.traits import UNBOUNDED, Limits
from leveret.broker.core.vhosts.policies import effective_definition
from leveret.broker.core.vhosts.routing import route_in_steps
from leveret.broker.core.vhosts.vhost import VirtualHost
from leveret.policies.policy import Policy, find_policy
from leveret.policies.settings import DEFAULT_SETTINGS, QueueSettings, effective_settings
from leveret.protocol.field_table import plain_values
from leveret.protocol.properties import Properties


@dataclass(frozen=True, slots=True)
class Drop:
    """Messages that a queue would drop at once.

    Args:
        messages: Number of messages.
        body_bytes: Sum of their body lengths in bytes; a lower bound if the number is an estimate.
        is_estimate: Whether the number is estimated from the average size, because a limit in bytes applies.
    """

    messages: int
    body_bytes: int
    is_estimate: bool


@dataclass(frozen=True, slots=True)
class Preview:
    """Effect of a policy on one queue that it matches, or on which its current version is in force.

    Args:
        rival: Name of the other policy of the same kind that it would replace, or that would be in force instead; None
            if there is none.
        is_in_force: Whether the new policy would be in force.
        changes: Settings that would change: values before and after, by key.
        drop: Messages that would be dropped at once.
        matches: Whether the new version matches; otherwise the rival or no policy would be in force.
        dead_letters_to: Existing exchange that would get the dropped messages; None if there is none.
        missing_exchange: The dead-letter exchange of the settings, if it does not exist; else None.
        after: The settings that the queue would have.
    """

    queue: Queue
    rival: str | None
    is_in_force: bool
    changes: dict[str, tuple[Any, Any]]
    drop: Drop
    matches: bool = True
    dead_letters_to: str | None = None
    missing_exchange: str | None = None
    after: QueueSettings = DEFAULT_SETTINGS


def preview_policy(vhost: VirtualHost, policy: Policy, operator: bool) -> Iterator[Preview]:
    """Preview every queue that a policy would match, or on which its current version is in force.

    Args:
        vhost: The virtual host of the policy.
        policy: The new or changed policy.
        operator: Whether it is an operator policy.
    """
    table = {**vhost.policies.table(operator), policy.name: policy}
    for queue in list(vhost.queues.values()):
        current = queue.operator_policy if operator else queue.policy
        matches = policy.matches(queue.name, queue.queue_type)
        if matches or (current is not None and current.name == policy.name):
            first = find_policy(table.values(), queue.name, queue.queue_type)
            yield _preview(vhost, queue, policy, first, operator, matches)


def _preview(
    vhost: VirtualHost, queue: Queue, policy: Policy, first: Policy | None, operator: bool, matches: bool
) -> Preview:
    current = queue.operator_policy if operator else queue.policy
    rival = current if first is policy else first
    rival_name = None if rival is None or rival.name == policy.name else rival.name
    pair = (queue.policy, first) if operator else (first, queue.operator_policy)
    new = effective_settings(queue.queue_type, plain_values(queue.arguments), effective_definition(*pair))
    # Dropped messages are dead-lettered by the new settings.
    exchange, missing = new.dead_letter_exchange, None
    if exchange not in vhost.topology.exchanges:
        exchange, missing = None, exchange
    changes = _changes(queue.settings, new)
    return Preview(queue, rival_name, first is policy, changes, _drop(queue, new), matches, exchange, missing, new)


def _changes(before: QueueSettings, after: QueueSettings) -> dict[str, tuple[Any, Any]]:
    new = asdict(after)
    return {
        field.replace("_", "-"): (value, new[field]) for field, value in asdict(before).items() if value != new[field]
    }


def _drop(queue: Queue, new: QueueSettings) -> Drop:
    """Predict drops. As in RabbitMQ, new limits apply with the current overflow behaviour, or else with the new one."""
    if isinstance(queue, StreamQueue):
        removed = queue.stream.excess(*retention_limits(new, queue.host.timers.now()))
        return Drop(removed.messages, removed.body_bytes, False)
    settings = replace(new, overflow=queue.settings.overflow)
    both = [queue.traits.limits(each, queue.contents.unacked, queue.contents.waiting) for each in (settings, new)]
    limits = next((made for made in both if made is not None and not made.refuses), None)
    if limits is None or new == queue.settings:
        return Drop(0, 0, False)
    ready = queue.ready_count()
    size = queue.store.ready_bytes / ready if ready else 0.0
    by_count, excess = max(0, limits.excess_messages(queue.store)), max(0, limits.excess_bytes(queue.store))
    by_bytes = min(ready, -int(-excess // size)) if size else 0
    if by_bytes > by_count:
        return Drop(by_bytes, excess, True)
    return Drop(by_count, round(by_count * size), False)


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
