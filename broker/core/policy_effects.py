"""What policies do: where each setting of a queue comes from, what a policy matches, and what a change would do."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from leveret.broker.core.exchanges.base import Exchange
from leveret.broker.core.json_values import table_to_json
from leveret.broker.core.messages import names_of, published_to
from leveret.broker.core.queues.queue import Drop, Queue
from leveret.broker.core.queues.traits import UNBOUNDED, Limits
from leveret.broker.core.vhosts.routing import route_in_steps
from leveret.broker.core.vhosts.vhost import VirtualHost, VirtualHostPolicies, effective_definition
from leveret.policies.explanation import (
    Source,
    explain_setting,
    explain_settings,
    ineffective_policies,
    why_not_in_force,
)
from leveret.policies.policy import APPLY_TO, Policy, find_policy
from leveret.policies.policy_keys import KEYS
from leveret.policies.queue_settings import DEFAULT_SETTINGS, QueueSettings, effective_settings
from leveret.protocol.field_table import find, plain_values
from leveret.protocol.properties import Properties

_AT_LIMIT: Final = {
    "drop-head": "the oldest messages are dropped",
    "reject-publish": "new messages are refused",
    "reject-publish-dlx": "new messages are refused and dead-lettered",
}
_STREAM_AT_LIMIT: Final = "the oldest segments are removed"


def explain_queue(queue: Queue, policies: VirtualHostPolicies) -> dict[str, Any]:
    """Return the effective settings of a queue with their sources, and its fill level.

    Returns:
        A JSON object: applied and skipped policies, every setting with its source, the dead-letter exchange if it does
        not exist, and the fill level.
    """
    policy, operator_policy = queue.policy, queue.operator_policy
    # Applies eviction, expiry and deliveries that are due.
    queue.ready_count()
    settings = explain_settings(
        queue.queue_type,
        plain_values(queue.arguments),
        {} if policy is None else policy.definition,
        {} if operator_policy is None else operator_policy.definition,
    )
    return {
        "name": queue.name,
        "vhost": queue.vhost_name,
        "type": queue.queue_type,
        "arguments": table_to_json(queue.arguments),
        "policy": _describe(policy),
        "operator_policy": _describe(operator_policy),
        "passed_over": [
            {"kind": kind, "name": other.name, "reason": reason}
            for kind, table in (("policy", policies.policies), ("operator policy", policies.operator_policies))
            for other, reason in ineffective_policies(table.values(), queue.name, queue.queue_type)
        ],
        "settings": [asdict(setting) for setting in settings],
        "in_force": {setting.key: setting.in_force for setting in settings if setting.in_force is not None},
        "missing_exchange": policies.missing_letter_exchange(queue),
        "fill": describe_fill(queue),
    }


def describe_fill(queue: Queue) -> dict[str, Any]:
    """Return the fill level of a queue with its limits and their sources; None where there is no limit.

    Ready messages count, those that wait for their retry, and unacked ones if ``length_counts`` is ``all``; of their
    bytes only the bodies. Of a stream the files count.
    """
    settings = queue.settings
    counted, counted_bytes = _counted(queue)
    by_count, by_bytes = _percent(counted, settings.max_length), _percent(counted_bytes, settings.max_length_bytes)
    full = _larger(by_count, by_bytes)
    at_limit = _STREAM_AT_LIMIT if queue.traits.keeps_messages else _AT_LIMIT[queue.traits.overflow(settings)]
    return {
        "length_counts": settings.length_counts,
        "messages_counted": counted,
        "message_bytes_counted": counted_bytes,
        "messages_ready": queue.store.ready_count,
        "max_length": settings.max_length,
        "max_length_source": _source(queue, "max-length", settings.max_length),
        "messages_percent": by_count,
        "message_bytes_ready": queue.store.ready_bytes,
        "max_length_bytes": settings.max_length_bytes,
        "max_length_bytes_source": _source(queue, "max-length-bytes", settings.max_length_bytes),
        "bytes_percent": by_bytes,
        "percent": full,
        "overflow": settings.overflow,
        "at_limit": None if full is None else at_limit,
    }


def fill_percent(queue: Queue) -> float | None:
    """Return the fill level in percent of the limit that is closest to being reached.

    Returns:
        None without limits; also for a stream, as removing the oldest messages is what its limits are for.
    """
    settings = queue.settings
    if queue.traits.keeps_messages:
        return None
    counted, counted_bytes = _counted(queue)
    return _larger(_percent(counted, settings.max_length), _percent(counted_bytes, settings.max_length_bytes))


def _counted(queue: Queue) -> tuple[int, int]:
    """Return the number of messages that count for the limits, and the bytes of their bodies."""
    store = queue.store
    if queue.traits.keeps_messages:
        return store.ready_count, queue.figures().disk_bytes
    count, body_bytes = store.ready_count + queue.delayed_count, store.ready_bytes + queue.delayed_bytes
    if queue.settings.length_counts != "all":
        return count, body_bytes
    return count + queue.unacked_count, body_bytes + queue.unacked_bytes


def _source(queue: Queue, name: str, in_force: int | None) -> Source | None:
    """Return the source of a limit."""
    if in_force is None:
        return None
    key = KEYS[name]
    argument = find(queue.arguments, key.argument)
    values = [
        None if policy is None else policy.definition.get(name) for policy in (queue.policy, queue.operator_policy)
    ]
    return explain_setting(key, queue.queue_type, None if argument is None else argument.value, *values).source


def _percent(used: int, limit: int | None) -> float | None:
    if limit is None:
        return None
    return round(100 * used / limit, 1) if limit else 100.0


def _larger(a: float | None, b: float | None) -> float | None:
    """Return the larger of two values, of which either may be missing."""
    if a is None or b is None:
        return b if a is None else a
    return max(a, b)


def _describe(policy: Policy | None) -> dict[str, Any] | None:
    return None if policy is None else {"name": policy.name, **policy.value}


#: Other policies that describe_gaps() names.
_NAMES_MAX: Final = 3
_QUEUES: Final = frozenset(("classic", "quorum"))


@dataclass(frozen=True, slots=True)
class PolicyMatch:
    """A queue or exchange whose name a policy's pattern matches.

    Args:
        subject: The queue or exchange.
        in_force: Whether the policy is in force on it.
        rival: Name of the policy of the same kind that is in force instead; None if there is none.
        reason: Why it is not in force, as text; None if it is.
    """

    subject: Queue | Exchange
    type_name: str
    in_force: bool
    rival: str | None = None
    reason: str | None = None


def matching_queues(vhost: VirtualHost, policy: Policy, operator: bool) -> Iterator[PolicyMatch | None]:
    """Match a policy against all queues of a virtual host; yield None for queues that do not match.

    Args:
        vhost: The virtual host of the policy.
        policy: The policy. One for exchanges only matches no queue.
        operator: Whether it is an operator policy.
    """
    if APPLY_TO[policy.apply_to].isdisjoint(_QUEUES):
        return
    for queue in list(vhost.queues.values()):
        current = queue.operator_policy if operator else queue.policy
        yield _match(queue, queue.queue_type, queue.queue_type, policy, current)


def matching_exchanges(vhost: VirtualHost, policy: Policy) -> Iterator[PolicyMatch | None]:
    """Match a policy against all exchanges of a virtual host; yield None for exchanges that do not match.

    Operator policies match no exchange.
    """
    if "exchange" not in APPLY_TO[policy.apply_to]:
        return
    for exchange in list(vhost.topology.exchanges.values()):
        yield _match(exchange, exchange.type_name, "exchange", policy, exchange.policy)


def describe_gaps(policy: Policy, matches: Iterable[PolicyMatch]) -> str:
    """Return on how many of the queues that a policy matches it is in force, and why not on the others.

    Args:
        matches: What matching_queues() yields for it; queues of other types than it applies to do not count.

    Returns:
        Such as ``in force on 0 of 3 queues: 'bounded' comes first``; "" if it is in force on all of them.
    """
    found = [match for match in matches if match.type_name in APPLY_TO[policy.apply_to]]
    others = [match for match in found if not match.in_force]
    if not others:
        return ""
    names = list(dict.fromkeys(f"'{match.rival}'" for match in others if match.rival is not None))
    reasons = list(dict.fromkeys(match.reason for match in others if match.rival is None and match.reason))
    if names:
        more = f" and {len(names) - _NAMES_MAX} more" if len(names) > _NAMES_MAX else ""
        reasons.insert(0, f"{', '.join(names[:_NAMES_MAX])}{more} {'comes' if len(names) == 1 else 'come'} first")
    count = "1 queue" if len(found) == 1 else f"{len(found)} queues"
    return f"in force on {len(found) - len(others)} of {count}: {'; '.join(reasons)}"


def count_in_force(
    vhosts: Iterable[VirtualHost], operator: bool, counted: Counter[tuple[str, str, str]]
) -> Iterator[None]:
    """Count the queues and exchanges on which each policy is in force.

    Args:
        operator: Whether to count operator policies instead of policies.
        counted: Receives the counts, by virtual host, name of the policy, and ``queue`` or ``exchange``.
    Yields:
        None after every object.
    """
    for vhost in vhosts:
        for queue in list(vhost.queues.values()):
            policy = queue.operator_policy if operator else queue.policy
            if policy is not None:
                counted[vhost.name, policy.name, "queue"] += 1
            yield
        for exchange in () if operator else list(vhost.topology.exchanges.values()):
            if exchange.policy is not None:
                counted[vhost.name, exchange.policy.name, "exchange"] += 1
            yield


def _match(
    subject: Queue | Exchange, type_name: str, resource: str, policy: Policy, current: Policy | None
) -> PolicyMatch | None:
    if current is not None and current.name == policy.name:
        return PolicyMatch(subject, type_name, True)
    if not policy.matches_name(subject.name):
        return None
    rival = None if current is None else current.name
    return PolicyMatch(subject, type_name, False, rival, why_not_in_force(policy, current, resource))


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
    return Preview(queue, rival_name, first is policy, changes, queue.excess(new), matches, exchange, missing, new)


def _changes(before: QueueSettings, after: QueueSettings) -> dict[str, tuple[Any, Any]]:
    new = asdict(after)
    return {
        field.replace("_", "-"): (value, new[field]) for field, value in asdict(before).items() if value != new[field]
    }


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
        limits = queue.limits_by(settings)
        return None if limits is None or (limits.refuses and not queue.traits.refuses_dead_letters) else limits
