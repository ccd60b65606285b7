"""Clients of a broker that is a process and ends again and again, feature by feature, and what they were promised."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from tests.crash.broker_load import make_clients
from tests.crash.comparison import End, compare
from tests.crash.delayed_client import DelayedClient
from tests.crash.rounds import Round, Worker
from tests.crash.stream_client import StreamClient
from tests.support.leveret_process import LeveretProcess
from tests.support.management import Management
from tests.support.tables import Triple
from tests.support.wire import Channel, Connection, Delivery

#: Seconds.
PATIENCE: Final = 180.0
#: Maximum number of messages in a queue at the start of a round.
_BACKLOG: Final = 400


class ProcessLoad:
    """Declares what it uses, works in rounds that each end with the broker, and says at last whether all is there."""

    def __init__(self, seed: int) -> None:
        self.confirmed: set[bytes] = set()

    def declare(self, broker: LeveretProcess) -> None:
        """Declare what the clients use."""
        with Connection(broker.url, timeout=PATIENCE) as connection:
            self._declare(connection.channel())

    def _declare(self, channel: Channel) -> None:
        raise NotImplementedError

    def workers(self, broker: LeveretProcess, seed: int) -> Sequence[Worker]:
        """Connect the clients of a round."""
        raise NotImplementedError

    def has_worked(self) -> bool:
        """Return whether there is something to compare."""
        return bool(self.confirmed)

    def meanwhile(self, work: Round, rng: random.Random) -> None:
        """Let the clients work for a while."""
        work.wait(1 << 30, rng.uniform(0.1, 1.0))

    def ended(self) -> None:
        """Note that the broker has ended."""

    def check(self, broker: LeveretProcess, end: End, rng: random.Random) -> None:
        """Compare what is there after such an end."""

    def expect(self, broker: LeveretProcess) -> None:
        """Compare what is there after the last end."""

    def counts(self) -> Counter[str]:
        """Return how many messages were `confirmed`, and other numbers."""
        return Counter(confirmed=len(self.confirmed))

    def close(self) -> None:
        """End what else it has started."""


class Publisher:
    """Publishes with confirms."""

    def __init__(self, url: str, confirm: Callable[[bytes], object]) -> None:
        self._connection = Connection(url, timeout=PATIENCE)
        self.channel = self._connection.channel()
        self.channel.confirm_select()
        self.last = 0
        self._confirm = confirm
        self._tags: dict[int, bytes] = {}

    def publish(self, exchange: str, key: str, body: bytes, *headers: Triple) -> None:
        """Publish a persistent message."""
        self.last += 1
        self._tags[self.last] = body
        properties = {"delivery_mode": 2, "headers": list(headers)} if headers else {"delivery_mode": 2}
        self.channel.publish(exchange, key, body, properties)

    def wait(self, most: int = 0) -> None:
        """Wait until so many messages at most are unconfirmed."""
        self.channel.wait_until(lambda: self._unconfirmed() <= most, "confirms", PATIENCE)

    def _unconfirmed(self) -> int:
        while self.channel.confirms:
            confirm = self.channel.confirms.popleft()
            assert confirm.ack
            tags = [tag for tag in self._tags if tag <= confirm.delivery_tag] if confirm.multiple else []
            for tag in tags or [confirm.delivery_tag]:
                self._confirm(self._tags.pop(tag))
        return len(self._tags)

    def disconnect(self) -> None:
        """End the connection."""
        self._connection.abort()


class Consumer:
    """Consumes a queue, and acknowledges."""

    def __init__(
        self,
        url: str,
        queue: str,
        arrive: Callable[[Delivery], object],
        arguments: Sequence[Triple] = (),
        no_ack: bool = False,
    ) -> None:
        self._connection = Connection(url, timeout=PATIENCE)
        self._channel = self._connection.channel()
        self._channel.qos(200)
        self._arrive = arrive
        self._no_ack = no_ack
        self._channel.consume(queue, no_ack=no_ack, arguments=list(arguments))

    def work(self) -> None:
        """Take a message, if one comes."""
        try:
            delivery = self._channel.next_delivery(0.05)
        except TimeoutError:
            return
        self._arrive(delivery)
        if not self._no_ack:
            assert delivery.delivery_tag is not None
            self._channel.ack(delivery.delivery_tag)

    def disconnect(self) -> None:
        """End the connection."""
        self._connection.abort()


def work_until(worker: Worker, condition: Callable[[], bool]) -> None:
    """Let a client work until a condition is fulfilled, or for 180 s."""
    deadline = time.monotonic() + PATIENCE
    try:
        while not condition() and time.monotonic() < deadline:
            worker.work()
    finally:
        worker.disconnect()


class QueueClients(ProcessLoad):
    """Classic, lazy, priority and quorum queues, dead letters, transactions, purges; compared after each end."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self._clients = make_clients(seed)
        self._found: Counter[str] = Counter()

    def declare(self, broker: LeveretProcess) -> None:
        """They declare when they connect."""

    def workers(self, broker: LeveretProcess, seed: int) -> Sequence[Worker]:
        for client in self._clients:
            client.connect(broker.url, Management(broker.http_url))
        return self._clients

    def has_worked(self) -> bool:
        return bool(self.counts()["confirmed"])

    def meanwhile(self, work: Round, rng: random.Random) -> None:
        work.wait(rng.randrange(5, 300))

    def check(self, broker: LeveretProcess, end: End, rng: random.Random) -> None:
        self._found += compare(broker.url, self._clients, rng, _BACKLOG, end, are_returned=end is End.STOP)

    def counts(self) -> Counter[str]:
        return sum((Counter(client.counts) for client in self._clients), self._found)


