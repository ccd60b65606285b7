"""Policies put in force on queues and exchanges that exist, and on new ones: the rules 3.2 and 3.4."""

from __future__ import annotations

from typing import Any

import pytest

from leveret.broker.core.messages.routing import route
from leveret.broker.core.queues.queue import Queue
from leveret.broker.core.vhost import VirtualHost
from leveret.broker.core.vhost_policies.policies import effective_definition
from leveret.policies.policy import Policy
from leveret.protocol.field_table import longstr
from tests.support.fake_consumer import FakeConsumer
from tests.support.manual_loop import ManualLoop
from tests.support.queue_content import arguments, contents, deaths, drain, publish
from tests.support.queues import declare, new_vhost
from tests.support.stepping_clock import SteppingClock


def put(vhost: VirtualHost, definition: dict[str, Any], name: str = "p", pattern: str = "^q", **given: Any) -> bool:
    return vhost.policies.set(Policy(name, pattern, definition, **given), operator=False)


def put_operator(vhost: VirtualHost, definition: dict[str, Any], name: str = "p", pattern: str = "^q") -> bool:
    return vhost.policies.set(Policy(name, pattern, definition), operator=True)


def made(vhost: VirtualHost, name: str = "q", **given: Any) -> Queue:
    return declare(vhost, name, arguments=arguments(**given))


class TestWhichIsInForce:
    def test_setting_tells_new_from_replaced_and_clearing_known_from_unknown(self, vhost: VirtualHost) -> None:
        assert put(vhost, {"max-length": 1})
        assert not put(vhost, {"max-length": 1})
        assert not put(vhost, {"max-length": 2})
        assert put_operator(vhost, {"max-length": 1}), "operator policies have names of their own"
        assert vhost.policies.clear("p", operator=False)
        assert not vhost.policies.clear("p", operator=False)
        assert vhost.policies.clear("p", operator=True)

    def test_queues_that_exist_and_new_ones(self, vhost: VirtualHost) -> None:
        old = made(vhost)
        put(vhost, {"max-length": 1})
        new, other = made(vhost, "q2"), made(vhost, "other")
        assert [queue.settings.max_length for queue in (old, new, other)] == [1, 1, None]
        assert [queue.policy and queue.policy.name for queue in (old, new, other)] == ["p", "p", None]

    def test_the_highest_priority_and_no_mixture(self, vhost: VirtualHost) -> None:
        queue = made(vhost)
        put(vhost, {"max-length": 1})
        put(vhost, {"message-ttl": 5}, "high", priority=1)
        assert (queue.settings.max_length, queue.settings.message_ttl) == (None, 5)
        vhost.policies.clear("high", operator=False)
        assert (queue.settings.max_length, queue.settings.message_ttl) == (1, None)

    def test_another_pattern_lets_a_queue_go(self, vhost: VirtualHost) -> None:
        queue = made(vhost)
        put(vhost, {"max-length": 1})
        put(vhost, {"max-length": 1}, pattern="^other$")
        assert queue.settings.max_length is None
        assert queue.policy is None

    def test_a_policy_and_an_operator_policy(self, vhost: VirtualHost) -> None:
        queue = made(vhost, max_length=8)
        put(vhost, {"max-length": 20, "max-length-bytes": 50})
        put_operator(vhost, {"max-length": 3, "message-ttl": 7}, "o")
        assert (queue.settings.max_length, queue.settings.max_length_bytes, queue.settings.message_ttl) == (3, 50, 7)
        assert queue.policy is not None
        assert queue.operator_policy is not None
        assert (queue.policy.name, queue.operator_policy.name) == ("p", "o")
        merged = {"max-length": 3, "max-length-bytes": 50, "message-ttl": 7}
        assert effective_definition(queue.policy, queue.operator_policy) == merged
        vhost.policies.clear("o", operator=True)
        assert queue.settings.max_length == 8
        assert effective_definition(queue.policy, None) == {"max-length": 20, "max-length-bytes": 50}
        assert effective_definition(None, None) == {}

    def test_one_that_does_not_fit_the_type_of_queue(self, vhost: VirtualHost) -> None:
        classic, quorum = made(vhost), made(vhost, "q2", queue_type="quorum")
        put(vhost, {"max-length": 2, "delivery-limit": 3}, "high", priority=9)
        put(vhost, {"max-length": 4}, "low")
        assert (classic.settings.max_length, quorum.settings.max_length) == (4, 2)
        assert quorum.settings.delivery_limit == 3

    def test_a_policy_with_nothing_new_is_shown_all_the_same(self, vhost: VirtualHost) -> None:
        queue = made(vhost, max_length=1)
        put(vhost, {"max-length": 5})
        assert queue.settings.max_length == 1
        assert queue.policy is not None

    def test_exclusive_and_server_named_queues_match_too(self, vhost: VirtualHost) -> None:
        owner = object()
        queue = declare(vhost, "amq.gen-q", owner=owner, auto_delete=True)
        put(vhost, {"max-length": 1}, pattern="")
        assert queue.settings.max_length == 1


