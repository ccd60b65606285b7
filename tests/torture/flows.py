"""Clients of a cluster: each publishes numbers and consumes them, whatever node answers, and keeps a ledger.

A number is published once; only where duplicates are dropped is it published until it is confirmed. What was confirmed
has to be consumed, unchanged and in order. What comes twice is counted by the reason that the client knows.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from http.client import HTTPException
from itertools import pairwise
from typing import Any, Final

from tests.conformance.streams import offset
from tests.support.cluster import Node
from tests.support.management import Management
from tests.support.tables import Triple
from tests.support.wire import Channel, ChannelClosed, Connection, ConnectionClosed, ConnectionDropped, Delivery

#: Messages that a publisher has unconfirmed at most, and those that are confirmed and not consumed yet.
_WINDOW: Final = 600
_AHEAD: Final = 3000
_PREFETCH: Final = 200
#: Seconds between what a publisher publishes: the machine has three nodes to run, and what is done to them takes time.
_PAUSE: Final = 0.2
#: Seconds that a client waits for anything, and for which it stays with a node.
_TIMEOUT: Final = 6.0
_STAY: Final = (2.0, 20.0)
_NOISE: Final = random.Random(0).randbytes(1024)


def body_of(number: int) -> bytes:
    """Return the body of a message: its number, and up to 300 further bytes."""
    return b"%d:" % number + _NOISE[number % 512 : number % 512 + number * 7919 % 301]


class Flow:
    """A queue with a publisher, a consumer and a ledger.

    Attributes:
        confirmed: Numbers that were confirmed.
        seen: Numbers that were consumed.
        wrong: What should not have happened.
        twice: How many messages came more than once, by reason.
        transactions: Whether it publishes in transactions.
    """

    #: Whether what comes again must be marked as redelivered, and the reason otherwise.
    is_marked = True
    unmarked_reason = "it was stored twice"
    is_ordered = True

    def __init__(
        self, name: str, nodes: Sequence[Node], seed: int, *arguments: Triple, transactions: bool = False
    ) -> None:
        self.name = name
        self.nodes = nodes
        self.random = random.Random(seed)
        self.arguments = [*arguments]
        self.transactions = transactions
        self.confirmed: set[int] = set()
        self.seen: set[int] = set()
        self.wrong: list[str] = []
        self.twice: Counter[str] = Counter()
        self.longest_wait = 0.0
        self._acknowledged: set[int] = set()
        self._returned: set[int] = set()
        #: The order in which numbers were seen first, by priority.
        self._firsts: dict[int, list[int]] = {}
        self._number = 0
        self._pauses = threading.Event()
        self._ends = threading.Event()
        work = (self._publish, self._consume, *self.others())
        self._threads = [threading.Thread(target=self._repeat, args=[each], daemon=True) for each in work]

    # --- what flows differ in -----------------------------------------------------------------------------------------

    def others(self) -> list[Callable[[Connection], None]]:
        """Return what else is done all the time."""
        return []

    def declare(self, channel: Channel) -> None:
        """Declare the queue."""
        channel.queue_declare(self.name, durable=True, arguments=self.arguments)

    def target(self) -> tuple[str, str]:
        """Return exchange and routing key."""
        return "", self.name

    def properties(self, number: int) -> dict[str, Any]:
        """Return what a message has beside its body."""
        return {"delivery_mode": 2, "priority": self.level(number)}

    def level(self, number: int) -> int:
        """Return the priority of a message in its queue."""
        return 0

    def begin_to_consume(self, channel: Channel) -> None:
        """Begin to consume, as the only one: who came before has given back what it had."""
        channel.consume(self.name, exclusive=True)

    def take(self, channel: Channel, number: int, delivery: Delivery) -> bool:
        """Answer a delivery; return whether its way ends here."""
        if self.random.random() < 0.02 and not delivery.redelivered:
            channel.nack(delivery.delivery_tag)
            self._returned.add(number)
        else:
            channel.ack(delivery.delivery_tag)
            self._acknowledged.add(number)
        return True

    # --- publishing ---------------------------------------------------------------------------------------------------

    def _publish(self, connection: Connection) -> None:
        channel = connection.channel()
        self.declare(channel)
        (channel.tx_select if self.transactions else channel.confirm_select)()
        unconfirmed: dict[int, int] = {}
        until, tag = time.monotonic() + self.random.uniform(*_STAY), 0
        try:
            while not self._pauses.is_set() and time.monotonic() < until:
                if len(self.confirmed) - len(self.seen) > _AHEAD:
                    time.sleep(0.02)
                    continue
                for _ in range(self.random.randrange(1, _WINDOW // 2)):
                    tag += 1
                    unconfirmed[tag] = self._next()
                    self._send(channel, unconfirmed[tag])
                begun = time.monotonic()
                if self.transactions:
                    channel.tx_commit()
                    self._confirm(unconfirmed.values())
                    unconfirmed.clear()
                while len(unconfirmed) > self.random.choice((0, _WINDOW)):
                    connection.read(_TIMEOUT)
                    self._take_confirms(channel, unconfirmed)
                self.longest_wait = max(self.longest_wait, time.monotonic() - begun)
                time.sleep(_PAUSE)
            while unconfirmed:
                connection.read(_TIMEOUT)
                self._take_confirms(channel, unconfirmed)
        finally:
            self.not_confirmed([*unconfirmed.values()])
        if self._pauses.is_set():
            time.sleep(0.05)

    def _next(self) -> int:
        self._number += 1
        return self._number

    def not_confirmed(self, numbers: Sequence[int]) -> None:
        """Take note of what a connection has ended without confirms for."""

    def _send(self, channel: Channel, number: int) -> None:
        channel.publish(*self.target(), body_of(number), self.properties(number))

    def _take_confirms(self, channel: Channel, unconfirmed: dict[int, int]) -> None:
        while channel.confirms:
            confirm = channel.confirms.popleft()
            last = confirm.delivery_tag
            tags = [tag for tag in unconfirmed if tag <= last] if confirm.multiple else [last]
            numbers = [unconfirmed.pop(tag) for tag in tags]
            if confirm.ack:
                self._confirm(numbers)
            else:
                self.not_confirmed(numbers)

    def _confirm(self, numbers: Sequence[int] | Any) -> None:
        self.confirmed.update(numbers)

    # --- consuming ----------------------------------------------------------------------------------------------------

    def _consume(self, connection: Connection) -> None:
        channel = connection.channel()
        self.declare(channel)
        channel.qos(_PREFETCH)
        self.begin_to_consume(channel)
        until = time.monotonic() + self.random.uniform(*_STAY)
        while not self._ends.is_set() and time.monotonic() < until:
            with suppress(TimeoutError):
                connection.read(0.3)
            while channel.pending:
                self._see(channel, channel.pending.popleft())

    def _see(self, channel: Channel, delivery: Delivery) -> None:
        number = int(delivery.body.partition(b":")[0])
        if delivery.body != body_of(number):
            self.wrong.append(f"changed {number}")
        self.look_at(number, delivery)
        # Others can have it as soon as it is answered, so what was seen is noted before.
        is_known, reason = number in self.seen, self.reason(number, delivery)
        if not self.take(channel, number, delivery):
            return
        if is_known:
            if self.is_marked and not delivery.redelivered:
                self.wrong.append(f"twice, and not marked as redelivered: {number}")
            self.twice[reason] += 1
        else:
            self.seen.add(number)
            # What returns to a quorum queue goes behind what has returned before, as in RabbitMQ: if two consumers
            # in a row end without having seen all that they got, the rest comes in another order.
            if not (delivery.redelivered and ("x-queue-type", "S", "quorum") in self.arguments):
                self._firsts.setdefault(self.level(number), []).append(number)

    def look_at(self, number: int, delivery: Delivery) -> None:
        """Compare a delivery with what else is known."""

    def reason(self, number: int, delivery: Delivery) -> str:
        """Return why a message comes, if it comes again."""
        if not delivery.redelivered:
            return self.unmarked_reason
        if number in self._acknowledged:
            return "its acknowledgement was not on the next leader"
        return "its consumer returned it" if number in self._returned else "its consumer's connection ended"

    # --- its life -----------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the threads."""
        for thread in self._threads:
            thread.start()

    def pause(self) -> None:
        """Publish nothing new until go_on()."""
        self._pauses.set()

    def go_on(self) -> None:
        """Publish again."""
        self._firsts = {level: firsts[-1:] for level, firsts in self._firsts.items()}
        self._pauses.clear()

    def end(self) -> None:
        """End the threads."""
        self._pauses.set()
        self._ends.set()

    @property
    def missing(self) -> set[int]:
        """What was confirmed and not consumed yet."""
        return self.confirmed - self.seen

    def check(self) -> list[str]:
        """Return what is wrong, once nothing moves any more."""
        found = [*self.wrong]
        if missing := self.missing:
            found.append(f"lost {len(missing)}: {sorted(missing)[:20]}")
        for level, firsts in self._firsts.items():
            kept = [number for number in firsts if number in self.confirmed]
            late = [later for earlier, later in pairwise(kept) if later < earlier]
            if self.is_ordered and late:
                found.append(f"reordered at priority {level}: {late[:20]}")
        return found

    def _repeat(self, work: Callable[[Connection], None]) -> None:
        while not self._ends.is_set():
            try:
                node = self.random.choice(self.nodes)
                connection = Connection(f"amqp://guest:guest@127.0.0.1:{node.port}", timeout=_TIMEOUT)
                try:
                    work(connection)
                finally:
                    connection.abort()
            except (OSError, HTTPException, ConnectionClosed, ConnectionDropped, ChannelClosed, AssertionError):
                # A connection may end in any way at any time.
                time.sleep(0.05)
            except Exception as error:  # noqa: BLE001 - shown at the end
                self.wrong.append(f"{type(error).__name__}: {error}")
                time.sleep(1)


