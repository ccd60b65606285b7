"""Policies put in force on queues and exchanges that exist, and on new ones: the rules 3.2 and 3.4."""

from __future__ import annotations

from typing import Any

import pytest

from leveret.broker.core.queues.queue import Queue
from leveret.broker.core.vhost import VirtualHost
from leveret.policies.policy import Policy
from tests.support.fake_consumer import FakeConsumer
from tests.support.manual_loop import ManualLoop
from tests.support.queue_content import arguments, publish
from tests.support.queues import declare, new_vhost
from tests.support.stepping_clock import SteppingClock


def put(vhost: VirtualHost, definition: dict[str, Any], name: str = "p", pattern: str = "^q", **given: Any) -> bool:
    return vhost.policies.set(Policy(name, pattern, definition, **given), operator=False)


def made(vhost: VirtualHost, name: str = "q", **given: Any) -> Queue:
    return declare(vhost, name, arguments=arguments(**given))


class TestTheOrderOfKeys:
    """Rules 3.4.2 to 3.4.6."""

    def test_a_large_one_is_dropped_to_the_end(self, vhost: VirtualHost, loop: ManualLoop) -> None:
        queue = made(vhost)
        publish(queue, *["x"] * 20_000)
        put(vhost, {"max-length": 4, "overflow": "reject-publish"})
        loop.run()
        assert queue.ready_count() == 4

    def test_what_a_consumer_is_about_to_get_is_not_dropped(self, vhost: VirtualHost, loop: ManualLoop) -> None:
        queue = made(vhost)
        consumer = FakeConsumer(queue, room=1)
        queue.add_consumer(consumer)
        publish(queue, *"ab")
        put(vhost, {"max-length": 0})
        loop.run()
        assert consumer.received == ["a"]
        assert queue.counters.dropped["maxlen"] == 1


class TestALargeShrink:
    @pytest.mark.parametrize("overflow", ["drop-head", "reject-publish"])
    def test_it_is_spread_over_turns_and_comes_to_its_end(self, loop: ManualLoop, overflow: str) -> None:
        vhost = new_vhost(loop, clock=SteppingClock())
        queue = made(vhost)
        publish(queue, *["x"] * 10_000)
        put(vhost, {"max-length": 10, "overflow": overflow})
        assert queue.store.ready_count > 5_000, "one turn does not do it all"
        loop.run()
        assert queue.store.ready_count == 10

    def test_who_asks_in_between_sees_the_end(self, vhost: VirtualHost) -> None:
        queue = made(vhost)
        publish(queue, *["x"] * 10_000)
        put(vhost, {"max-length": 10, "overflow": "reject-publish"})
        assert queue.ready_count() == 10
