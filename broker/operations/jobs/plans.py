"""What the works of jobs have in common: they decide what becomes of messages, and count it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from leveret.broker.core.deduplication.filter import FilteredRoute
from leveret.broker.core.messages import Remembering, Target, leave_out, names_of, published_to, read_extra_keys
from leveret.broker.core.queues.message_selector import Selector
from leveret.broker.core.queues.queue import Queue
from leveret.broker.core.queues.returns import without_count
from leveret.broker.core.queues.traits import Limits
from leveret.broker.core.scheduling.turn import TimeSlice
from leveret.broker.core.vhosts.routing import route
from leveret.broker.operations.jobs.job_options import JobOptions
from leveret.broker.operations.principal import Principal
from leveret.broker.operations.publishing import open_exchange
from leveret.policies.dead_letter import DeathOrigin, death_origin
from leveret.protocol.constants import SHORTSTR_MAX
from leveret.protocol.faults import AmqpFault
from leveret.protocol.properties import Properties
from leveret.protocol.short_strings import encode_shortstr
from leveret.storage.message import Envelope, Message

#: Different reasons and targets that are counted; further ones are counted together.
_COUNTED_MAX: Final = 100
#: Characters of what is counted that are kept: headers may have texts of any length.
_TEXT_MAX: Final = 300

# Why messages are left where they are.
NO_ORIGIN: Final = "it is not a dead letter"
NO_QUEUE: Final = "the queue does not exist"
NO_ROUTE: Final = "the exchange does not exist, or has no queue for it"
FULL: Final = "the queue is full"
SAME: Final = "it would come back"
REFUSED: Final = "the user may not publish there"
REMOVED: Final = "its segment was removed"
DAMAGED: Final = "it is damaged"
#: Reason and target of those that are counted together.
_OTHERS: Final = ("others", "")


class Plan(NamedTuple):
    """What becomes of messages of one envelope.

    Attributes:
        origin: Where they come from; None if they are not dead letters.
        target: What they are sent to, for people.
        queues: The queues; empty if they are left.
        problem: Why they are left; "" if they are sent.
        envelope: Their new envelope.
        histories: What has to remember them.
        varies: Whether even an equal message may have other queues.
    """

    origin: DeathOrigin | None
    target: str
    queues: tuple[Target, ...]
    problem: str
    envelope: Envelope
    histories: tuple[Remembering, ...] = ()
    varies: bool = False


class Planner:
    """Decides where messages go. What is decided for an envelope is kept until topology or permissions change.

    Args:
        principal: Who has begun the job.
        options: What is done with them.
    """

    def __init__(self, principal: Principal, source: Queue, options: JobOptions) -> None:
        self._principal = principal
        self._source = source
        self._options = options
        self._kept: tuple[Envelope, int, Plan] | None = None

    def plan(self, message: Message) -> Plan:
        """Return what becomes of a message."""
        envelope, generation = message.envelope, self._principal.generation
        if self._kept is None or self._kept[0] is not envelope or self._kept[1] != generation:
            plan = self._make(without_count(message).envelope)
            if plan.varies:
                return plan
            self._kept = envelope, generation, plan
        return self._kept[2]

    def _make(self, envelope: Envelope) -> Plan:
        replay = self._options.replay
        if replay is not None and replay.exchange is not None:
            return self._make_replay(envelope, replay.exchange)
        if self._options.to is not None:
            return self._make_move(envelope, self._options.to)
        published = Properties(envelope.header)
        headers = published.headers()
        vhost = self._principal.vhost
        # Headers of a publisher could name a queue that the publisher may not write to.
        is_trusted = envelope.dead or vhost.dead_letters.trust_publishers
        origin = death_origin(headers, self._options.death) if is_trusted else None
        if origin is None:
            return Plan(None, "", (), NO_ORIGIN, envelope)
        if self._options.via == "queue":
            exchange_name, target = "", f"queue '{origin.queue}'"
            keys: Sequence[str] = (origin.queue,)
        else:
            exchange_name, keys = origin.exchange, origin.routing_keys or ("",)
            target = f"exchange '{origin.exchange}', key '{keys[0]}'"
            if len(_octets(exchange_name)) > SHORTSTR_MAX:
                return Plan(origin, target, (), NO_ROUTE, envelope)
        header = self._options.changed(published, headers)
        # The broker has written x-death only as far as it is still there.
        dead = envelope.dead and "x-death" not in self._options.removed
        sent = Envelope(
            encode_shortstr(exchange_name) + encode_shortstr(_octets(keys[0])[:255]),
            header,
            envelope.persistent,
            envelope.priority,
            envelope.expiration_ms,
            dead,
        )
        try:
            exchange = open_exchange(self._principal, exchange_name, keys[0])
        except AmqpFault as fault:
            return Plan(origin, target, (), REFUSED if fault.code == 403 else NO_ROUTE, sent)
        if header is not published.payload:
            headers = Properties(header).headers()
        found = route(vhost.topology, exchange, keys, headers, header)
        problem = ""
        if not found.queues:
            problem = NO_QUEUE if self._options.via == "queue" else NO_ROUTE
        elif self._source.name in names_of(found.queues):
            problem = SAME
        return Plan(origin, target, () if problem else found.queues, problem, sent, found.histories, found.varies)

    def _make_move(self, envelope: Envelope, to: str) -> Plan:
        """Return what becomes of messages that are moved as they are."""
        found, target = self._principal.vhost.queues.get(to), f"queue '{to}'"
        if found is None:
            return Plan(None, target, (), NO_QUEUE, envelope)
        if found is self._source:
            return Plan(None, target, (), SAME, envelope)
        return Plan(None, target, (found,), "", envelope)

    def _make_replay(self, envelope: Envelope, exchange_name: str) -> Plan:
        """Return what becomes of messages of a stream that are published again; the stream gets them no second time."""
        routing_key, target = published_to(envelope)[1], f"exchange '{exchange_name}'"
        route_octets = encode_shortstr(exchange_name) + encode_shortstr(_octets(routing_key))
        sent = changed(envelope, route_octets, envelope.header)
        headers = Properties(envelope.header).headers()
        try:
            exchange = open_exchange(self._principal, exchange_name, routing_key)
            keys = [routing_key, *read_extra_keys(headers, "CC")]
        except AmqpFault as fault:
            return Plan(None, target, (), REFUSED if fault.code == 403 else NO_ROUTE, sent)
        found = route(self._principal.vhost.topology, exchange, keys, headers, envelope.header)
        queues = leave_out(found.queues, (self._source.name,))
        problem = "" if queues else SAME if found.queues else NO_ROUTE
        return Plan(None, target, queues, problem, sent, found.histories, found.varies)


def changed(envelope: Envelope, route_octets: bytes, header: bytes) -> Envelope:
    """Return the envelope of a copy with another route and header.

    Args:
        route_octets: Exchange and routing key as encoded short strings.
    """
    timing = envelope.persistent, envelope.priority, envelope.expiration_ms
    return Envelope(route_octets, header, *timing, envelope.dead)


@dataclass(slots=True)
class Counts:
    """What a job has done.

    Attributes:
        scanned: Messages that were looked at.
        returned: Messages that were returned; on a dry run, those that would be.
        left: Messages that match, and are left where they are, by reason and target.
        by_origin: Messages that match, by target and reason of dead-lettering, or of a replay, routing key.
    """

    scanned: int = 0
    returned: int = 0
    left: Counter[tuple[str, str]] = field(default_factory=Counter)
    by_origin: Counter[tuple[str, str]] = field(default_factory=Counter)

    def leave(self, plan: Plan, problem: str, count: int = 1) -> None:
        """Count messages that are left where they are."""
        _count(self.left, (problem, plan.target), count)

    def miss(self, problem: str, count: int, target: str = "") -> None:
        """Count messages that are not there any more, or cannot be checked."""
        _count(self.left, (problem, target), count)

    def count_origin(self, target: str, reason: str, count: int = 1) -> None:
        """Count messages that match."""
        _count(self.by_origin, (target, reason), count)


def _count(counter: Counter[tuple[str, str]], texts: tuple[str, str], count: int) -> None:
    key = _shortened(texts[0]), _shortened(texts[1])
    counter[key if key in counter or len(counter) < _COUNTED_MAX else _OTHERS] += count


def _shortened(text: str) -> str:
    return text if len(text) <= _TEXT_MAX else f"{text[: _TEXT_MAX - 1]}…"


class Room:
    """The room in queues that is left after what a step publishes."""

    def __init__(self) -> None:
        self._reserved: dict[Queue, tuple[int, int]] = {}

    def reserve(self, targets: Sequence[Target], size: int) -> bool:
        """Reserve room for a message in all queues; return whether all have it. One with drop-head may be full too."""
        limited = [*_limited(targets)]
        if not all(self._has_room(queue, limits, size) for queue, limits in limited):
            return False
        for queue, _ in limited:
            count, body_bytes = self._reserved.get(queue, (0, 0))
            self._reserved[queue] = count + 1, body_bytes + size
        return True

    def _has_room(self, queue: Queue, limits: Limits, size: int) -> bool:
        count, body_bytes = self._reserved.get(queue, (0, 0))
        if not count:
            # Expired messages and those above a new limit make room.
            queue.ready_count()
        # Whether they fit by number, and all their bodies as if they were one.
        return limits.room(queue.store, 0) > count and limits.room(queue.store, body_bytes + size) > 0


def _limited(targets: Sequence[Target]) -> Iterator[tuple[Queue, Limits]]:
    """Iterate over the queues that have limits; a stream at its limit removes its oldest messages."""
    for target in targets:
        if isinstance(target, FilteredRoute):
            yield from _limited(target.targets)
        elif isinstance(target, Queue) and target.limits is not None:
            yield target, target.limits


def _octets(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


# -- works ------------------------------------------------------------------------------------------------


class Work:
    """What a job does, in steps of a few milliseconds.

    Args:
        principal: Who does it.
        source: The queue that messages come from; of a restore, the one that gets them.
        options: What is done.
        counts: What has been done before.
        number: Where it begins, or goes on; see the subclasses.

    Attributes:
        source: See Args.
        counts: What has been done.
        number: Where it goes on after a restart.
        is_over: Whether nothing is left to do, or the limit is reached.
        waits: Why the last step could not send the next message; "" if it could.
    """

    def __init__(
        self, principal: Principal, source: Queue, options: JobOptions, counts: Counts, number: int = 0
    ) -> None:
        self.source = source
        self._principal = principal
        self._options = options
        self.counts = counts
        self.number = number
        self.is_over = False
        self.waits = ""

    @property
    def is_checking(self) -> bool:
        """Whether the last step has ended within a message, whose body takes memory meanwhile."""
        return False

    @property
    def generation(self) -> int:
        """Number that increases with every change of topology or permissions."""
        return self._principal.generation

    def use(self, principal: Principal) -> None:
        """Work with the permissions of a user from now on."""
        self._principal = principal

    def close(self) -> None:
        """Free what it has taken; it takes no further step."""

    def step(self, most: int, takes: bool = True, time_slice: TimeSlice | None = None) -> int:
        """Do some of it, for a time slice; return the number of messages that were sent.

        Args:
            most: Maximum number of messages that are sent.
            takes: Whether they are; otherwise they are only counted.
            time_slice: The time slice; None for one of its own.
        """
        raise NotImplementedError

    def _limited(self, most: int) -> int:
        """Return how many messages may be sent at most: so many, or what is left of the limit."""
        limit = self._options.limit
        return most if limit is None else min(most, limit - self.counts.returned)

    @property
    def _is_at_limit(self) -> bool:
        return self._options.limit is not None and self.counts.returned >= self._options.limit


class SelectingWork(Work):
    """Work that looks at messages, and decides where those go that match. For the arguments see Work."""

    def __init__(
        self, principal: Principal, source: Queue, options: JobOptions, counts: Counts, number: int = 0
    ) -> None:
        super().__init__(principal, source, options, counts, number)
        self._planner = Planner(principal, source, options)
        self._selector = Selector(options.wanted)
        self._dry_room = Room()

    @property
    def is_checking(self) -> bool:
        """See Work."""
        return self._selector.is_checking

    def use(self, principal: Principal) -> None:
        """Work with the permissions of a user from now on."""
        super().use(principal)
        self._planner = Planner(principal, self.source, self._options)
