"""What a broker does on a simulated disk, feature by feature, and what it has promised by then."""

from __future__ import annotations

import random
from collections.abc import Callable, Set
from dataclasses import replace
from functools import partial
from queue import SimpleQueue
from typing import Final

from leveret.broker.core.deduplication.header_values import read_key
from leveret.broker.core.definitions_gate import DefinitionsGate
from leveret.broker.core.exchanges.types import DeduplicatingExchange
from leveret.broker.core.message_stores import MessageStores
from leveret.broker.core.queues.classic_queue import ClassicQueue
from leveret.broker.core.queues.queue import Holder
from leveret.broker.core.scheduling.turn import Turn
from leveret.broker.core.vhosts.recorder import DurableRecorder
from leveret.broker.core.vhosts.routing import route
from leveret.broker.core.vhosts.vhost import VirtualHost
from leveret.policies.stream_arguments import Begin, StreamPlace
from leveret.protocol.field_table import FieldTable, FieldValue
from leveret.storage.definitions_database import DefinitionsDatabase
from leveret.storage.engine import EngineOptions, StorageEngine
from leveret.storage.interface import Entry
from leveret.storage.message import Envelope, Message
from tests.support.delayed import bind, bodies_in, declare_delayed, delayed_envelope
from tests.support.fake_consumer import FakeConsumer
from tests.support.manual_loop import ManualLoop
from tests.support.messages import ENVELOPE
from tests.support.queue_content import arguments, envelope, publish
from tests.support.queues import ManualTimers, declare, settle
from tests.support.segment_stores import Clock
from tests.support.simulated_files import ROOT, SimulatedFiles
from tests.support.streams import StreamBroker, number

_PERSISTENT: Final = Envelope(b"\x00\x01q", bytes(14), True)
#: The time of a broker that starts on what is left, where the clock of the first one stands still.
_LATER: Final = 1_800_000_000_000_000


class SimulatedLoad:
    """Declares what it uses on an empty disk, and works with it turn by turn."""

    engine: StorageEngine

    def __init__(self, options: EngineOptions) -> None:
        self._options = options
        self.confirmed: set[bytes] = set()

    def turn(self, rng: random.Random) -> None:
        """Do something, and end the turn."""
        raise NotImplementedError

    def missing(self, files: SimulatedFiles) -> Set[bytes]:
        """Start a broker on what is left of the disk; return what was confirmed, has to be there and is not."""
        raise NotImplementedError

    def stop(self) -> None:
        """Stop the broker."""
        assert self.engine.close()

    def _maintain(self, rng: random.Random) -> None:
        if rng.random() < 0.1:
            self.engine.housekeeping()
        if rng.random() < 0.05:
            self.engine.checkpoint()


class SimulatedBroker:
    """A virtual host in a data directory; commits end when the time advances.

    Args:
        definitions: Where its definitions are; None if they are not on the disk.
    """

    def __init__(
        self, files: SimulatedFiles, options: EngineOptions, now: float, definitions: DefinitionsDatabase | None = None
    ) -> None:
        self.loop = ManualLoop()
        self.loop.now = now
        self._calls: SimpleQueue[Callable[[], None]] = SimpleQueue()
        turn = Turn(self.loop.call_soon)
        self.gate = DefinitionsGate(self.loop.call_later)
        turn.before_writing += [self.gate.write, lambda: self.stores.write()]
        if definitions is not None:
            self.gate.attach(definitions, self._calls.put, turn.end_later)
        timers = ManualTimers(self.loop)
        options = replace(options, when_defined=self.gate.when_written)
        self.engine = StorageEngine(ROOT, self._calls.put, files=files, clock=timers, options=options)
        self.stores = MessageStores(self.engine, turn.end_later, timers.real_call_later, gate=self.gate)
        self.vhost = VirtualHost("v", turn, timers, self.stores, recorder=DurableRecorder("v", self.gate, self.gate))

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self.loop.advance(seconds)
        while not self._calls.empty():
            self._calls.get()()