class PriorityFlow(Flow):
    """A queue with priorities."""

    def level(self, number: int) -> int:
        """Return the priority of a message in its queue."""
        return number * 31 % 4


class StreamFlow(Flow):
    """A stream with a consumer that has a name: it goes on where it was, and an offset has one message forever."""

    is_marked = False
    unmarked_reason = "its offset was not stored, or not on the next leader"

    def __init__(self, name: str, nodes: Sequence[Node], seed: int) -> None:
        super().__init__(
            name, nodes, seed, ("x-queue-type", "S", "stream"), ("x-stream-max-segment-size-bytes", "l", 500_000),
            ("x-max-length-bytes", "l", 10_000_000),
        )  # fmt: skip
        self._places: dict[int, int] = {}
        self._reached = 0

    def begin_to_consume(self, channel: Channel) -> None:
        """Consume by a name."""
        name: Triple = ("x-stream-consumer-name", "S", "reader")
        channel.consume(self.name, arguments=[name, *([] if self._reached else [("x-stream-offset", "S", "first")])])

    def take(self, channel: Channel, number: int, delivery: Delivery) -> bool:
        """Answer a delivery."""
        channel.ack(delivery.delivery_tag)
        return True

    def look_at(self, number: int, delivery: Delivery) -> None:
        """Compare the message of an offset with the one that was there, and the offset with the last one."""
        at = offset(delivery)
        if (before := self._places.setdefault(at, number)) != number:
            self.wrong.append(f"offset {at} was {before} and is {number}")
        # A loss of power leaves gaps of what was not confirmed.
        if at > self._reached and any(each in self._places for each in range(self._reached, at)):
            self.wrong.append(f"offset {at} comes after {self._reached - 1}")
        self._reached = max(self._reached, at + 1)


