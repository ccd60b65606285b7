"""Keys of header values: what is equal, and that the header is found wherever it stands."""

from __future__ import annotations

import tracemalloc
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from leveret.broker.core.deduplication.header_values import (
    DEDUPLICATION_HEADER,
    KEY_BYTES,
    NEVER,
    RememberedValues,
    read_key,
)
from leveret.broker.core.queues.classic_queue import ClassicQueue
from leveret.broker.core.queues.queue import Holder
from leveret.broker.core.terms import to_term
from leveret.broker.core.vhosts.vhost import VirtualHost
from leveret.broker.operations.single_messages import waiting_in
from leveret.policies.policy import read_policy
from leveret.protocol import properties
from leveret.protocol.field_table import FieldTable, FieldValue, find
from leveret.protocol.header_scan import locate_header
from leveret.protocol.properties import FLAGS, encode_content_header, encode_headers, encode_text
from leveret.storage.interface import Entry
from leveret.storage.message import Message
from tests.support.amqp_strategies import field_values, tables
from tests.support.examples import examples
from tests.support.fake_consumer import FakeConsumer
from tests.support.manual_loop import ManualLoop
from tests.support.queue_content import arguments, contents, envelope, publish
from tests.support.queues import declare, new_vhost
from tests.support.stepping_clock import SteppingClock


def header_with(*table: tuple[str, FieldValue]) -> bytes:
    return encode_content_header(0, {properties.HEADERS: encode_headers(table), properties.REPLY_TO: encode_text("r")})


def key_of(value: FieldValue) -> bytes:
    key = read_key(header_with((DEDUPLICATION_HEADER, value)))
    assert key is not None
    return key


@given(field_values(), field_values())
def test_equal_keys_mean_equal_values(first: FieldValue, second: FieldValue) -> None:
    assert (key_of(first) == key_of(second)) is (_class_of(first) == _class_of(second))
    assert len(key_of(first)) == KEY_BYTES


def _class_of(value: FieldValue) -> object:
    """Return something that is equal for equal values."""
    if value.kind in "AF":
        return repr(value)
    kind = {"S": "S", "x": "S", "f": "d", "d": "d"}.get(value.kind, "I" if value.kind in "bBsuIilLT" else value.kind)
    return kind, to_term(value)


@given(tables(), tables(), st.sets(st.sampled_from([flag for flag, _ in FLAGS if flag != 0x2000])))
def test_the_header_is_found(before: FieldTable, after: FieldTable, flags: set[int]) -> None:
    wanted = FieldValue("S", b"value")
    table = (*before, (DEDUPLICATION_HEADER, wanted), *after)
    widths = {0x1000: b"\x02", 0x0800: b"\x05", 0x0040: bytes(8)}
    values = {flag: widths.get(flag, encode_text(f"\x16{DEDUPLICATION_HEADER}S")) for flag in flags}
    header = encode_content_header(0, {**values, properties.HEADERS: encode_headers(table)})
    first = find(table, DEDUPLICATION_HEADER)
    assert first is not None
    assert read_key(header) == key_of(first)
    without = encode_content_header(0, {**values, properties.HEADERS: encode_headers((*before, *after))})
    if find((*before, *after), DEDUPLICATION_HEADER) is None:
        assert read_key(without) is None


def test_without_headers() -> None:
    assert read_key(encode_content_header(0)) is None
    assert read_key(encode_content_header(0, {properties.REPLY_TO: encode_text(f"\x16{DEDUPLICATION_HEADER}")})) is None
    assert locate_header(header_with(("a", FieldValue("V", None))), b"\x01b") == -1


_KEYS = st.integers(0, 11).map(lambda number: b"%d" % number)
_TTLS = st.one_of(st.just(NEVER), st.integers(1, 40))