class QueueLoad(SimulatedLoad):
    """Queues whose messages are settled in any order, some of them late: none is lost, and none comes back."""

    def __init__(self, files: SimulatedFiles, options: EngineOptions) -> None:
        super().__init__(options)
        self._calls: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self.engine = StorageEngine(ROOT, self._calls.put, files=files, clock=Clock(), options=options)
        self._stores = [self.engine.store(self.engine.create_queue(True, {})) for _ in range(6)]
        #: Unacknowledged for long, so that segments become sparse.
        self._held: list[list[Entry]] = [[] for _ in self._stores]
        self._written: set[bytes] = set()
        self._settled: set[bytes] = set()
        #: Settled ones that must not come back.
        self._gone: set[bytes] = set()

    def turn(self, rng: random.Random) -> None:
        for qid, (store, held) in enumerate(zip(self._stores, self._held, strict=True), 1):
            for _ in range(rng.choice((0, 0, 1, 3))):
                body = b"%d.%d:" % (qid, store.next_seq) + b"x" * rng.randrange(200)
                self._written.add(body)
                store.append([Message(_PERSISTENT, body)], len(body))
            entries = store.take(rng.randrange(1, 4), 1 << 20)[0]
            kept = rng.randrange(2)
            store.requeue(entries[:kept])
            leaving = entries[kept:]
            if leaving and rng.random() < 0.1:
                held.append(leaving.pop())
            if len(held) > 8:
                rng.shuffle(held)
                leaving += held[3:]
                del held[3:]
            store.settle(leaving)
            self._settled.update(message.body for _, message, _ in leaving)
        published, settled = set(self._written), set(self._settled)
        assert self.engine.flush() == {}
        self.engine.commit(lambda: self.confirmed.update(published))
        if rng.random() < 0.3:
            self.engine.commit(lambda: self._gone.update(settled), events=True)
        self._maintain(rng)
        while not self._calls.empty():
            self._calls.get()()

    def stop(self) -> None:
        super().stop()
        assert self.confirmed == self._written

    def missing(self, files: SimulatedFiles) -> set[bytes]:
        engine = StorageEngine(ROOT, files=files, clock=Clock(_LATER), options=self._options)
        found = {
            (b"%d.%d" % (queue.qid, seq), message.body)
            for queue in engine.queues.values()
            for seq, message, _ in engine.store(queue).take(1 << 30, 1 << 40)[0]
        }
        assert engine.report.failures == []
        assert all(body.partition(b":")[0] == place for place, body in found), "a message is not where it was"
        bodies = {body for _, body in found}
        assert bodies <= self._written
        assert not self._gone & bodies, "a settled message came back"
        return self.confirmed - self._settled - bodies


#: Delays in milliseconds; a turn takes 10.
_DELAYS: Final = (1, 10, 15, 30, 100, 1000, 60_000)


class _DelayedBroker(SimulatedBroker):
    def __init__(self, files: SimulatedFiles, options: EngineOptions, now: float) -> None:
        super().__init__(files, options, now)
        self.waiting = declare_delayed(self.vhost)
        self.queue: ClassicQueue = declare(self.vhost)
        bind(self.vhost, self.queue)


