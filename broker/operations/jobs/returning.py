"""Returns dead letters to where they come from, or moves messages to another queue.

A message is published to its target and leaves the dead-letter queue in the same turn. The store removes the original
only when the copy is synced. So a crash in between leaves it in both queues, never in none.

Only messages are returned that were in the queue when the job began: those that are dead-lettered again have higher
numbers, so that no message goes round in a circle.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final, NamedTuple

from leveret.broker.core.deduplication.filtered_route import names_of
from leveret.broker.core.messages.routing import Remembering, route
from leveret.broker.core.queues.browsing import Browsed, Browser, Place, is_ready_at, take_out
from leveret.broker.core.queues.delivery_count import without_count
from leveret.broker.core.queues.queue import Queue
from leveret.broker.core.queues.selecting import Selector
from leveret.broker.core.queues.target import Target
from leveret.broker.operations.jobs.options import JobOptions
from leveret.broker.operations.principal import Principal
from leveret.broker.operations.publishing import open_exchange
from leveret.policies.death_origin import DeathOrigin, death_origin
from leveret.protocol.faults import AmqpFault
from leveret.protocol.properties import Properties
from leveret.protocol.short_strings import encode_shortstr
from leveret.storage.event_format import EventKind
from leveret.storage.interface import Entry
from leveret.storage.message import Envelope, Message

#: Different reasons and targets that are counted; further ones are counted together.
_COUNTED_MAX: Final = 200
#: Messages that a step looks at.
_LOOK: Final = 64
#: Messages that are looked at between two checks of the time slice.
_CHECK: Final = 8

# Why messages are left where they are.
NO_ORIGIN: Final = "it is not a dead letter"
NO_QUEUE: Final = "the queue does not exist"
NO_ROUTE: Final = "the exchange does not exist, or has no queue for it"
FULL: Final = "the queue is full"
SAME: Final = "it would come back"
REFUSED: Final = "the user may not publish there"
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
    """

    origin: DeathOrigin | None
    target: str
    queues: tuple[Target, ...]
    problem: str
    envelope: Envelope
    histories: tuple[Remembering, ...] = ()


