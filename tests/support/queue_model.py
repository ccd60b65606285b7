"""Reference model of queues: one message at a time, plain lists, no store, no turn, no batches.

It is slow and is meant to be read beside RabbitMQ's documentation on length limits, dead-lettering and TTL. A step
is one public call; when it returns, all its consequences have happened. Queues do not wait for each other: the dead
letters of a step are published when the queue has finished the step, in the order in which they were issued.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

#: Policy keys for which the smallest value applies; for others one source has precedence.
NUMBERS = ("max-length", "max-length-bytes", "message-ttl")


@dataclass(frozen=True)
class Death:
    """One entry of x-death: queue, reason, count, and the exchange and routing key of the message."""

    queue: str
    reason: str
    count: int
    exchange: str
    key: str


@dataclass(frozen=True)
class Content:
    """Content of a message, shared by its copies in several queues."""

    label: str
    body: str
    exchange: str
    key: str
    priority: int = 0
    expiration: int | None = None
    deaths: tuple[Death, ...] = ()
    #: Queue, reason and exchange of the first death; determined by the history of `deaths`.
    first_death: tuple[str, str, str] | None = field(default=None, compare=False)


@dataclass(eq=False)
class Copy:
    """A message in one queue, with its arrival number, expiry time in microseconds, and number of returns."""

    content: Content
    arrival: int
    expires_at: int | None
    returns: int = 0
    #: Whether it precedes all messages that were not returned.
    first: bool = False

    @property
    def redelivered(self) -> bool:
        """Whether the message was delivered before."""
        return self.returns > 0


@dataclass(eq=False)
class ModelConsumer:
    """A consumer; cancelled ones, and those that represent basic.get, are not in a ring."""

    room: int = 0
    no_ack: bool = False
    priority: int = 0
    blocked: bool = False
    held: list[Copy] = field(default_factory=list)
    received: list[tuple[Content, bool, int]] = field(default_factory=list)

    def has_credit(self) -> bool:
        """Return whether it accepts another message."""
        return self.room > len(self.held)

    def take(self, copy: Copy) -> None:
        """Receive a message."""
        self.received.append((copy.content, copy.redelivered, copy.returns))
        if self.no_ack:
            self.room -= 1
        else:
            self.held.append(copy)


class ModelQueue:
    """One queue."""

    def __init__(self, name: str, kind: str, arguments: Mapping[str, Any]) -> None:
        self.name = name
        self.kind = kind
        self.arguments = arguments
        self.settings = effective(kind, arguments, {}, {})
        #: Ready messages, in delivery order.
        self.ready: list[Copy] = []
        #: Messages that consumers and channels hold.
        self.unacked: list[Copy] = []
        self.ring: list[ModelConsumer] = []
        self.counters: Counter[str] = Counter()

    def put(self, copies: Sequence[Copy]) -> None:
        """Insert messages by priority and arrival."""
        self.ready += copies
        self.ready.sort(key=lambda copy: (-self._level(copy), not copy.first, copy.arrival))

    def _level(self, copy: Copy) -> int:
        return min(copy.content.priority, self.arguments["max-priority"]) if self.kind == "priority" else 0

    def counts_returns(self) -> bool:
        """Return whether returned messages have a delivery count."""
        return self.kind == "quorum" or "redelivery-limit" in self.arguments

    def refuses(self) -> bool:
        """Return whether overflow refuses new messages instead of dropping old ones."""
        return bool(self.settings["overflow"] != "drop-head")

    def counts_all(self) -> bool:
        """Return whether limits count unacked messages, too."""
        return bool(self.settings["length-counts"] == "all")

    def is_over(self, more: Sequence[Content] = ()) -> bool:
        """Return whether the messages that count and `more` together exceed a limit."""
        counted = [*self.ready, *self.unacked] if self.counts_all() else self.ready
        bodies = [copy.content.body for copy in counted] + [content.body for content in more]
        most, most_bytes = self.settings["max-length"], self.settings["max-length-bytes"]
        too_many = most is not None and len(bodies) > most
        return too_many or (most_bytes is not None and sum(map(len, bodies)) > most_bytes)

    def next_consumer(self) -> ModelConsumer | None:
        """Return the longest waiting consumer of the highest priority; consumers without credit leave the ring."""
        while self.ring:
            consumer = max(self.ring, key=lambda each: each.priority)
            self.ring.remove(consumer)
            if consumer.has_credit():
                self.ring.append(consumer)
                return consumer
            consumer.blocked = True
        return None

    def unblock(self, consumer: ModelConsumer) -> None:
        """Put a consumer back into the ring that had left it for lack of credit."""
        if consumer.blocked:
            consumer.blocked = False
            self.ring.append(consumer)


class ModelBroker:
    """Queues, the default exchange, and a fanout exchange for dead letters."""

    def __init__(self, fanout: tuple[str, Sequence[str]]) -> None:
        self.queues: dict[str, ModelQueue] = {}
        self.now = 0
        self.undecided = False
        self.letters = 0
        self._fanout = fanout
        self._arrivals = 0
        #: Dead letters that are not published yet.
        self._letters: deque[tuple[ModelQueue, Content, str]] = deque()

    # -- steps ---------------------------------------------------------------------------------------------

    def publish(self, queue: ModelQueue, contents: Sequence[Content]) -> list[bool]:
        """Publish messages one by one; return for each whether the queue accepted it."""
        taken = [self._publish(queue, content) for content in contents]
        self._send_letters()
        return taken

    def add_consumer(self, queue: ModelQueue, consumer: ModelConsumer) -> None:
        """Add a consumer."""
        queue.ring.append(consumer)
        self._deliver(queue)
        self._send_letters()

    def remove_consumer(self, queue: ModelQueue, consumer: ModelConsumer) -> None:
        """Remove a consumer; its messages stay unacked."""
        if consumer in queue.ring:
            queue.ring.remove(consumer)
        consumer.blocked = False

    def set_room(self, queue: ModelQueue, consumer: ModelConsumer, room: int) -> None:
        """Change a consumer's limit of unacked messages."""
        consumer.room = room
        queue.unblock(consumer)
        self._deliver(queue)
        self._send_letters()

    def settle(
        self, queue: ModelQueue, consumer: ModelConsumer, copies: Sequence[Copy], outcome: str, ended: bool = False
    ) -> None:
        """Acknowledge, reject or requeue messages held by a consumer, or by a channel that has ended."""
        consumer.held = [copy for copy in consumer.held if copy not in copies]
        queue.unacked = [copy for copy in queue.unacked if copy not in copies]
        queue.unblock(consumer)
        if outcome == "acknowledge":
            queue.counters["acknowledged"] += len(copies)
        elif outcome == "reject":
            for copy in copies:
                self._drop(queue, copy, "rejected")
        else:
            self._requeue(queue, copies, ended)
        self._deliver(queue)
        self._send_letters()

    def get(self, queue: ModelQueue, holder: ModelConsumer) -> Copy | None:
        """Take the message at the head (basic.get)."""
        if not queue.ready:
            return None
        copy = queue.ready.pop(0)
        queue.counters["got"] += 1
        queue.counters["redelivered"] += copy.redelivered
        _take(queue, holder, copy)
        self._expire(queue)
        self._send_letters()
        return copy

    def purge(self, queue: ModelQueue) -> int:
        """Remove the ready messages; return their number."""
        purged = len(queue.ready)
        queue.ready.clear()
        queue.counters["dropped purged"] += purged
        return purged

    def apply(self, queue: ModelQueue, policy: Mapping[str, Any], operator_policy: Mapping[str, Any]) -> None:
        """Apply policies: first the limits with the old overflow, then the new overflow."""
        new = effective(queue.kind, queue.arguments, policy, operator_policy)
        for overflow in (queue.settings["overflow"], new["overflow"]):
            queue.settings = new | {"overflow": overflow}
            self._evict(queue)
            # A dead letter that returns through other queues is handled by the overflow under which it was dropped.
            self._send_letters()
        self._expire(queue)
        self._deliver(queue)
        self._send_letters()

    def advance(self, now: int) -> None:
        """Advance the clock; messages at the heads of queues expire one after another, each at its time."""
        while True:
            heads = [(queue.ready[0].expires_at, queue) for queue in self.queues.values() if queue.ready]
            due = [(at, queue) for at, queue in heads if at is not None and at <= now]
            if not due:
                break
            self.now, queue = min(due, key=lambda pair: pair[0])
            self._expire(queue)
            self._send_letters()
        self.now = now

    # -- consequences --------------------------------------------------------------------------------------

    def _publish(self, queue: ModelQueue, content: Content) -> bool:
        if queue.refuses() and queue.is_over([content]) and not (queue.kind == "quorum" and content.deaths):
            queue.counters["refused"] += 1
            if queue.settings["overflow"] == "reject-publish-dlx":
                self._dead_letter(queue, content, "maxlen")
            return False
        queue.counters["published"] += 1
        times = [ms for ms in (content.expiration, queue.settings["message-ttl"]) if ms is not None]
        self._arrivals += 1
        copy = Copy(content, self._arrivals, self.now + min(times) * 1000 if times else None)
        if queue.counts_all() and not queue.refuses() and not queue.ready and queue.is_over([content]):
            # Those that are unacked fill the queue: nothing else can be dropped.
            self._drop(queue, copy, "maxlen")
            return True
        consumer = queue.next_consumer()
        if consumer is not None:
            assert not queue.ready, "a consumer with credit would have had it"
            self._hand_out(queue, consumer, copy)
        elif queue.settings["message-ttl"] == 0 and queue.settings["dead-letter-exchange"] is None:
            self._drop(queue, copy, "expired")
        else:
            queue.put([copy])
            before = queue.counters["dropped expired"]
            evicted = self._evict(queue)
            self._expire(queue)
            if evicted and (_have_expired(evicted, self.now) or queue.counters["dropped expired"] > before):
                self.undecided = True
        return True

    def _requeue(self, queue: ModelQueue, copies: Sequence[Copy], ended: bool) -> None:
        returned = list(copies)
        if queue.counts_returns():
            limit = queue.arguments.get("delivery-limit", 20) if queue.kind == "quorum" else 1 << 62
            limit = min(limit, queue.arguments.get("redelivery-limit", limit))
            for copy in copies:
                if copy.returns >= limit:
                    returned.remove(copy)
                    self._drop(queue, copy, "delivery_limit")
                else:
                    # Where they are counted, it does not return to its original position.
                    self._arrivals += 1
                    copy.arrival = self._arrivals
                    copy.first = ended or queue.kind != "quorum" or "delivery-limit" in queue.arguments
        for copy in returned:
            copy.returns += 1
        queue.counters["requeued"] += len(returned)
        queue.put(returned)
        if queue.kind == "quorum":
            # Limits apply only to messages that no consumer takes.
            self._expire(queue)
            self._deliver(queue)
        if not queue.counts_all():
            self._evict(queue)
        self._expire(queue)

    def _deliver(self, queue: ModelQueue) -> None:
        while queue.ready:
            consumer = queue.next_consumer()
            if consumer is None:
                return
            self._hand_out(queue, consumer, queue.ready.pop(0))
            self._expire(queue)

    def _hand_out(self, queue: ModelQueue, consumer: ModelConsumer, copy: Copy) -> None:
        queue.counters["delivered"] += 1
        queue.counters["redelivered"] += copy.redelivered
        _take(queue, consumer, copy)

    def _evict(self, queue: ModelQueue) -> list[Copy]:
        evicted = []
        while not queue.refuses() and queue.ready and queue.is_over():
            evicted.append(queue.ready.pop(0))
            self._drop(queue, evicted[-1], "maxlen")
        return evicted

    def _expire(self, queue: ModelQueue) -> None:
        while queue.ready and (at := queue.ready[0].expires_at) is not None and at <= self.now:
            self._drop(queue, queue.ready.pop(0), "expired")

    def _drop(self, queue: ModelQueue, copy: Copy, reason: str) -> None:
        queue.counters[f"dropped {reason}"] += 1
        self._dead_letter(queue, copy.content, reason)

    # -- dead letters --------------------------------------------------------------------------------------

    def _dead_letter(self, queue: ModelQueue, content: Content, reason: str) -> None:
        if queue.settings["dead-letter-exchange"] is not None:
            self._letters.append((queue, content, reason))

    def _send_letters(self) -> None:
        while self._letters:
            queue, content, reason = self._letters.popleft()
            self.letters += 1
            exchange = queue.settings["dead-letter-exchange"]
            if exchange not in ("", self._fanout[0]):
                continue
            queue.counters[f"dead-lettered {reason}"] += 1
            key = queue.settings["dead-letter-routing-key"] or content.key
            deaths = with_death(content, queue.name, reason)
            first = content.first_death or (queue.name, reason, content.exchange)
            letter = replace(content, exchange=exchange, key=key, expiration=None, deaths=deaths, first_death=first)
            for name in self._fanout[1] if exchange else [key]:
                if name in self.queues and (reason == "rejected" or not is_cycle(deaths, name)):
                    self._publish(self.queues[name], letter)