class DelayedLoad(SimulatedLoad):
    """Messages wait in a delayed exchange, and leave it: none is lost, none is early."""

    def __init__(self, files: SimulatedFiles, options: EngineOptions) -> None:
        super().__init__(options)
        self.broker = _DelayedBroker(files, options, 1000.0)
        self.engine = self.broker.engine
        #: When each is due, by body.
        self._due: dict[bytes, float] = {}
        self._consumed: set[bytes] = set()

    def turn(self, rng: random.Random) -> None:
        broker = self.broker
        for _ in range(rng.choice((0, 1, 3))):
            body, delay = b"%d:" % len(self._due) + b"x" * rng.randrange(200), rng.choice(_DELAYS)
            self._due[body] = broker.loop.now + delay / 1000
            assert broker.waiting.publish([Message(delayed_envelope(delay), body)], len(body)) == 1
        published = set(self._due)
        broker.stores.when_synced(lambda: self.confirmed.update(published))
        broker.advance(0.01)
        self._take(broker, rng.choice((0, 1, 5)))
        if rng.random() < 0.2:
            # Whatever has been written of the event log is synced.
            broker.engine.commit(events=True)
        self._maintain(rng)

    def _take(self, broker: _DelayedBroker, count: int) -> None:
        for _ in range(count):
            entry = broker.queue.get(None)
            if entry is not None:
                self._check_time([entry[1].body], broker.loop.now)
                self._consumed.add(entry[1].body)

    def _check_time(self, found: list[bytes], now: float) -> None:
        early = [body for body in found if self._due[body] > now + 1e-6]
        assert not early, f"early: {early}"

    def missing(self, files: SimulatedFiles) -> set[bytes]:
        broker = _DelayedBroker(files, self._options, self.broker.loop.now + 0.02)
        assert broker.engine.report.failures == []
        broker.advance(0)
        found = bodies_in(broker.queue)
        self._check_time(found, broker.loop.now)
        known = {body for body in found if body not in self._consumed}
        broker.advance(100)
        later = bodies_in(broker.queue)
        assert [self._due[body] for body in later] == sorted(self._due[body] for body in later)
        assert broker.waiting.count == 0
        return self.confirmed - self._consumed - known - set(later)


_CACHE: Final = (("x-cache-size", FieldValue("l", 50)), ("x-cache-persistence", FieldValue("S", b"disk")))


class _DeduplicatingBroker(SimulatedBroker):
    def __init__(self, files: SimulatedFiles, options: EngineOptions, now: float) -> None:
        super().__init__(files, options, now)
        self.vhost.declare_exchange("d", DeduplicatingExchange.type_name, True, False, False, _CACHE)
        self.queue: ClassicQueue = declare(self.vhost)
        exchange = self.vhost.topology.exchanges["d"]
        assert isinstance(exchange, DeduplicatingExchange)
        self.exchange = exchange
        self.vhost.topology.bind(exchange, self.queue, "", ())

    def publish(self, common: Envelope, body: bytes) -> None:
        for target in route(self.vhost.topology, self.exchange, [""], ()).queues:
            target.publish([Message(common, body)], len(body))

    def remembered(self) -> set[bytes]:
        """Return the keys of all values that are remembered."""
        assert self.exchange.duplicates is not None
        return set(self.exchange.duplicates._values.expiries)


class DeduplicatingLoad(SimulatedLoad):
    """An exchange remembers values on disk: no value is there without its message, no message is lost."""

    def __init__(self, files: SimulatedFiles, options: EngineOptions) -> None:
        super().__init__(options)
        self.broker = _DeduplicatingBroker(files, options, 1000.0)
        self.engine = self.broker.engine
        self._envelopes: dict[bytes, Envelope] = {}
        self._consumed: set[bytes] = set()

    def turn(self, rng: random.Random) -> None:
        broker = self.broker
        for _ in range(rng.choice((0, 1, 3))):
            if self._envelopes and rng.random() < 0.3:
                body = rng.choice(list(self._envelopes))
            else:
                body = b"%d:" % len(self._envelopes) + b"x" * rng.randrange(200)
                value = FieldValue("S", body)
                self._envelopes[body] = envelope(
                    "", exchange="d", persistent=True, headers=(("x-deduplication-header", value),)
                )
            broker.publish(self._envelopes[body], body)
        published = set(self._envelopes)
        broker.stores.when_synced(lambda: self.confirmed.update(published))
        broker.advance(0.01)
        self._take(rng.choice((0, 1, 5)))
        if rng.random() < 0.2:
            # Whatever has been written of the event log is synced.
            broker.engine.commit(events=True)
        self._maintain(rng)

    def _take(self, count: int) -> None:
        for _ in range(count):
            entry = self.broker.queue.get(None)
            if entry is not None:
                self._consumed.add(entry[1].body)

    def missing(self, files: SimulatedFiles) -> set[bytes]:
        broker = _DeduplicatingBroker(files, self._options, self.broker.loop.now + 0.02)
        assert broker.engine.report.failures == []
        broker.advance(0)
        there = self._consumed.union(bodies_in(broker.queue))
        keys = {read_key(common.header): body for body, common in self._envelopes.items()}
        without = {keys[key] for key in broker.remembered()} - there
        assert not without, f"remembered without their messages: {without}"
        return self.confirmed - there