class Planner:
    """Decides where dead letters go. What is decided for an envelope is kept until topology or permissions change.

    Args:
        principal: Who returns them.
        source: The dead-letter queue.
        options: How they are returned.
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
            self._kept = envelope, generation, self._make(without_count(message).envelope)
        return self._kept[2]

    def _make(self, envelope: Envelope) -> Plan:
        if self._options.to is not None:
            return self._make_move(envelope, self._options.to)
        published = Properties(envelope.header)
        headers = published.headers()
        origin = death_origin(headers, self._options.death)
        if origin is None:
            return Plan(None, "", (), NO_ORIGIN, envelope)
        if self._options.via == "queue":
            exchange_name, target = "", f"queue '{origin.queue}'"
            keys: Sequence[str] = (origin.queue,)
        else:
            exchange_name, keys = origin.exchange, origin.routing_keys or ("",)
            target = f"exchange '{origin.exchange}', key '{keys[0]}'"
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
        vhost = self._principal.vhost
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
        return Plan(origin, target, () if problem else found.queues, problem, sent, found.histories)

    def _make_move(self, envelope: Envelope, to: str) -> Plan:
        """Return what becomes of messages that are moved as they are."""
        found, target = self._principal.vhost.queues.get(to), f"queue '{to}'"
        if found is None:
            return Plan(None, target, (), NO_QUEUE, envelope)
        if found is self._source:
            return Plan(None, target, (), SAME, envelope)
        return Plan(None, target, (found,), "", envelope)


@dataclass(slots=True)
class Counts:
    """What a job has done.

    Attributes:
        scanned: Messages that were looked at.
        returned: Messages that were returned; on a dry run, those that would be.
        left: Messages that match, and are left where they are, by reason and target.
        by_origin: Messages that match, by target and reason of dead-lettering.
    """

    scanned: int
    returned: int
    left: Counter[tuple[str, str]]
    by_origin: Counter[tuple[str, str]]

    def leave(self, plan: Plan, problem: str, count: int = 1) -> None:
        """Count messages that are left where they are."""
        _count(self.left, (problem, plan.target), count)


def _count(counter: Counter[tuple[str, str]], key: tuple[str, str], count: int) -> None:
    counter[key if key in counter or len(counter) < _COUNTED_MAX else _OTHERS] += count


class ReturnWork:
    """Returns the messages of a queue, in steps of a few milliseconds.

    Args:
        principal: Who returns them.
        source: The dead-letter queue.
        options: How they are returned.
        ends: By level of the queue, the number up to which messages are returned: that of the next message when the
            job began.
        counts: What has been done before.

    Attributes:
        source: The dead-letter queue.
        counts: What has been done.
        is_over: Whether all messages have been looked at, or the limit is reached.
    """

    def __init__(
        self, principal: Principal, source: Queue, options: JobOptions, ends: Mapping[int, int], counts: Counts
    ) -> None:
        self.source = source
        self._principal = principal
        self._options = options
        self._ends = ends
        self._planner = Planner(principal, source, options)
        self._selector = Selector(options.wanted)
        self._place: Place | None = None
        self._dry_room = _Room()
        self.counts = counts
        self.is_over = False

    @property
    def generation(self) -> int:
        """Number that increases with every change of topology or permissions."""
        return self._principal.generation

    def use(self, principal: Principal) -> None:
        """Work with the permissions of a user from now on."""
        self._principal = principal
        self._planner = Planner(principal, self.source, self._options)

    def step(self, most: int, takes: bool = True) -> int:
        """Look at some messages, and return those that match; return their number.

        Args:
            most: Maximum number of messages that are returned.
            takes: Whether they are; otherwise they are only counted.
        """
        browser = Browser(self.source, self._place, ready_only=True, most=_LOOK)
        batch = next(browser.steps(), [])
        if self._options.limit is not None:
            most = min(most, self._options.limit - self.counts.returned)
        chosen: list[tuple[Browsed, Plan]] = []
        self._place = browser.place
        # What is only counted takes the room of what follows.
        room = _Room() if takes else self._dry_room
        time_slice = self.source.host.turn.slice()
        for at, found in enumerate(batch):
            if len(chosen) >= most or (at % _CHECK == _CHECK - 1 and time_slice.is_over()):
                self._place = found.place
                break
            if found.place.seq >= self._ends.get(found.place.level, 0):
                browser.skip_level()
                self._place = browser.place
                break
            self._consider(found, chosen, room)
        count = self._send(chosen) if takes else len(chosen)
        self.counts.returned += count
        at_limit = self._options.limit is not None and self.counts.returned >= self._options.limit
        self.is_over = self._place is None or at_limit
        return count

    def _consider(self, found: Browsed, chosen: list[tuple[Browsed, Plan]], room: _Room) -> None:
        """Add a message to those that are sent, if it matches and its target has room."""
        counts = self.counts
        counts.scanned += 1
        if not found.is_ready:
            return
        if not self._selector.wants(found.message, found.arrived, self.source.host.timers.now()):
            return
        plan = self._planner.plan(found.message)
        if plan.origin is not None:
            _count(counts.by_origin, (plan.target, plan.origin.reason), 1)
        problem = plan.problem or ("" if room.reserve(plan.queues, len(found.message.body)) else FULL)
        if problem:
            counts.leave(plan, problem)
        else:
            chosen.append((found, plan))

    def _send(self, chosen: Sequence[tuple[Browsed, Plan]]) -> int:
        """Take messages out of the queue, publish them, and settle them; return the number of those accepted."""
        source = self.source
        # To find room, targets may have dropped messages, whose dead letters may have dropped some here.
        chosen = [each for each in chosen if is_ready_at(source, each[0].place)]
        if not chosen:
            return 0
        # Before any of them is published: that could drop others here.
        entries = take_out(source, [found for found, _ in chosen])
        accepted: list[Entry] = []
        refused: list[Entry] = []
        at = 0
        for run in _runs(chosen):
            taken = self._publish([found.message.body for found, _ in run], run[0][1])
            accepted += entries[at : at + taken]
            refused += entries[at + taken : at + len(run)]
            if taken < len(run):
                self.counts.leave(run[0][1], FULL, len(run) - taken)
            at += len(run)
        if source.deleted:
            return len(accepted)
        if refused:
            source.contents.put_back(refused)
        if accepted:
            source.acknowledge(accepted, EventKind.MOVED)
        source.host.turn.deliver_later(source)
        return len(accepted)

    def _publish(self, bodies: Sequence[bytes], plan: Plan) -> int:
        messages = [Message(plan.envelope, body) for body in bodies]
        size = len(bodies[0]) * len(bodies)
        taken = min([queue.publish(messages, size) for queue in plan.queues])
        for history in plan.histories:
            history.remember(messages[:taken])
        return taken


def _runs(chosen: Sequence[tuple[Browsed, Plan]]) -> Iterator[list[tuple[Browsed, Plan]]]:
    """Group consecutive messages of one plan and size."""
    for _, run in groupby(chosen, key=lambda each: (id(each[1]), len(each[0].message.body))):
        yield [*run]


class _Room:
    """The room in queues that is left after what a step publishes."""

    def __init__(self) -> None:
        self._reserved: dict[Target, tuple[int, int]] = {}

    def reserve(self, queues: Sequence[Target], size: int) -> bool:
        """Reserve room for a message in all queues; return whether all have it. One with drop-head may be full too."""
        if not all(self._has_room(queue, size) for queue in queues):
            return False
        for queue in queues:
            count, body_bytes = self._reserved.get(queue, (0, 0))
            self._reserved[queue] = count + 1, body_bytes + size
        return True

    def _has_room(self, queue: Target, size: int) -> bool:
        limits = queue.contents.limits if isinstance(queue, Queue) else None
        if limits is None or not isinstance(queue, Queue):
            return True
        count, body_bytes = self._reserved.get(queue, (0, 0))
        if not count:
            # Expired messages and those above a new limit make room.
            queue.ready_count()
        # Whether they fit by number, and all their bodies as if they were one.
        return limits.room(queue.store, 0) > count and limits.room(queue.store, body_bytes + size) > 0


def _octets(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")