class OneClient(ProcessLoad):
    """A client with delayed messages or a stream, which compares after each end."""

    def __init__(self, make: Callable[[int], DelayedClient | StreamClient], seed: int) -> None:
        super().__init__(seed)
        self._client = make(seed)

    def declare(self, broker: LeveretProcess) -> None:
        """It declares when it connects."""

    def workers(self, broker: LeveretProcess, seed: int) -> Sequence[Worker]:
        self._client.connect(broker.url, Management(broker.http_url))
        return [self._client]

    def has_worked(self) -> bool:
        return bool(self._client.confirmed)

    def check(self, broker: LeveretProcess, end: End, rng: random.Random) -> None:
        self._client.compare(broker, end)

    def counts(self) -> Counter[str]:
        return Counter({name.partition(": ")[2]: count for name, count in self._client.counts.items()})


class DeduplicatingClients(ProcessLoad):
    """An exchange drops duplicates: no confirmed message is there twice, none is missing. Bodies are the values."""

    _QUEUE: Final = "once"
    EXCHANGE: Final = "deduplicating"

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        #: Those of all that were published which have had no confirm yet; their publisher cannot know whether they are
        #: there, so it has to publish them again.
        self.unconfirmed: set[bytes] = set()
        self._doubtful: set[bytes] = set()
        #: Those with a confirm, in its order.
        self.known: list[bytes] = []
        self.following = 0

    def _declare(self, channel: Channel) -> None:
        arguments = [("x-cache-size", "I", 1_000_000), ("x-cache-persistence", "S", "disk")]
        channel.exchange_declare(self.EXCHANGE, "x-message-deduplication", durable=True, arguments=arguments)
        channel.queue_declare(self._QUEUE, durable=True)
        channel.queue_bind(self._QUEUE, self.EXCHANGE)

    def workers(self, broker: LeveretProcess, seed: int) -> Sequence[Worker]:
        return [_RepeatingPublisher(broker.url, self, seed)]

    def confirm(self, body: bytes) -> None:
        """Note a confirm."""
        if body in self.unconfirmed:
            self.unconfirmed.discard(body)
            self.confirmed.add(body)
            self.known.append(body)

    def ended(self) -> None:
        self._doubtful |= self.unconfirmed

    def expect(self, broker: LeveretProcess) -> None:
        with Connection(broker.url, timeout=PATIENCE) as connection:
            channel = connection.channel()
            count = channel.queue_declare(self._QUEUE, passive=True).message_count
            channel.consume(self._QUEUE, no_ack=True)
            found = Counter(delivery.body for delivery in channel.deliveries(count))
        assert self.confirmed <= found.keys()
        assert {body for body, times in found.items() if times > 1} <= self._doubtful


class _RepeatingPublisher(Publisher):
    """Publishes new messages, and some again that were confirmed; first those that had no confirm at the last end."""

    def __init__(self, url: str, load: DeduplicatingClients, seed: int) -> None:
        super().__init__(url, load.confirm)
        self._load = load
        self._rng = random.Random(seed)
        self._again = sorted(load.unconfirmed)

    def work(self) -> None:
        load, rng = self._load, self._rng
        while self._again:
            self._send(self._again.pop())
        for _ in range(rng.randrange(1, 20)):
            if load.known and rng.random() < 0.3:
                self._send(rng.choice(load.known))
            else:
                load.unconfirmed.add(body := b"%d" % load.following)
                load.following += 1
                self._send(body)
        self.wait(50)

    def _send(self, body: bytes) -> None:
        self.publish(self._load.EXCHANGE, "", body, ("x-deduplication-header", "S", body), ("n", "I", self.last))