def _dead_letter_to(queue: str, **more: tuple[str, object]) -> FieldTable:
    arguments: dict[str, tuple[str, object]] = {"x-dead-letter-exchange": ("S", b"")}
    arguments["x-dead-letter-routing-key"] = "S", queue.encode()
    arguments |= {f"x-{name.replace('_', '-')}": value for name, value in more.items()}
    return tuple((name, FieldValue(kind, value)) for name, (kind, value) in arguments.items())


_QUORUM: Final = ("S", b"quorum")
#: What is published to, and how messages leave: by limit, by TTL, by reject, at once, by the delivery limit, also after
#: they have waited; and where they go from there. `letters` and `short` are dead-letter queues with dead-letter queues
#: of their own.
_QUEUES: Final[dict[str, FieldTable]] = {
    "limited": _dead_letter_to("letters", max_length=("l", 3)),
    "timed": _dead_letter_to("letters", message_ttl=("l", 20)),
    "rejected": _dead_letter_to("short"),
    "at-once": _dead_letter_to("letters", message_ttl=("l", 0)),
    "quorum": _dead_letter_to("short", queue_type=_QUORUM, delivery_limit=("l", 3)),
    "quorum-tail": (("x-queue-type", FieldValue("S", b"quorum")),),
    "at-least-once": _dead_letter_to(
        "last", queue_type=_QUORUM, overflow=("S", b"reject-publish"), dead_letter_strategy=("S", b"at-least-once")
    ),
    "counted": _dead_letter_to("short", redelivery_limit=("l", 2), max_priority=("l", 2)),
    "retried": _dead_letter_to("short", redelivery_limit=("l", 4), delayed_retry_steps=("S", b"15ms,40ms,20s")),
    "retried-quorum": _dead_letter_to("short", queue_type=_QUORUM, delayed_retry_steps=("S", b"15ms,1h")),
    "letters": _dead_letter_to("last", max_length=("l", 4)),
    "short": _dead_letter_to("letters", max_length=("l", 1)),
    "last": (),
}
_TARGETS: Final = ("letters", "short", "last")


class MovingLoad(SimulatedLoad):
    """Messages move from queue to queue: each that was confirmed is in one of them, or in two."""

    def __init__(self, files: SimulatedFiles, options: EngineOptions) -> None:
        super().__init__(options)
        self._broker = SimulatedBroker(files, options, 1000.0)
        self.engine = self._broker.engine
        vhost = self._broker.vhost
        self._queues = {name: declare(vhost, name, arguments=arguments) for name, arguments in _QUEUES.items()}
        self._published: set[bytes] = set()
        self._consumed: set[bytes] = set()

    def turn(self, rng: random.Random) -> None:
        for name, queue in self._queues.items():
            if name not in _TARGETS:
                for _ in range(rng.choice((0, 0, 1, 3))):
                    self._publish(name, queue, rng)
            self._consume(queue, rng)
        published = set(self._published)
        self._broker.stores.when_synced(lambda: self.confirmed.update(published))
        self._broker.advance(0.01)
        if rng.random() < 0.2:
            # Whatever has been written of the event log is synced.
            self.engine.commit(events=True)
        self._maintain(rng)

    def _publish(self, name: str, queue: ClassicQueue, rng: random.Random) -> None:
        body = b"%d:" % len(self._published) + b"x" * rng.randrange(200)
        common = Envelope(b"\x00" + bytes([len(name)]) + name.encode(), b"\x00\x3c" + bytes(12), True)
        assert queue.publish([Message(common, body)], len(body)) == 1
        self._published.add(body)

    def _consume(self, queue: ClassicQueue, rng: random.Random) -> None:
        """Take some messages, and acknowledge, reject or return them; dead-letter queues only lose what is acked."""
        for _ in range(rng.choice((0, 1, 2))):
            holder = Holder(queue)
            entry = queue.get(holder)
            if entry is None:
                return
            outcome = rng.choice(("acknowledge", "reject", "requeue", "requeue"))
            if outcome == "reject" and queue.settings.dead_letter_exchange is None:
                outcome = "acknowledge"
            if outcome == "acknowledge":
                self._consumed.add(entry[1].body)
            settle(holder, [entry], outcome)  # type: ignore[arg-type]

    def missing(self, files: SimulatedFiles) -> set[bytes]:
        engine = StorageEngine(ROOT, files=files, clock=Clock(_LATER), options=self._options)
        stores = [store for queue in engine.queues.values() for store in queue.stores.values()]
        found = {message.body for store in stores for _, message, _ in store.take(1 << 30, 1 << 40)[0]}
        assert found <= self._published
        assert engine.report.failures == []
        return self.confirmed - self._consumed - found


