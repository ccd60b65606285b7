"""Delayed retries: returned messages wait, count for limits meanwhile, and come before others when they are due."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest

from leveret.broker.core.delays.schedule import Schedule
from leveret.broker.core.queues.browsing import Browser, Place
from leveret.broker.core.queues.classic_queue import ClassicQueue
from leveret.broker.core.queues.contents import Contents
from leveret.broker.core.queues.queue import Holder
from leveret.broker.core.queues.returns import DelayedReturns
from leveret.broker.core.vhosts.vhost import VirtualHost
from leveret.broker.operations.single_messages import waiting_in
from leveret.policies.policy import Policy
from leveret.protocol.faults import ChannelFault
from leveret.protocol.field_table import FieldValue, find
from leveret.storage.interface import Entry
from tests.support.fake_consumer import FakeConsumer
from tests.support.manual_loop import ManualLoop
from tests.support.queue_content import arguments, contents, deaths, drain, headers_of, publish
from tests.support.queues import ManualTimers, declare, new_vhost
from tests.support.stepping_clock import SteppingClock

KINDS = ("classic", "quorum")
#: How a message returns: arguments of requeue().
REJECT = {"failed": True}
NACK = {"failed": False}


def made(vhost: VirtualHost, name: str = "q", **given: Any) -> ClassicQueue:
    """Declare a queue; retry=all, min=1000 stand for x-delayed-retry-type and -min."""
    for short in ("type", "min", "max", "steps"):
        if short in given:
            given[f"delayed_retry_{short}"] = given.pop(short)
    return declare(vhost, name, arguments=arguments(**given))


def got(queue: ClassicQueue) -> Entry:
    """Get the message at the head, to be settled by the caller."""
    holder = Holder(queue)
    entry = queue.get(holder)
    assert entry is not None
    queue.release(holder, [entry])
    return entry


def returned(queue: ClassicQueue, times: int = 1, **way: bool) -> None:
    """Get and requeue the message at the head, so many times."""
    for _ in range(times):
        queue.requeue([got(queue)], **way)


def figures(queue: ClassicQueue) -> tuple[int, int, int]:
    """Ready, unacked and delayed messages."""
    return queue.store.ready_count, queue.unacked_count, queue.contents.delayed_count


def waits(queue: ClassicQueue, loop: ManualLoop, seconds: float) -> bool:
    """Return whether the delayed messages become ready after this time, not earlier."""
    before = queue.store.ready_count
    loop.advance(seconds - 0.001)
    if queue.store.ready_count != before:
        return False
    loop.advance(0.002)
    return queue.store.ready_count > before


def headers(entry: Entry) -> dict[str, object]:
    found = {name: find(headers_of(entry[1]), f"x-{name}-count") for name in ("delivery", "acquired")}
    return {name: value.value for name, value in found.items() if value is not None}


# -- which returns, and how long ----------------------------------------------------------------------------


@pytest.mark.parametrize("least", [0, -1, "1000", None])
def test_without_a_positive_minimum_nothing_waits(vhost: VirtualHost, least: object) -> None:
    given: dict[str, Any] = {} if least is None else {"min": least}
    queue = made(vhost, queue_type="quorum", type="all", max=5000, **given)
    publish(queue, "a")
    returned(queue)
    assert figures(queue) == (1, 0, 0)


def test_a_message_that_never_failed_shows_no_delivery_count(vhost: VirtualHost, loop: ManualLoop) -> None:
    queue = made(vhost, queue_type="quorum", type="all", min=1000)
    publish(queue, "a")
    returned(queue, **NACK)
    loop.advance(1)
    entry = got(queue)
    assert (headers(entry), entry[2]) == ({"acquired": 1}, True)


# -- what waits ---------------------------------------------------------------------------------------------


def test_a_consumer_gets_them_when_they_are_due(vhost: VirtualHost, loop: ManualLoop) -> None:
    queue = made(vhost, type="all", min=1000)
    consumer = FakeConsumer(queue)
    queue.add_consumer(consumer)
    publish(queue, "a")
    loop.run()
    consumer.requeue(0)
    loop.advance(0.999)
    assert consumer.received == ["a"]
    loop.advance(0.001)
    assert consumer.received == ["a", "a"]
    assert consumer.held[0][2]


def test_steps_of_the_clock_change_nothing(vhost: VirtualHost, loop: ManualLoop) -> None:
    timers = vhost.timers
    assert isinstance(timers, ManualTimers)
    queue = made(vhost, type="all", min=10_000)
    publish(queue, "a")
    returned(queue)
    for step in (3600, -7200):
        timers.set_by += step
        loop.advance(1)
        assert figures(queue) == (0, 0, 1)
    assert waits(queue, loop, 8.0)


@pytest.mark.parametrize("kind", KINDS)
def test_a_dead_letter_has_no_counts(vhost: VirtualHost, loop: ManualLoop, kind: str) -> None:
    queue = made(vhost, queue_type=kind, type="all", min=1000, dead_letter_exchange="", dead_letter_routing_key="d")
    letters = declare(vhost, "d")
    publish(queue, "a")
    returned(queue, **REJECT)
    loop.advance(1)
    queue.reject([got(queue)])
    (letter,) = drain(letters)
    assert find(headers_of(letter), "x-delivery-count") is None
    assert find(headers_of(letter), "x-acquired-count") is None
    assert letter.envelope.delivery_count is None


@pytest.mark.parametrize("kind", KINDS)
def test_the_time_to_live_is_looked_at_after_the_delay(vhost: VirtualHost, loop: ManualLoop, kind: str) -> None:
    given = {"dead_letter_exchange": "", "dead_letter_routing_key": "d"}
    queue = made(vhost, queue_type=kind, type="all", min=10_000, message_ttl=5000, **given)
    letters = declare(vhost, "d")
    publish(queue, "a")
    returned(queue)
    loop.advance(9.9)
    assert (figures(queue), letters.ready_count()) == ((0, 0, 1), 0)
    loop.advance(0.2)
    assert figures(queue) == (0, 0, 0)
    (letter,) = drain(letters)
    assert deaths(letter) == [("q", "expired", 1)]


def test_the_rest_of_the_time_to_live_counts_after_the_delay(vhost: VirtualHost, loop: ManualLoop) -> None:
    queue = made(vhost, type="all", min=2000, message_ttl=5000)
    publish(queue, "a")
    returned(queue)
    loop.advance(4.9)
    assert figures(queue) == (1, 0, 0)
    loop.advance(0.2)
    assert figures(queue) == (0, 0, 0)
    assert +queue.counters.dropped == {"expired": 1}


def test_what_is_left_of_the_time_to_live_is_noted_for_the_delay_only(vhost: VirtualHost, loop: ManualLoop) -> None:
    queue = made(vhost, type="all", min=1000, message_ttl=5000)
    publish(queue, "a")
    returned(queue)
    loop.advance(1.1)
    assert got(queue)[1].envelope.deferred_expiry == 0


def test_the_property_expiration_stays_over_the_delay(vhost: VirtualHost, loop: ManualLoop) -> None:
    queue = made(vhost, type="all", min=2000)
    publish(queue, "a", expiration=60_000)
    returned(queue)
    loop.advance(2.1)
    assert got(queue)[1].envelope.expiration_ms == 60_000


def test_priorities(vhost: VirtualHost, loop: ManualLoop) -> None:
    queue = made(vhost, type="all", min=1000, max_priority=9)
    publish(queue, "low", priority=1)
    returned(queue)
    publish(queue, "high", priority=9)
    returned(queue)
    publish(queue, "other", priority=9)
    publish(queue, "lower", priority=1)
    loop.advance(2)
    assert contents(queue) == ["high", "other", "low", "lower"]


def test_single_active_consumer(vhost: VirtualHost, loop: ManualLoop) -> None:
    single = ("x-single-active-consumer", FieldValue("t", True))
    queue = declare(vhost, arguments=(single, *arguments(delayed_retry_type="all", delayed_retry_min=1000)))
    first, second = FakeConsumer(queue, "first"), FakeConsumer(queue, "second")
    queue.add_consumer(first)
    queue.add_consumer(second)
    publish(queue, "a")
    loop.run()
    first.requeue(0)
    queue.remove_consumer(first)
    loop.advance(1)
    assert (first.received, second.received) == (["a"], ["a"])


# -- limits -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_only_ready_messages_are_dropped(vhost: VirtualHost, loop: ManualLoop, kind: str) -> None:
    queue = made(vhost, queue_type=kind, type="all", min=1000, max_length=2)
    publish(queue, *"ab")
    first, second = got(queue), got(queue)
    publish(queue, *"c")
    queue.requeue([first])
    assert figures(queue) == (1, 0, 1)
    queue.requeue([second])
    loop.run()
    assert figures(queue) == (0, 0, 2), "what is ready is dropped"
    publish(queue, "d")
    loop.run()
    assert figures(queue) == (0, 0, 2), "and what arrives"
    loop.advance(1)
    assert contents(queue) == ["a", "b"]


def test_bytes_count_too(vhost: VirtualHost, loop: ManualLoop) -> None:
    queue = made(vhost, type="all", min=1000, max_length_bytes=10, overflow="reject-publish")
    publish(queue, "123456")
    returned(queue)
    assert publish(queue, "12345") == 0
    assert publish(queue, "1234") == 1


def test_all_that_counts(vhost: VirtualHost, loop: ManualLoop) -> None:
    queue = made(vhost, type="all", min=1000, max_length=3, length_counts="all", overflow="reject-publish")
    publish(queue, *"ab")
    returned(queue)
    held = got(queue)
    queue.delivery.add_unacked(1, 1)
    assert publish(queue, *"cd") == 1
    queue.delivery.remove_unacked([held])


def test_a_limit_that_was_there_before_anything_waited_counts_it(vhost: VirtualHost, loop: ManualLoop) -> None:
    queue = made(vhost, max_length=2, overflow="reject-publish")
    vhost.policies.set(Policy("p", "", {"delayed-retry-type": "all", "delayed-retry-min": 1000}), operator=False)
    publish(queue, *"ab")
    returned(queue)
    returned(queue)
    assert publish(queue, "c") == 0
    vhost.policies.clear("p", operator=False)
    assert publish(queue, "c") == 0, "what waits goes on waiting"
    assert figures(queue) == (0, 0, 2)
    loop.advance(1)
    assert contents(queue) == ["a", "b"]


# -- removing -----------------------------------------------------------------------------------------------


def test_nothing_returns_to_a_deleted_queue(vhost: VirtualHost, loop: ManualLoop) -> None:
    queue = made(vhost, type="all", min=1000)
    publish(queue, *"ab")
    returned(queue)
    assert vhost.delete_queue(queue) == 2
    loop.advance(5)
    again = made(vhost)
    assert again.ready_count() == 0
    assert loop.pending_timers == 0


def alive() -> Counter[type]:
    """Count the objects that make up queues."""
    kinds = (ClassicQueue, Contents, DelayedReturns, Schedule)
    return Counter(type(each) for each in gc.get_objects() if isinstance(each, kinds))


def test_a_deleted_queue_is_freed_at_once(vhost: VirtualHost, loop: ManualLoop) -> None:
    gc.collect()
    before = alive()
    queue = made(vhost, type="all", min=1000)
    publish(queue, *"ab")
    returned(queue, 2)
    assert len(alive() - before) == 4
    gc.disable()
    try:
        vhost.delete_queue(queue)
        del queue
        # The loop keeps cancelled timers until then.
        loop.advance(2)
        assert not alive() - before
    finally:
        gc.enable()


def test_an_unused_queue_expires_with_them(vhost: VirtualHost, loop: ManualLoop) -> None:
    queue = made(vhost, type="all", min=60_000, expires=5000)
    publish(queue, "a")
    returned(queue)
    loop.advance(6)
    assert queue.deleted


class Purger(FakeConsumer):
    """A consumer that purges its queue when it gets something."""

    def deliver(self, entries: Sequence[Entry], body_bytes: int) -> None:
        super().deliver(entries, body_bytes)
        if len(self.runs) == 1:
            self.queue.host.timers.call_later(0, self._purge)

    def _purge(self) -> None:
        assert isinstance(self.queue, ClassicQueue)
        self.queue.purge()


def test_a_purge_in_the_middle_of_their_return(loop: ManualLoop) -> None:
    """Those that have been taken out to be returned are purged, too."""
    vhost = new_vhost(loop, clock=SteppingClock())
    queue = made(vhost, type="all", min=1000)
    publish(queue, *["a"] * 5000)
    returned(queue, 5000)
    purger = Purger(queue, room=1)
    queue.add_consumer(purger)
    loop.advance(1)
    assert 1000 < queue.counters.dropped["purged"] <= 4999
    loop.advance(1)
    assert figures(queue) == (0, 1, 0)
    assert queue.counters.dropped["purged"] == 4999
    publish(queue, "b")
    returned(queue)
    assert waits(queue, loop, 1.0)


def test_with_very_many_priorities_they_are_refused(vhost: VirtualHost) -> None:
    for given in ({"min": 1000}, {"steps": "1s"}):
        with pytest.raises(ChannelFault, match="x-max-priority is above 126"):
            made(vhost, max_priority=127, **given)


def test_steps_are_checked(vhost: VirtualHost) -> None:
    with pytest.raises(ChannelFault, match="expected delays such as 1s,10s,1m, got '1'"):
        made(vhost, steps="1")


# -- settings that change -----------------------------------------------------------------------------------


def test_policies_change_later_returns_only(vhost: VirtualHost, loop: ManualLoop) -> None:
    queue = made(vhost)
    publish(queue, *"abc")
    vhost.policies.set(Policy("p", "", {"delayed-retry-steps": "10s"}), operator=False)
    returned(queue)
    vhost.policies.set(Policy("p", "", {"delayed-retry-type": "all", "delayed-retry-min": 1000}), operator=False)
    returned(queue)
    vhost.policies.clear("p", operator=False)
    returned(queue)
    assert figures(queue) == (1, 0, 2)
    loop.advance(1)
    assert figures(queue) == (2, 0, 1)
    loop.advance(9)
    assert contents(queue) == ["b", "a", "c"]


def test_a_quorum_queue_goes_on_with_the_counts_that_it_finds(vhost: VirtualHost, loop: ManualLoop) -> None:
    queue = made(vhost, queue_type="quorum")
    publish(queue, "a")
    returned(queue, 2)
    vhost.policies.set(Policy("p", "", {"delayed-retry-type": "all", "delayed-retry-min": 1000}), operator=False)
    returned(queue, **NACK)
    loop.advance(2)
    entry = got(queue)
    assert headers(entry) == {"delivery": 2, "acquired": 3}
    vhost.policies.clear("p", operator=False)
    queue.requeue([entry])
    assert headers(got(queue))["delivery"] == 3


# -- looking ------------------------------------------------------------------------------------------------


def browsed(queue: ClassicQueue, most: int, start: Place | None = None) -> list[tuple[str, bool, int]]:
    """Body, whether it is ready, and the due time in seconds, of all messages."""
    browser = Browser(queue, start, most=most)
    found = [each for step in browser.steps() for each in step]
    assert browser.place is None
    return [(each.message.body.decode(), each.is_ready, each.due // 1_000_000) for each in found]


@pytest.mark.parametrize("most", [1, 2, 100])
@pytest.mark.parametrize("priorities", [{}, {"max_priority": 3}])
def test_what_waits_is_looked_at_last(
    vhost: VirtualHost, loop: ManualLoop, most: int, priorities: dict[str, Any]
) -> None:
    queue = made(vhost, steps="2s,1s", **priorities)
    publish(queue, *"abcde")
    returned(queue)
    assert len(browsed(queue, most)) == 5
    returned(queue)
    loop.advance(2)
    returned(queue)
    expected = [("c", True, 0), ("d", True, 0), ("e", True, 0), ("b", True, 0), ("a", False, 1003)]
    assert browsed(queue, most) == expected
    browser = Browser(queue, most=most)
    steps = browser.steps()
    next(steps)
    assert browser.place is not None
    assert browsed(queue, most, browser.place) == expected[min(most, 3) :]
    ready = Browser(queue, ready_only=True, most=most)
    assert sum(len(step) for step in ready.steps()) == 4


@pytest.mark.parametrize("most", [1, 2, 3])
def test_all_that_wait_are_looked_at_in_steps(vhost: VirtualHost, most: int) -> None:
    queue = made(vhost, type="all", min=1000)
    publish(queue, *"abc")
    returned(queue, 3)
    assert [body for body, _, _ in browsed(queue, most)] == ["a", "b", "c"]


def test_a_message_whose_retry_is_not_waited_for_is_ready_at_once(vhost: VirtualHost, loop: ManualLoop) -> None:
    queue = made(vhost, type="all", min=1000)
    waiting, answers = waiting_in(queue), list[bool]()
    waiting.deliver_now(1, answers.append)
    publish(queue, "a")
    returned(queue)
    loop.run()
    for number in (2, 1, 1):
        waiting.deliver_now(number, answers.append)
    assert answers == [False, False, True, False]
    assert figures(queue) == (1, 0, 0)
    assert contents(queue) == ["a"]