class RetryClients(ProcessLoad):
    """Returned messages wait: none is lost, none is early. Bodies are numbers."""

    QUEUES: Final = ("c", "q")
    MARKER: Final = "marker"
    #: The delay of each return, in seconds.
    DELAY: Final = 0.4

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.published = 0
        self.done: set[bytes] = set()
        #: Number of returns that are certain.
        self.returned = 0
        #: Earliest time of messages that certainly wait, by the clock of time.monotonic().
        self.waits_until: dict[bytes, float] = {}
        #: Messages that may be there twice: their return, or their end, was interrupted by an end of the broker.
        self._unsure: set[bytes] = set()
        self._early: set[bytes] = set()
        self._workers: list[_RetryWorker] = []

    def _declare(self, channel: Channel) -> None:
        steps: Triple = ("x-delayed-retry-steps", "S", f"{round(self.DELAY * 1000)}ms")
        quorum: list[Triple] = [("x-queue-type", "S", "quorum"), ("x-delivery-limit", "I", -1)]
        for queue, arguments in zip(self.QUEUES, (list[Triple](), quorum), strict=True):
            channel.queue_declare(queue, durable=True, arguments=[*arguments, steps])
        channel.queue_declare(self.MARKER, durable=True, arguments=[("x-max-length", "I", 1)])

    def workers(self, broker: LeveretProcess, seed: int) -> Sequence[Worker]:
        self._workers = [_RetryWorker(broker.url, self, seed)]
        return self._workers

    def has_worked(self) -> bool:
        return bool(self.confirmed and self.returned)

    def meanwhile(self, work: Round, rng: random.Random) -> None:
        work.wait(1 << 30, rng.uniform(0.2, 1.5))

    def ended(self) -> None:
        now = time.monotonic()
        for worker in self._workers:
            self._unsure.update(worker.settled())
        # They were due: the broker was about to write that they wait no more.
        self._unsure.update(body for body, until in self.waits_until.items() if until <= now)

    def arrive(self, body: bytes) -> None:
        """Note a delivery."""
        if time.monotonic() < self.waits_until.pop(body, 0.0) and body not in self._unsure:
            self._early.add(body)

    def expect(self, broker: LeveretProcess) -> None:
        work_until(_RetryWorker(broker.url, self, None), lambda: self.confirmed <= self.done)
        assert self.returned
        assert self.confirmed <= self.done
        assert not self._early

    def counts(self) -> Counter[str]:
        return super().counts() + Counter(returned=self.returned, unsure=len(self._unsure))


class _RetryWorker(Publisher):
    """Publishes, acknowledges and returns; without a seed it only acknowledges."""

    def __init__(self, url: str, load: RetryClients, seed: int | None) -> None:
        super().__init__(url, lambda body: load.confirmed.add(body) if body else None)
        self._load = load
        self._rng = None if seed is None else random.Random(seed)
        self._returning: dict[bytes, float] = {}
        self._acknowledged: list[bytes] = []
        self.channel.qos(30)
        for queue in load.QUEUES:
            self.channel.consume(queue)

    def settled(self) -> Iterable[bytes]:
        """Return what has been settled since it was last certain what is on disk."""
        return [*self._returning, *self._acknowledged]

    def work(self) -> None:
        """Do something with some messages, and wait until it is on disk."""
        if self._rng is not None:
            for _ in range(self._rng.randrange(10)):
                self.publish("", self._rng.choice(self._load.QUEUES), b"%d" % self._load.published)
                self._load.published += 1
            self.wait()
        for _ in range(30):
            if not self._receive():
                break
        self._make_certain()

    def _receive(self) -> bool:
        try:
            delivery = self.channel.next_delivery(0.02)
        except TimeoutError:
            return False
        tag, body = delivery.delivery_tag, delivery.body
        assert tag is not None
        self._load.arrive(body)
        if self._rng is None or self._rng.random() < 0.4:
            self._load.done.add(body)
            self._acknowledged.append(body)
            self.channel.ack(tag)
            return True
        self._returning[body] = time.monotonic() + self._load.DELAY
        if self._rng.random() < 0.5:
            self.channel.nack(tag)
        else:
            self.channel.reject(tag)
        return True

    def _make_certain(self) -> None:
        """Wait until what has returned is on disk, and only where it waits."""
        for _ in range(2):
            # With the second one, the event of the first turn has been written, too.
            self.publish("", self._load.MARKER, b"")
            self.wait()
        self._load.returned += len(self._returning)
        self._load.waits_until.update(self._returning)
        self._returning.clear()
        self._acknowledged.clear()