#: Delays of the first, second and later retries in seconds; a turn takes 0.01.
_STEPS: Final = (0.015, 0.1, 0.03, 60.0)
_RETRIES: Final = {"delayed_retry_steps": ",".join(f"{round(step * 1000)}ms" for step in _STEPS)}


class _RetryBroker(SimulatedBroker):
    def __init__(self, files: SimulatedFiles, options: EngineOptions, now: float, kind: str) -> None:
        super().__init__(files, options, now)
        self.queue: ClassicQueue = declare(self.vhost, arguments=arguments(queue_type=kind, **_RETRIES))

    def drain(self) -> list[str]:
        return [body.decode() for body in bodies_in(self.queue)]


class RetryLoad(SimulatedLoad):
    """Returned messages wait, and come when they are due: none is lost, none is early."""

    def __init__(self, kind: str, files: SimulatedFiles, options: EngineOptions) -> None:
        self._kind = kind
        super().__init__(options)
        self.broker = _RetryBroker(files, options, 1000.0, kind)
        self.engine = self.broker.engine
        self._returns: dict[str, int] = {}
        #: When each waiting message is due, and of which of them that is certain on disk.
        self._due: dict[str, float] = {}
        self._promised: dict[str, float] = {}
        self._consumed: set[str] = set()

    def turn(self, rng: random.Random) -> None:
        broker = self.broker
        for _ in range(rng.choice((0, 1, 3))):
            body = f"{len(self._returns)}:" + "x" * rng.randrange(200)
            self._returns[body] = 0
            assert publish(broker.queue, body, persistent=True) == 1
        published = {body.encode() for body in self._returns}
        broker.stores.when_synced(lambda: self.confirmed.update(published))
        for _ in range(rng.choice((0, 2, 5))):
            self._take(rng)
        # What has returned is in the queue once the copy and the event are synced.
        broker.loop.run()
        self.engine.commit(partial(self._promised.update, dict(self._due)), events=True)
        broker.advance(0.01)
        self._maintain(rng)

    def _take(self, rng: random.Random) -> None:
        holder = Holder(self.broker.queue)
        entry = self.broker.queue.get(holder)
        if entry is None:
            return
        body, now = entry[1].body.decode(), self.broker.loop.now
        assert self._due.pop(body, 0.0) <= now + 1e-6
        self._promised.pop(body, None)
        if rng.random() < 0.3:
            self._consumed.add(body)
            settle(holder, [entry], "acknowledge")
            return
        self._due[body] = now + _STEPS[min(self._returns[body], len(_STEPS) - 1)]
        self._returns[body] += 1
        settle(holder, [entry], "requeue")

    def missing(self, files: SimulatedFiles) -> set[bytes]:
        broker = _RetryBroker(files, self._options, self.broker.loop.now + 0.005, self._kind)
        assert broker.engine.report.failures == []
        broker.advance(0)
        found = broker.drain()
        early = [body for body in found if self._promised.get(body, 0.0) > broker.loop.now + 1e-6]
        assert not early, f"early: {early}"
        broker.advance(100)
        found += broker.drain()
        assert broker.queue.contents.delayed_count == 0
        kept = {body.encode() for body in (*found, *self._consumed)}
        return self.confirmed - kept