class DelayedFlow(Flow):
    """Messages that wait in their exchange."""

    is_marked = False
    unmarked_reason = "it was due when a leader ended"
    is_ordered = False
    _DELAYS: Final = (1, 50, 500, 2000)

    def declare(self, channel: Channel) -> None:
        """Declare exchange and queue."""
        inner: list[Triple] = [("x-delayed-type", "S", "direct")]
        channel.exchange_declare("later", "x-delayed-message", durable=True, arguments=inner)
        super().declare(channel)
        channel.queue_bind(self.name, "later", self.name)

    def target(self) -> tuple[str, str]:
        """Return exchange and routing key."""
        return "later", self.name

    def properties(self, number: int) -> dict[str, Any]:
        """Return what a message has beside its body."""
        return {"delivery_mode": 2, "headers": [("x-delay", "l", self.random.choice(self._DELAYS))]}


class DeduplicatedFlow(Flow):
    """Every message is published until it is confirmed, and comes once."""

    is_marked = False
    unmarked_reason = "it was stored, and its value was not remembered"
    is_ordered = False

    def __init__(self, name: str, nodes: Sequence[Node], seed: int) -> None:
        super().__init__(name, nodes, seed)
        self._again: list[int] = []

    def declare(self, channel: Channel) -> None:
        """Declare exchange and queue."""
        arguments: list[Triple] = [("x-cache-size", "I", 1_000_000), ("x-cache-persistence", "S", "disk")]
        channel.exchange_declare("once", "x-message-deduplication", durable=True, arguments=arguments)
        super().declare(channel)
        channel.queue_bind(self.name, "once")

    def target(self) -> tuple[str, str]:
        """Return exchange and routing key."""
        return "once", ""

    def properties(self, number: int) -> dict[str, Any]:
        """Return what a message has beside its body."""
        return {"delivery_mode": 2, "headers": [("x-deduplication-header", "l", number)]}

    def _next(self) -> int:
        return self._again.pop() if self._again else super()._next()

    def not_confirmed(self, numbers: Sequence[int]) -> None:
        """Publish them again."""
        self._again += numbers