def _take(queue: ModelQueue, consumer: ModelConsumer, copy: Copy) -> None:
    consumer.take(copy)
    if not consumer.no_ack:
        queue.unacked.append(copy)


def _have_expired(copies: Sequence[Copy], now: int) -> bool:
    return any(copy.expires_at is not None and copy.expires_at <= now for copy in copies)


def with_death(content: Content, queue: str, reason: str) -> tuple[Death, ...]:
    """Return the deaths of a message with one added: newest first, one entry per queue and reason."""
    same = [death for death in content.deaths if (death.queue, death.reason) == (queue, reason)]
    others = [death for death in content.deaths if death not in same]
    newest = (
        replace(same[0], count=same[0].count + 1) if same else Death(queue, reason, 1, content.exchange, content.key)
    )
    return (newest, *others)


def is_cycle(deaths: Sequence[Death], target: str) -> bool:
    """Return whether a message was in a queue before and has not been rejected since."""
    queues = [death.queue for death in deaths]
    if target not in queues:
        return False
    since = deaths[: queues.index(target) + 1]
    return all(death.reason != "rejected" for death in since)


def effective(
    kind: str, arguments: Mapping[str, Any], policy: Mapping[str, Any], operator_policy: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the effective settings of a queue by policy key; None where nothing is set."""
    sources = (arguments, operator_policy, policy)
    settings: dict[str, Any] = {}
    for key in NUMBERS:
        settings[key] = min((source[key] for source in sources if key in source), default=None)
    for key in ("dead-letter-exchange", "dead-letter-routing-key"):
        settings[key] = next((source[key] for source in sources if key in source), None)
    settings["length-counts"] = next((each["length-counts"] for each in sources if "length-counts" in each), "ready")
    if kind == "quorum":
        sources = (operator_policy, policy, arguments)
    overflow = next((source["overflow"] for source in sources if "overflow" in source), "drop-head")
    # Quorum queues do not support this overflow.
    unknown = kind == "quorum" and overflow == "reject-publish-dlx"
    settings["overflow"] = "drop-head" if unknown else overflow
    return settings