class Remembering(RuleBasedStateMachine):
    """The same steps on the values and on a model: expiry by key, in the order in which they were remembered."""

    def __init__(self) -> None:
        super().__init__()
        self.values = RememberedValues()
        self.model: dict[bytes, int] = {}
        self.now = 1

    def _drop_expired_of_model(self) -> None:
        self.model = {key: expiry for key, expiry in self.model.items() if expiry > self.now}

    @rule(key=_KEYS, ttl=_TTLS)
    def add(self, key: bytes, ttl: int) -> None:
        self._drop_expired_of_model()
        assert self.values.has(key, self.now) is (key in self.model)
        if key not in self.model:
            expiry = NEVER if ttl == NEVER else self.now + ttl
            self.values.add(key, expiry)
            self.model[key] = expiry

    @rule(count=st.integers(1, 200), ttl=st.integers(1, 5))
    def add_many(self, count: int, ttl: int) -> None:
        """Values that soon expire, behind others that do not: enough that what is left of them is cleared away."""
        for number in range(count):
            key = b"many %d" % (number % 7)
            if not self.values.has(key, self.now):
                self.values.add(key, self.now + ttl)
            self._drop_expired_of_model()
            self.model.setdefault(key, self.now + ttl)
            self.pass_time(1)
            assert self.values.drop_expired(self.now, 10_000)

    @rule(key=_KEYS)
    def remove(self, key: bytes) -> None:
        self.values.remove(key)
        self.model.pop(key, None)

    @rule(micros=st.integers(1, 30))
    def pass_time(self, micros: int) -> None:
        self.now += micros

    @rule(count=st.integers(0, 5))
    def drop_expired(self, count: int) -> None:
        if self.values.drop_expired(self.now, count):
            self._drop_expired_of_model()
            assert dict(self.values.items()) == self.model
            assert self.values.next_expiry() <= min(self.model.values(), default=NEVER)

    @precondition(lambda self: len(self.values) > 0)
    @rule()
    def drop_oldest(self) -> None:
        while not self.values.drop_expired(self.now, 3):
            pass
        self._drop_expired_of_model()
        if self.model:
            self.values.drop_oldest()
            del self.model[next(iter(self.model))]

    @invariant()
    def same(self) -> None:
        live = {key: expiry for key, expiry in self.values.items() if expiry > self.now}
        assert list(live.items()) == [(key, expiry) for key, expiry in self.model.items() if expiry > self.now]


TestRemembering = Remembering.TestCase


def test_what_is_left_of_values_is_bounded() -> None:
    """Values that expire before older ones leave nothing behind, nor do those that are forgotten before they expire."""
    values = RememberedValues()
    values.add(b"first", NEVER)
    for number in range(20_000):
        key = b"%d" % (number % 3)
        values.add(key, number + 2)
        values.drop_expired(number + 2, 10)
    for number in range(20_000):
        values.add(b"short-lived", 10**9 + number)
        values.remove(b"short-lived")
    tracemalloc.start()
    copied = {name: len(getattr(values, name)) for name in ("_order", "_holes", "_sooner")}
    tracemalloc.stop()
    assert all(length < 3000 for length in copied.values()), copied


def test_the_memory_of_a_value() -> None:
    tracemalloc.start()
    values = RememberedValues()
    for number in range(100_000):
        values.add(number.to_bytes(15, "big"), 10**12 + number)
    used, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert used / 100_000 < 190


HEADER = "x-deduplication-header"
UNIQUE = ("x-message-deduplication", FieldValue("t", True))
_VALUES = st.integers(0, 4)


def send(queue: ClassicQueue, value: int, *texts: str, expiration: int | None = None, priority: int = 0) -> int:
    headers = ((HEADER, FieldValue("I", value)),)
    return publish(queue, *texts, headers=headers, expiration=expiration, priority=priority)