class DeadLetterFlow(Flow):
    """Each message is rejected by a consumer, and consumed as a dead letter."""

    is_marked = False
    unmarked_reason = "it was dead-lettered twice when a leader ended"

    def others(self) -> list[Callable[[Connection], None]]:
        """Reject all the time."""
        return [self._reject]

    @property
    def _source(self) -> str:
        return f"{self.name}-source"

    def declare(self, channel: Channel) -> None:
        """Declare both queues."""
        letters: list[Triple] = [("x-dead-letter-exchange", "S", ""), ("x-dead-letter-routing-key", "S", self.name)]
        channel.queue_declare(self._source, durable=True, arguments=letters)
        super().declare(channel)

    def target(self) -> tuple[str, str]:
        """Return exchange and routing key."""
        return "", self._source

    def _reject(self, connection: Connection) -> None:
        channel = connection.channel()
        self.declare(channel)
        channel.qos(_PREFETCH)
        channel.consume(self._source, exclusive=True)
        until = time.monotonic() + self.random.uniform(*_STAY)
        while not self._ends.is_set() and time.monotonic() < until:
            with suppress(TimeoutError):
                connection.read(0.3)
            while channel.pending:
                channel.nack(channel.pending.popleft().delivery_tag, requeue=False)


class JobFlow(Flow):
    """Each message is rejected once, and returned by jobs of the broker to the queue where it died."""

    is_marked = False
    unmarked_reason = "it was returned, or dead-lettered, twice when a leader ended"
    is_ordered = False

    def others(self) -> list[Callable[[Connection], None]]:
        """Run jobs all the time."""
        return [self._run_job]

    @property
    def _letters(self) -> str:
        return f"{self.name}-letters"

    def declare(self, channel: Channel) -> None:
        """Declare the queue and that of its dead letters."""
        letters: list[Triple] = [("x-dead-letter-exchange", "S", ""), ("x-dead-letter-routing-key", "S", self._letters)]
        channel.queue_declare(self._letters, durable=True)
        channel.queue_declare(self.name, durable=True, arguments=letters)

    def take(self, channel: Channel, number: int, delivery: Delivery) -> bool:
        """Reject what comes for the first time."""
        if not any(name == "x-death" for name, _, _ in delivery.headers):
            channel.nack(delivery.delivery_tag, requeue=False)
            return False
        return super().take(channel, number, delivery)

    def _run_job(self, connection: Connection) -> None:
        node = self.random.choice(self.nodes)
        api = Management(f"http://guest:guest@127.0.0.1:{node.management_port}", timeout=_TIMEOUT)
        job = api.request("POST", "queues", "/", self._letters, "return-messages", body={})["id"]
        until = time.monotonic() + 30
        while not self._ends.is_set() and time.monotonic() < until:
            time.sleep(0.2)
            state = api.request("GET", "jobs", "/", job)["state"]
            if state == "paused":
                # It ran whenever a leader ended badly, three times in a row.
                api.request("POST", "jobs", "/", job, "resume")
            elif state != "running":
                break


def make_flows(nodes: Sequence[Node], seed: int) -> list[Flow]:
    """Return flows that between them use whatever keeps messages."""
    quorum: list[Triple] = [("x-queue-type", "S", "quorum"), ("x-delivery-limit", "l", 1_000_000)]
    lazy: Triple = ("x-queue-mode", "S", "lazy")
    return [
        Flow("classic", nodes, seed),
        Flow("transactions", nodes, seed + 1, transactions=True),
        Flow("lazy", nodes, seed + 2, lazy),
        PriorityFlow("priority", nodes, seed + 3, ("x-max-priority", "I", 3)),
        Flow("quorum", nodes, seed + 4, *quorum),
        StreamFlow("stream", nodes, seed + 5),
        DelayedFlow("delayed", nodes, seed + 6),
        DeduplicatedFlow("deduplicated", nodes, seed + 7),
        DeadLetterFlow("dead-letters", nodes, seed + 8, lazy),
        JobFlow("jobs", nodes, seed + 9),
    ]
