"""Dead letters on their way from queue to queue: the rules 2.2 to 2.4."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from leveret.broker.core.queues.classic_queue import ClassicQueue
from leveret.broker.core.queues.queue import Holder
from leveret.broker.core.vhosts.vhost import VirtualHost
from leveret.protocol.field_table import FieldValue, find
from leveret.storage.message import Envelope, Message
from leveret.storage.stores.segment_store import SegmentStore
from tests.support.manual_loop import ManualLoop
from tests.support.queue_content import arguments, contents, deaths, drain, headers_of, publish, texts
from tests.support.queues import declare, new_vhost, settle
from tests.support.stepping_clock import SteppingClock


def made(
    vhost: VirtualHost, name: str = "q", dlx: str | None = None, key: str | None = None, **given: Any
) -> ClassicQueue:
    """Declare a queue with these arguments, and with a dead-letter exchange and routing key where they are named."""
    given |= {} if dlx is None else {"dead_letter_exchange": dlx}
    given |= {} if key is None else {"dead_letter_routing_key": key}
    return declare(vhost, name, arguments=arguments(**given))


def exchange(vhost: VirtualHost, name: str, type_name: str, *queues: ClassicQueue, **given: Any) -> None:
    """Declare an exchange and bind queues to it by their names."""
    vhost.declare_exchange(name, type_name, True, False, given.get("internal", False), given.get("arguments", ()))
    for queue in queues:
        vhost.topology.bind(vhost.topology.exchange(name), queue, queue.name, ())


def reject(queue: ClassicQueue, count: int = 1) -> None:
    """Get messages and reject them at once."""
    holder = Holder(queue)
    entries = [queue.get(holder) for _ in range(count)]
    held = [entry for entry in entries if entry is not None]
    assert len(held) == count
    queue.release(holder, held)
    queue.reject(held)


class TestWhatTheySay:
    def test_a_second_of_time_later_the_entry_says_so(self, vhost: VirtualHost, loop: ManualLoop) -> None:
        queue, letters = made(vhost, dlx="", key="d"), made(vhost, "d")
        publish(queue, *"ab")
        reject(queue)
        loop.advance(1)
        reject(queue)
        times = []
        for letter in drain(letters):
            entry = find(headers_of(letter), "x-death")
            assert entry is not None
            times.append(find(entry.value[0].value, "time"))
        assert times == [FieldValue("T", 1000), FieldValue("T", 1001)]


class TestCircles:
    def test_an_exchange_that_does_not_exist_is_logged_once(
        self, vhost: VirtualHost, caplog: pytest.LogCaptureFixture
    ) -> None:
        queue = made(vhost, dlx="nowhere", max_length=1)
        with caplog.at_level(logging.WARNING, "leveret.queue"):
            publish(queue, *"abc")
            publish(queue, *"def")
        assert [record.getMessage() for record in caplog.records] == [
            "dead letters of queue 'q' reach no queue: exchange 'nowhere' does not exist in vhost 'v'"
        ]


class TestChains:
    LENGTH = 500
    #: Enough to tell a stack that grows; a message carries its deaths along, so that the work grows with the square.
    SHORT = 150

    def chain(self, vhost: VirtualHost, length: int = LENGTH, **given: Any) -> list[ClassicQueue]:
        """Queues each of which dead-letters to the next."""
        return [made(vhost, str(at), dlx="", key=str(at + 1), **given) for at in range(length)]

    def test_a_long_one_needs_no_deep_stack(self, vhost: VirtualHost) -> None:
        queues = self.chain(vhost, max_length=0)
        last = made(vhost, str(self.LENGTH))
        publish(queues[0], *"abc")
        found = drain(last)
        assert texts(found) == ["a", "b", "c"]
        assert len(deaths(found[0])) == self.LENGTH
        assert all(queue.counters.dead_lettered["maxlen"] == 3 for queue in queues)

    def test_each_push_out_one_of_the_next(self, vhost: VirtualHost) -> None:
        queues = self.chain(vhost, max_length=1)
        last = made(vhost, str(self.LENGTH))
        for queue in queues:
            publish(queue, f"from {queue.name}")
        publish(queues[0], "new")
        heads = [queue.store.take(1, 1)[0][0][1] for queue in queues]
        assert texts(heads) == ["new", *(f"from {at}" for at in range(self.LENGTH - 1))]
        assert contents(last) == [f"from {self.LENGTH - 1}"]

    def test_by_time(self, vhost: VirtualHost, loop: ManualLoop) -> None:
        queues = self.chain(vhost, self.SHORT, message_ttl=0)
        last = made(vhost, str(self.SHORT))
        publish(queues[0], *"ab")
        loop.run()
        assert contents(last) == ["a", "b"]

    def test_refused_ones_travel_on_too(self, vhost: VirtualHost) -> None:
        queues = self.chain(vhost, self.SHORT, max_length=0, overflow="reject-publish-dlx")
        last = made(vhost, str(self.SHORT))
        assert publish(queues[0], *"ab") == 0
        assert contents(last) == ["a", "b"]


def test_a_target_that_is_deleted_on_the_way_is_passed_over(vhost: VirtualHost, loop: ManualLoop) -> None:
    queue = made(vhost, dlx="x")
    first, second = made(vhost, "1"), made(vhost, "2")
    exchange(vhost, "x", "fanout", first, second)
    publish(queue, *"ab")
    reject(queue)
    first.deleted = True
    reject(queue)
    assert contents(second) == ["a", "b"]


_LAYERS, _WIDTH = 4, 3


@pytest.fixture
def stepping_vhost(loop: ManualLoop) -> VirtualHost:
    return new_vhost(loop, clock=SteppingClock())


def publish_each(queue: ClassicQueue, *bodies: str) -> None:
    """Publish messages, each with an envelope of its own."""
    for body in bodies:
        queue.publish([Message(Envelope(b"\0\1q", b"\0\x3c" + bytes(12)), body.encode())], len(body))


def drop_to(stepping_vhost: VirtualHost, name: str, exchange: str, bound_to: str = "") -> ClassicQueue:
    """A queue that keeps nothing."""
    arguments = (("x-max-length", FieldValue("I", 0)), ("x-dead-letter-exchange", FieldValue("S", exchange.encode())))
    queue = declare(stepping_vhost, name, arguments=arguments)
    if bound_to:
        stepping_vhost.topology.bind(stepping_vhost.topology.exchanges[bound_to], queue, "", ())
    return queue


@pytest.fixture
def tree(stepping_vhost: VirtualHost) -> ClassicQueue:
    """The root of a tree of layers of queues, each of which branches out to all of the next; the end keeps all."""
    for layer in range(_LAYERS + 1):
        stepping_vhost.declare_exchange(f"x{layer}", "fanout", False, False, False, ())
    for layer in range(_LAYERS):
        for place in range(_WIDTH):
            drop_to(stepping_vhost, f"q{layer}.{place}", f"x{layer + 1}", f"x{layer}")
    end = declare(stepping_vhost, "end")
    stepping_vhost.topology.bind(stepping_vhost.topology.exchanges[f"x{_LAYERS}"], end, "", ())
    return drop_to(stepping_vhost, "root", "x0")


def test_a_tree_is_published_in_slices(stepping_vhost: VirtualHost, tree: ClassicQueue, loop: ManualLoop) -> None:
    end = stepping_vhost.queues["end"]
    publish_each(tree, "m")
    assert end.store.ready_count < 10
    arrived = [end.store.ready_count]
    for _ in range(10_000):
        loop.advance(0)
        arrived.append(end.store.ready_count)
        # That of other queues is not held up.
        if end.store.ready_count == _WIDTH**_LAYERS:
            break
    assert arrived[-1] == _WIDTH**_LAYERS
    assert not stepping_vhost.dead_letters._work


def test_a_tree_takes_no_more_memory_than_its_height(
    stepping_vhost: VirtualHost, tree: ClassicQueue, loop: ManualLoop
) -> None:
    waiting = 0
    publish_each(tree, "m")
    timers = loop._timers
    while timers:
        timer = timers.pop(0)
        timer.callback()
        waiting = max(waiting, sum(map(len, stepping_vhost.dead_letters._work.values())))
    assert stepping_vhost.queues["end"].store.ready_count == _WIDTH**_LAYERS
    assert waiting <= (_LAYERS + 1) * _WIDTH


def test_a_message_is_gone_as_soon_as_its_letter_has_arrived(stepping_vhost: VirtualHost, loop: ManualLoop) -> None:
    """A crash finds it in one of the two places, and no longer in both than it has to be."""
    arguments = (("x-dead-letter-exchange", FieldValue("S", b"")),)
    queue = declare(
        stepping_vhost, "q", arguments=(*arguments, ("x-dead-letter-routing-key", FieldValue("S", b"letters")))
    )
    letters, holder = declare(stepping_vhost, "letters"), Holder(queue)
    publish_each(queue, *map(str, range(100)))
    held = [entry for entry in (queue.get(holder) for _ in range(100)) if entry is not None]
    settle(holder, held, "reject")
    assert 0 < letters.store.ready_count < 100, "the clock lets no slice do it all"
    store = queue.store
    assert isinstance(store, SegmentStore)
    while store.taken_count:
        assert letters.store.ready_count + store.taken_count == 100
        loop.advance(0)
    assert letters.store.ready_count == 100


def test_others_do_not_wait_for_a_tree(stepping_vhost: VirtualHost, tree: ClassicQueue, loop: ManualLoop) -> None:
    letters = declare(stepping_vhost, "letters")
    arguments = (
        ("x-max-length", FieldValue("I", 0)),
        ("x-dead-letter-exchange", FieldValue("S", b"")),
        ("x-dead-letter-routing-key", FieldValue("S", b"letters")),
    )
    other = declare(stepping_vhost, "other", arguments=arguments)
    publish_each(tree, "m")
    assert stepping_vhost.dead_letters._work
    publish_each(other, "a", "b", "c")
    assert letters.store.ready_count == 3


def test_letters_of_a_queue_keep_their_order(stepping_vhost: VirtualHost, loop: ManualLoop) -> None:
    stepping_vhost.declare_exchange("x", "fanout", False, False, False, ())
    first, _, _ = (
        drop_to(stepping_vhost, "first", "x"),
        drop_to(stepping_vhost, "a", "", "x"),
        drop_to(stepping_vhost, "b", "", "x"),
    )
    for name in "ab":
        queue = stepping_vhost.queues[name]
        queue.apply_policies(None, None, {"dead-letter-routing-key": f"end {name}"})
        declare(stepping_vhost, f"end {name}")
    bodies = [str(number) for number in range(50)]
    publish_each(first, *bodies)
    loop.advance(1)
    for name in "ab":
        entries, _ = stepping_vhost.queues[f"end {name}"].store.take(100, 1 << 30)
        assert [message.body.decode() for _, message, _ in entries] == bodies


def test_only_so_many_cycles_are_remembered(stepping_vhost: VirtualHost) -> None:
    for number in range(1100):
        name = f"c{number}"
        queue = drop_to(stepping_vhost, name, "")
        publish_to = Envelope(b"\0" + bytes([len(name)]) + name.encode(), b"\0\x3c" + bytes(12))
        queue.publish([Message(publish_to, b"m")], 1)
        stepping_vhost.delete_queue(queue)
    assert len(stepping_vhost.dead_letters._warned) == 1000


def test_a_deleted_queue_is_forgotten(stepping_vhost: VirtualHost) -> None:
    queue = drop_to(stepping_vhost, "q", "")
    declare(stepping_vhost, "letters")
    queue.apply_policies(None, None, {"dead-letter-routing-key": "letters"})
    publish_each(queue, "m")
    stepping_vhost.delete_queue(queue)
    assert stepping_vhost.dead_letters._cached_letter is None
    assert stepping_vhost.dead_letters._cache_key is None