class UniqueQueue(RuleBasedStateMachine):
    """Everything that lets messages in and out, in any order. The body of a message is its value."""

    @initialize(
        limit=st.sampled_from([None, 1, 3]),
        overflow=st.sampled_from(["drop-head", "reject-publish"]),
        letters=st.booleans(),
        priorities=st.booleans(),
    )
    def make(self, limit: int | None, overflow: str, letters: bool, priorities: bool) -> None:
        self.loop = ManualLoop()
        self.vhost = new_vhost(self.loop)
        given = [UNIQUE, ("x-overflow", FieldValue("S", overflow.encode()))]
        if limit is not None:
            given.append(("x-max-length", FieldValue("I", limit)))
        if letters:
            declare(self.vhost, "letters")
            given += [
                ("x-dead-letter-exchange", FieldValue("S", b"")),
                ("x-dead-letter-routing-key", FieldValue("S", b"letters")),
            ]
        if priorities:
            given.append(("x-max-priority", FieldValue("I", 2)))
        self.queue = declare(self.vhost, arguments=tuple(given))
        self.holder = Holder(self.queue)
        self.held: list[Entry] = []
        #: Messages that were unacked when the queue was purged: their values are free.
        self.purged: list[Entry] = []
        self.may_expire = False

    def _in_queue(self) -> Counter[int]:
        """Return the values of ready and unacked messages, by looking at all of them."""
        ready: list[Entry] = []
        store = self.queue.store
        while store.ready_count:
            ready += store.take(100, 1 << 60)[0]
        store.requeue(ready)
        live = [*ready, *[entry for entry in self.held if entry not in self.purged]]
        return Counter(int(entry[1].body) for entry in live)

    @rule(
        value=_VALUES,
        count=st.integers(1, 3),
        expiration=st.sampled_from([None, None, 1000]),
        priority=st.integers(0, 2),
    )
    def publish(self, value: int, count: int, expiration: int | None, priority: int) -> None:
        known = self._in_queue()[value]
        before = self.queue.counters.deduplicated
        self.may_expire = self.may_expire or expiration is not None
        taken = send(self.queue, value, *[str(value)] * count, expiration=expiration, priority=priority)
        if known and not self.may_expire:
            assert taken == count
            assert self.queue.counters.deduplicated == before + count

    @rule(values=st.lists(_VALUES, min_size=1, max_size=6))
    def publish_varied(self, values: list[int]) -> None:
        if self.queue.takes_varied():
            messages = [
                Message(envelope("q", headers=((HEADER, FieldValue("I", value)),)), b"%d" % value) for value in values
            ]
            self.queue.publish_varied(messages, len(messages), 1)

    @precondition(lambda self: self.queue.store.ready_count > 0)
    @rule()
    def get(self) -> None:
        entry = self.queue.get(self.holder)
        if entry is not None:
            self.held.append(entry)

    @rule()
    def get_without_ack(self) -> None:
        self.queue.get(None)

    @precondition(lambda self: len(self.held) > 0)
    @rule(way=st.sampled_from(["ack", "reject", "requeue"]), data=st.data())
    def settle(self, way: str, data: st.DataObject) -> None:
        entry = self.held.pop(data.draw(st.integers(0, len(self.held) - 1)))
        self.queue.release(self.holder, [entry])
        if way == "ack":
            self.queue.acknowledge([entry])
        elif way == "reject":
            self.queue.reject([entry])
        elif entry not in self.purged:
            self.queue.requeue([entry])
        else:
            self.queue.acknowledge([entry])
        self.loop.run()

    @rule()
    def deliver_without_ack(self) -> None:
        consumer = FakeConsumer(self.queue, room=1, no_ack=True)
        self.queue.add_consumer(consumer)
        self.loop.run()
        self.queue.remove_consumer(consumer)

    @rule(seconds=st.sampled_from([0.5, 2.0]))
    def pass_time(self, seconds: float) -> None:
        self.loop.advance(seconds)

    @rule()
    def purge(self) -> None:
        self.queue.purge()
        self.purged = [*self.held]

    @invariant()
    def each_value_is_there_once(self) -> None:
        if not hasattr(self, "queue"):
            return
        found = self._in_queue()
        assert all(count == 1 for count in found.values()), found
        assert len(self.queue.outbox.values) == len(found)


TestUniqueQueue = UniqueQueue.TestCase
TestUniqueQueue.settings = settings(max_examples=examples(60), stateful_step_count=30)


def switch_on(vhost: VirtualHost) -> None:
    definition = {"x-message-deduplication": True}
    vhost.policies.set(read_policy("p", {"pattern": "^q$", "definition": definition, "priority": 0}, False), False)


def test_messages_that_are_there_are_entered_in_slices() -> None:
    loop = ManualLoop()
    vhost = new_vhost(loop, clock=SteppingClock())
    queue = declare(vhost)
    for number in range(3000):
        send(queue, number, str(number))
    holder = Holder(queue)
    holder.taken = [entry for _ in range(5) if (entry := queue.get(holder)) is not None]
    switch_on(vhost)
    values = queue.outbox.values
    assert values.is_incomplete
    # What arrives and leaves meanwhile is right at once.
    assert send(queue, 5000, "new", "again") == 2
    queue.release(holder, holder.taken[:1])
    queue.acknowledge(holder.taken[:1])
    holder.taken = holder.taken[1:]
    while values.is_incomplete:
        loop.advance(0.01)
    assert len(values) == 3000
    assert send(queue, 1, "unacked") == send(queue, 2999, "ready") == 1
    assert queue.counters.deduplicated == 3
    assert send(queue, 0, "free") == 1
    assert len(values) == 3001


def test_a_purge_ends_the_entering() -> None:
    loop = ManualLoop()
    vhost = new_vhost(loop, clock=SteppingClock())
    queue = declare(vhost)
    for number in range(3000):
        send(queue, number, str(number))
    switch_on(vhost)
    loop.run()
    queue.purge()
    loop.advance(1)
    assert (len(queue.outbox.values), queue.outbox.values.is_incomplete) == (0, False)
    vhost.policies.clear("p", False)
    assert send(queue, 1, "1", "2") == 2
    assert contents(queue) == ["1", "2"]


