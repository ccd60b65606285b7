"""Dead letters that branch out from queue to queue: as many as there are ways, in slices of time."""

from __future__ import annotations

import pytest

from leveret.broker.core.queues.holders import Holder
from leveret.broker.core.queues.queue import Queue
from leveret.broker.core.vhosts.vhost import VirtualHost
from leveret.protocol.field_table import FieldValue
from leveret.storage.message import Envelope, Message
from leveret.storage.stores.segment_store import SegmentStore
from tests.support.manual_loop import ManualLoop
from tests.support.queues import declare, new_vhost, settle
from tests.support.stepping_clock import SteppingClock

_LAYERS, _WIDTH = 4, 3


@pytest.fixture
def vhost(loop: ManualLoop) -> VirtualHost:
    return new_vhost(loop, clock=SteppingClock())


def publish(queue: Queue, *bodies: str) -> None:
    """Publish messages, each with an envelope of its own."""
    for body in bodies:
        queue.publish([Message(Envelope(b"\0\1q", b"\0\x3c" + bytes(12)), body.encode())], len(body))


def drop_to(vhost: VirtualHost, name: str, exchange: str, bound_to: str = "") -> Queue:
    """A queue that keeps nothing."""
    arguments = (("x-max-length", FieldValue("I", 0)), ("x-dead-letter-exchange", FieldValue("S", exchange.encode())))
    queue = declare(vhost, name, arguments=arguments)
    if bound_to:
        vhost.topology.bind(vhost.topology.exchanges[bound_to], queue, "", ())
    return queue


@pytest.fixture
def tree(vhost: VirtualHost) -> Queue:
    """The root of a tree of layers of queues, each of which branches out to all of the next; the end keeps all."""
    for layer in range(_LAYERS + 1):
        vhost.declare_exchange(f"x{layer}", "fanout", False, False, False, ())
    for layer in range(_LAYERS):
        for place in range(_WIDTH):
            drop_to(vhost, f"q{layer}.{place}", f"x{layer + 1}", f"x{layer}")
    end = declare(vhost, "end")
    vhost.topology.bind(vhost.topology.exchanges[f"x{_LAYERS}"], end, "", ())
    return drop_to(vhost, "root", "x0")


def test_a_tree_is_published_in_slices(vhost: VirtualHost, tree: Queue, loop: ManualLoop) -> None:
    end = vhost.queues["end"]
    publish(tree, "m")
    assert end.store.ready_count < 10
    arrived = [end.store.ready_count]
    for _ in range(10_000):
        loop.advance(0)
        arrived.append(end.store.ready_count)
        # That of other queues is not held up.
        if end.store.ready_count == _WIDTH**_LAYERS:
            break
    assert arrived[-1] == _WIDTH**_LAYERS
    assert not vhost.dead_letters._work


def test_a_tree_takes_no_more_memory_than_its_height(vhost: VirtualHost, tree: Queue, loop: ManualLoop) -> None:
    waiting = 0
    publish(tree, "m")
    timers = loop._timers
    while timers:
        timer = timers.pop(0)
        timer.callback()
        waiting = max(waiting, sum(map(len, vhost.dead_letters._work.values())))
    assert vhost.queues["end"].store.ready_count == _WIDTH**_LAYERS
    assert waiting <= (_LAYERS + 1) * _WIDTH


def test_a_message_is_gone_as_soon_as_its_letter_has_arrived(vhost: VirtualHost, loop: ManualLoop) -> None:
    """A crash finds it in one of the two places, and no longer in both than it has to be."""
    arguments = (("x-dead-letter-exchange", FieldValue("S", b"")),)
    queue = declare(vhost, "q", arguments=(*arguments, ("x-dead-letter-routing-key", FieldValue("S", b"letters"))))
    letters, holder = declare(vhost, "letters"), Holder(queue)
    publish(queue, *map(str, range(100)))
    held = [entry for entry in (queue.get(holder) for _ in range(100)) if entry is not None]
    settle(holder, held, "reject")
    assert 0 < letters.store.ready_count < 100, "the clock lets no slice do it all"
    store = queue.store
    assert isinstance(store, SegmentStore)
    while store.taken_count:
        assert letters.store.ready_count + store.taken_count == 100
        loop.advance(0)
    assert letters.store.ready_count == 100


def test_others_do_not_wait_for_a_tree(vhost: VirtualHost, tree: Queue, loop: ManualLoop) -> None:
    letters = declare(vhost, "letters")
    arguments = (
        ("x-max-length", FieldValue("I", 0)),
        ("x-dead-letter-exchange", FieldValue("S", b"")),
        ("x-dead-letter-routing-key", FieldValue("S", b"letters")),
    )
    other = declare(vhost, "other", arguments=arguments)
    publish(tree, "m")
    assert vhost.dead_letters._work
    publish(other, "a", "b", "c")
    assert letters.store.ready_count == 3


def test_letters_of_a_queue_keep_their_order(vhost: VirtualHost, loop: ManualLoop) -> None:
    vhost.declare_exchange("x", "fanout", False, False, False, ())
    first, _, _ = drop_to(vhost, "first", "x"), drop_to(vhost, "a", "", "x"), drop_to(vhost, "b", "", "x")
    for name in "ab":
        queue = vhost.queues[name]
        queue.apply_policies(None, None, {"dead-letter-routing-key": f"end {name}"})
        declare(vhost, f"end {name}")
    bodies = [str(number) for number in range(50)]
    publish(first, *bodies)
    loop.advance(1)
    for name in "ab":
        entries, _ = vhost.queues[f"end {name}"].store.take(100, 1 << 30)
        assert [message.body.decode() for _, message, _ in entries] == bodies


def test_only_so_many_cycles_are_remembered(vhost: VirtualHost) -> None:
    for number in range(1100):
        name = f"c{number}"
        queue = drop_to(vhost, name, "")
        publish_to = Envelope(b"\0" + bytes([len(name)]) + name.encode(), b"\0\x3c" + bytes(12))
        queue.publish([Message(publish_to, b"m")], 1)
        vhost.delete_queue(queue)
    assert len(vhost.dead_letters._warned) == 1000


def test_a_deleted_queue_is_forgotten(vhost: VirtualHost) -> None:
    queue = drop_to(vhost, "q", "")
    declare(vhost, "letters")
    queue.apply_policies(None, None, {"dead-letter-routing-key": "letters"})
    publish(queue, "m")
    vhost.delete_queue(queue)
    assert vhost.dead_letters._cached_letter is None
    assert vhost.dead_letters._cache_key is None