class TestTheOrderOfKeys:
    """Rules 3.4.2 to 3.4.6."""

    def test_the_dead_letter_exchange_is_there_before_the_limit(self, vhost: VirtualHost) -> None:
        queue, letters = made(vhost), made(vhost, "d")
        publish(queue, *"abcde")
        put(vhost, {"max-length": 2, "dead-letter-exchange": "", "dead-letter-routing-key": "d"})
        assert contents(queue) == ["d", "e"]
        found = drain(letters)
        assert [letter.body for letter in found] == [b"a", b"b", b"c"]
        assert deaths(found[0]) == [("q", "maxlen", 1)]

    def test_a_first_limit_drops_under_the_overflow_before_it(self, vhost: VirtualHost) -> None:
        queue = made(vhost)
        publish(queue, *"0123456789")
        put(vhost, {"max-length": 4, "overflow": "reject-publish"})
        assert queue.ready_count() == 4
        put(vhost, {"max-length": 2, "overflow": "reject-publish"})
        assert queue.ready_count() == 4
        assert publish(queue, "x") == 0
        assert contents(queue) == list("6789")

    def test_a_large_one_is_dropped_to_the_end(self, vhost: VirtualHost, loop: ManualLoop) -> None:
        queue = made(vhost)
        publish(queue, *["x"] * 20_000)
        put(vhost, {"max-length": 4, "overflow": "reject-publish"})
        loop.run()
        assert queue.ready_count() == 4

    @pytest.mark.parametrize("clear", [True, False])
    def test_without_its_overflow_a_queue_drops_again(self, vhost: VirtualHost, clear: bool) -> None:
        queue = made(vhost, max_length=2)
        put(vhost, {"overflow": "reject-publish"})
        publish(queue, *"ab")
        holder = FakeConsumer(queue, room=2)
        queue.add_consumer(holder)
        queue.deliver()
        publish(queue, *"cd")
        holder.room = 0
        holder.requeue(0, 1)
        assert queue.ready_count() == 4
        if clear:
            vhost.policies.clear("p", operator=False)
        else:
            put(vhost, {"message-ttl": 60_000})
        assert contents(queue) == ["c", "d"]

    def test_both_limits_of_one_policy(self, vhost: VirtualHost) -> None:
        queue = made(vhost)
        publish(queue, "aaa", "bbb", "ccc", "ddd")
        put(vhost, {"max-length": 3, "max-length-bytes": 6})
        assert contents(queue) == ["ccc", "ddd"]

    def test_clearing_a_limit_frees_at_once(self, vhost: VirtualHost) -> None:
        queue = made(vhost)
        put(vhost, {"max-length": 1, "overflow": "reject-publish"})
        assert publish(queue, *"ab") == 1
        vhost.policies.clear("p", operator=False)
        assert publish(queue, *"cd") == 2
        assert contents(queue) == ["a", "c", "d"]

    def test_a_priority_queue_shrinks_from_above(self, vhost: VirtualHost) -> None:
        """Rule 1.6.4."""
        queue = made(vhost, max_priority=5)
        for priority in range(4):
            publish(queue, f"p{priority}", priority=priority)
        put(vhost, {"max-length": 2})
        assert contents(queue) == ["p1", "p0"]

    def test_what_a_consumer_is_about_to_get_is_not_dropped(self, vhost: VirtualHost, loop: ManualLoop) -> None:
        queue = made(vhost)
        consumer = FakeConsumer(queue, room=1)
        queue.add_consumer(consumer)
        publish(queue, *"ab")
        put(vhost, {"max-length": 0})
        loop.run()
        assert consumer.received == ["a"]
        assert queue.counters.dropped["maxlen"] == 1

    def test_unacked_messages_do_not_count(self, vhost: VirtualHost, loop: ManualLoop) -> None:
        queue = made(vhost)
        consumer = FakeConsumer(queue, room=2)
        queue.add_consumer(consumer)
        publish(queue, *"abc")
        loop.run()
        put(vhost, {"max-length": 1})
        assert (queue.ready_count(), queue.unacked_count) == (1, 2)

    def test_quorum_queues_take_the_policys_overflow(self, vhost: VirtualHost) -> None:
        queue = made(vhost, queue_type="quorum", overflow="drop-head", max_length=2)
        put(vhost, {"overflow": "reject-publish"})
        assert publish(queue, *"abc") == 2
        put(vhost, {"overflow": "drop-head", "max-length": 1})
        assert contents(queue) == ["b"]