def test_a_value_that_was_there_twice_is_free_when_both_are_gone() -> None:
    loop = ManualLoop()
    vhost = new_vhost(loop)
    queue = declare(vhost)
    send(queue, 7, "1", "2")
    switch_on(vhost)
    loop.advance(1)
    queue.get(None)
    send(queue, 7, "3")
    assert contents(queue) == ["2"]
    send(queue, 7, "4")
    assert contents(queue) == ["4"]


def test_messages_that_wait_for_their_retry_have_their_values() -> None:
    loop = ManualLoop()
    vhost = new_vhost(loop)
    queue = declare(vhost, arguments=arguments(delayed_retry_type="all", delayed_retry_min=1000))
    send(queue, 7, "1")
    holder = Holder(queue)
    entry = queue.get(holder)
    assert entry is not None
    queue.release(holder, [entry])
    queue.requeue([entry])
    assert queue.store.ready_count == 0
    switch_on(vhost)
    loop.advance(0.5)
    send(queue, 7, "2")
    assert queue.store.ready_count == 0
    loop.advance(1)
    send(queue, 7, "3")
    assert contents(queue) == ["1"]
    send(queue, 7, "4")
    assert contents(queue) == ["4"]


def test_a_message_that_a_purge_has_left_unacked_frees_no_value_of_later_ones() -> None:
    queue = declare(new_vhost(ManualLoop()), arguments=(UNIQUE, *arguments(max_priority=2)))
    send(queue, 7, "1", priority=2)
    holder = Holder(queue)
    entry = queue.get(holder)
    assert entry is not None
    queue.purge()
    send(queue, 7, "2", priority=2)
    queue.release(holder, [entry])
    queue.acknowledge([entry])
    send(queue, 7, "3", priority=2)
    assert contents(queue) == ["2"]


@pytest.mark.parametrize("delay", [None, 1000])
def test_a_copy_that_returns_after_a_purge_frees_its_own_value_only(delay: int | None) -> None:
    loop = ManualLoop()
    retry = {} if delay is None else {"delayed_retry_type": "all", "delayed_retry_min": delay}
    queue = declare(new_vhost(loop), arguments=(UNIQUE, *arguments(redelivery_limit=5, **retry)))
    send(queue, 7, "1")
    holder = Holder(queue)
    entry = queue.get(holder)
    assert entry is not None
    queue.purge()
    send(queue, 7, "2")
    queue.release(holder, [entry])
    queue.requeue([entry])
    loop.advance(2)
    # The copy comes first, and leaves; the value is that of the second message, too.
    entry = queue.get(None)
    assert entry is not None
    assert entry[1].body == b"1"
    send(queue, 7, "3")
    assert contents(queue) == ["2"]
    assert len(queue.outbox.values) == 0


def test_messages_without_a_value_are_no_duplicates() -> None:
    queue = declare(new_vhost(ManualLoop()), arguments=(UNIQUE,))
    assert publish(queue, "ab", "ab") == 2
    assert (queue.store.ready_count, queue.store.ready_bytes) == (2, 4)
    assert (len(queue.outbox.values), queue.counters.deduplicated) == (0, 0)


def test_a_cancelled_retry_frees_its_value() -> None:
    loop = ManualLoop()
    vhost = new_vhost(loop)
    given = arguments(delayed_retry_type="all", delayed_retry_min=1000)
    queue = declare(vhost, arguments=(*given, UNIQUE))
    send(queue, 7, "1")
    holder = Holder(queue)
    entry = queue.get(holder)
    assert entry is not None
    queue.release(holder, [entry])
    queue.requeue([entry])
    loop.run()
    waiting = waiting_in(queue)
    assert not waiting.cancel(2)
    assert len(queue.outbox.values) == 1
    assert waiting.cancel(1)
    assert (len(queue.outbox.values), queue.contents.delayed_count) == (0, 0)
    send(queue, 7, "2")
    assert contents(queue) == ["2"]


def test_messages_of_different_sizes_are_taken_up_to_a_number_of_bytes() -> None:
    queue = declare(new_vhost(ManualLoop()), arguments=(UNIQUE,))
    messages = [Message(envelope("q"), bytes(size)) for size in (1, 100, 1)]
    queue.publish_varied(messages, 102, 100)
    entries, taken_bytes = queue.store.take(3, 50)
    assert (len(entries), taken_bytes) == (2, 101)