_READER: Final = "reader"
_STREAM: Final = (number("x-stream-max-segment-size-bytes", 4000), number("x-max-length-bytes", 30_000))


def _attach(broker: StreamBroker) -> FakeConsumer:
    consumer = FakeConsumer(broker.stream, "c", 1 << 40)
    broker.stream.add_consumer(consumer, StreamPlace(Begin.FIRST))
    return consumer


class StreamLoad(SimulatedLoad):
    """A stream is written and read: what was confirmed or delivered is there, under its offset."""

    def __init__(self, files: SimulatedFiles, options: EngineOptions) -> None:
        super().__init__(options)
        self.broker = StreamBroker(files, _STREAM, options, commits_later=True)
        self.engine = self.broker.engine
        self._published = 0
        self._consumer = _attach(self.broker)
        self._named = FakeConsumer(self.broker.stream, "named", 40)
        self.broker.stream.add_consumer(self._named, StreamPlace(Begin.FIRST), _READER)
        #: Where the name goes on at least: what was there when a message was confirmed.
        self._kept_next = 0

    def turn(self, rng: random.Random) -> None:
        broker = self.broker
        for _ in range(rng.choice((0, 1, 5))):
            count, size = rng.choice((1, 2, 10)), rng.randrange(300)
            messages = [Message(ENVELOPE, b"%d:".ljust(size, b"x") % (self._published + each)) for each in range(count)]
            self._published += count
            sizes = [len(message.body) for message in messages]
            broker.stream.publish_varied(messages, sum(sizes), max(sizes))
        self._acknowledge(rng)
        published, reached = self._published, self._next_of(broker)
        broker.stores.when_synced(lambda: self._confirm(published, reached))
        broker.advance(0.01)
        self._maintain(rng)

    def _acknowledge(self, rng: random.Random) -> None:
        """Acknowledge some of what the named consumer has got, in any order."""
        held = self._named.held
        chosen = rng.sample(held, rng.randint(0, len(held)))
        self._named.held = [entry for entry in held if entry not in chosen]
        settle(self._named, chosen, "acknowledge")
        self._named.unblock()

    def _confirm(self, published: int, reached: int) -> None:
        self.confirmed.update(b"%d:" % each for each in range(published))
        self._kept_next = reached

    @staticmethod
    def _next_of(broker: StreamBroker) -> int:
        known = broker.stream.names.by_name.get(_READER)
        return 0 if known is None else known.next

    def missing(self, files: SimulatedFiles) -> set[bytes]:
        broker = StreamBroker(files, _STREAM, self._options, self.broker.loop.now + 0.02)
        assert broker.engine.report.failures == []
        # A name is not behind what was there when a message was confirmed, and never ahead of what was acknowledged, or
        # removed.
        reached = max(self._next_of(self.broker), broker.stream.stream.first_number)
        assert self._kept_next <= self._next_of(broker) <= reached
        consumer = _attach(broker)
        broker.advance(0)
        found = {seq - 1: message.body.partition(b":")[0] + b":" for seq, message, _ in consumer.held}
        # Every message has the offset of its number, so no offset was used twice.
        assert all(body == b"%d:" % offset for offset, body in found.items())
        before = {seq - 1 for seq, _, _ in self._consumer.held}
        first, end = broker.stream.stream.offsets
        assert end >= max(before, default=-1) + 1
        kept = {offset for offset in before if offset >= first}
        assert kept <= found.keys()
        removed = {b"%d:" % offset for offset in range(first)}
        broker.publish("new")
        assert consumer.held[-1][0] - 1 == end
        return self.confirmed - set(found.values()) - removed