class TestExchanges:
    def exchange(self, vhost: VirtualHost, name: str = "qx", alternate: str | None = None) -> None:
        given = () if alternate is None else (("alternate-exchange", longstr(alternate)),)
        vhost.declare_exchange(name, "direct", True, False, False, given)

    def reached(self, vhost: VirtualHost, name: str = "qx") -> list[str]:
        """The queues that a message of key k gets to from an exchange."""
        return [queue.name for queue in route(vhost.topology, vhost.topology.exchange(name), ["k"], ()).queues]

    @pytest.fixture(autouse=True)
    def _alternates(self, vhost: VirtualHost) -> None:
        for name in ("one", "two"):
            vhost.declare_exchange(name, "fanout", True, False, False, ())
            queue = made(vhost, f"behind {name}")
            vhost.topology.bind(vhost.topology.exchange(name), queue, "", ())

    def test_an_alternate_exchange_comes_and_goes_with_its_policy(self, vhost: VirtualHost) -> None:
        self.exchange(vhost)
        before = vhost.topology.generation
        assert self.reached(vhost) == []
        put(vhost, {"alternate-exchange": "one"})
        assert vhost.topology.generation > before, "routes that were found before do not hold"
        assert self.reached(vhost) == ["behind one"]
        put(vhost, {"alternate-exchange": "two"})
        assert self.reached(vhost) == ["behind two"]
        vhost.policies.clear("p", operator=False)
        assert self.reached(vhost) == []

    def test_a_new_exchange_has_its_policy_at_once(self, vhost: VirtualHost) -> None:
        put(vhost, {"alternate-exchange": "one"})
        self.exchange(vhost)
        assert self.reached(vhost) == ["behind one"]

    def test_the_argument_comes_first(self, vhost: VirtualHost) -> None:
        self.exchange(vhost, alternate="two")
        put(vhost, {"alternate-exchange": "one"})
        assert self.reached(vhost) == ["behind two"]
        vhost.policies.clear("p", operator=False)
        assert self.reached(vhost) == ["behind two"]

    def test_policies_for_queues_do_not_shadow_those_for_exchanges(self, vhost: VirtualHost) -> None:
        self.exchange(vhost)
        put(vhost, {"alternate-exchange": "one"})
        put(vhost, {"max-length": 1}, "high", priority=9, apply_to="queues")
        assert self.reached(vhost) == ["behind one"]
        put(vhost, {"max-length": 1}, "high", priority=9)
        assert self.reached(vhost) == []

    def test_predeclared_exchanges_match_and_the_default_one_stays_as_it_is(self, vhost: VirtualHost) -> None:
        put(vhost, {"alternate-exchange": "one"}, pattern="")
        assert self.reached(vhost, "amq.direct") == ["behind one"]
        assert self.reached(vhost, "") == []


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
