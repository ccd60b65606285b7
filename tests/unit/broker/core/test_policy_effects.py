from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest

from leveret.broker.core.policy_effects import (
    Cascade,
    PolicyMatch,
    Preview,
    Reached,
    count_in_force,
    describe_fill,
    describe_gaps,
    explain_queue,
    follow_letters,
    matching_exchanges,
    matching_queues,
    preview_policy,
)
from leveret.broker.core.queues.queue import Drop, Holder
from leveret.broker.core.vhosts.vhost import VirtualHost
from leveret.policies.policy import Policy
from tests.support.manual_loop import ManualLoop
from tests.support.queue_content import arguments, publish
from tests.support.queues import declare, new_vhost


@pytest.fixture
def vhost() -> VirtualHost:
    return new_vhost(ManualLoop())


def test_settings_of_a_queue_with_their_sources(vhost: VirtualHost) -> None:
    queue = declare(vhost, arguments=arguments(max_length=10, queue_mode="default"))
    vhost.policies.set(Policy("user", "^q", {"max-length": 20, "queue-mode": "lazy"}, 1, "queues"), operator=False)
    vhost.policies.set(Policy("weak", "", {"message-ttl": 5}), operator=False)
    vhost.policies.set(Policy("cap", "", {"max-length": 4}), operator=True)
    publish(queue, "a", "b")
    explained = json.loads(json.dumps(explain_queue(queue, vhost.policies)))
    assert explained["arguments"] == {"x-max-length": 10, "x-queue-mode": "default"}
    assert explained["policy"]["name"] == "user"
    assert explained["operator_policy"] == {
        "name": "cap",
        "pattern": "",
        "definition": {"max-length": 4},
        "priority": 0,
        "apply-to": "all",
    }
    weak = {"kind": "policy", "name": "weak", "reason": "'user' has the higher priority (1 against 0)"}
    assert explained["passed_over"] == [weak]
    assert explained["in_force"] == {"max-length": 4, "queue-mode": "default"}
    length = next(setting for setting in explained["settings"] if setting["key"] == "max-length")
    assert (length["argument"], length["policy"], length["operator_policy"]) == (10, 20, 4)
    assert (length["in_force"], length["source"]) == (4, "operator policy")
    assert explained["fill"]["percent"] == 50.0


def test_explained_settings_equal_the_effective_ones(vhost: VirtualHost) -> None:
    queue = declare(vhost, arguments=arguments(max_length=7, message_ttl=9, overflow="reject-publish"))
    vhost.policies.set(Policy("p", "", {"max-length": 3, "overflow": "drop-head", "expires": 60000}), operator=False)
    in_force = explain_queue(queue, vhost.policies)["in_force"]
    settings = queue.settings
    assert in_force == {
        "max-length": settings.max_length,
        "message-ttl": settings.message_ttl,
        "overflow": settings.overflow,
        "expires": settings.expires,
    }


def test_a_queue_without_limits(vhost: VirtualHost) -> None:
    explained = explain_queue(declare(vhost), vhost.policies)
    assert (explained["policy"], explained["operator_policy"], explained["settings"]) == (None, None, [])
    assert explained["fill"]["percent"] is None
    assert explained["fill"]["at_limit"] is None


@pytest.mark.parametrize(
    ("given", "shares", "percent", "at_limit"),
    [
        ({"max_length": 8}, (25.0, None), 25.0, "the oldest messages are dropped"),
        ({"max_length_bytes": 3}, (None, 66.7), 66.7, "the oldest messages are dropped"),
        ({"max_length": 4, "max_length_bytes": 20}, (50.0, 10.0), 50.0, "the oldest messages are dropped"),
        ({"max_length": 2, "overflow": "reject-publish"}, (100.0, None), 100.0, "new messages are refused"),
    ],
)
def test_fill_level(
    vhost: VirtualHost, given: dict[str, Any], shares: tuple[float | None, float | None], percent: float, at_limit: str
) -> None:
    queue = declare(vhost, arguments=arguments(**given))
    publish(queue, "a", "b")
    fill = describe_fill(queue)
    assert (fill["messages_percent"], fill["bytes_percent"]) == shares
    assert (fill["percent"], fill["at_limit"]) == (percent, at_limit)


def test_messages_that_wait_for_their_retry_count_for_limits(vhost: VirtualHost) -> None:
    queue = declare(vhost, arguments=arguments(max_length=4, delayed_retry_type="all", delayed_retry_min=1000))
    publish(queue, "aaa", "b")
    holder = Holder(queue)
    entry = queue.get(holder)
    assert entry is not None
    queue.release(holder, [entry])
    queue.requeue([entry])
    fill = describe_fill(queue)
    assert (fill["messages_ready"], fill["message_bytes_ready"]) == (1, 1)
    assert (fill["messages_counted"], fill["message_bytes_counted"], fill["percent"]) == (2, 4, 50.0)


def test_a_limit_of_0_is_always_reached(vhost: VirtualHost) -> None:
    assert describe_fill(declare(vhost, arguments=arguments(max_length=0)))["percent"] == 100.0


def set_policy(vhost: VirtualHost, name: str, operator: bool = False, **given: Any) -> Policy:
    policy = Policy(name, **{"pattern": "^q", "definition": {"max-length": 5}, **given})
    vhost.policies.set(policy, operator)
    return policy


def covered(vhost: VirtualHost, policy: Policy, operator: bool = False) -> dict[str, PolicyMatch]:
    return {each.subject.name: each for each in matching_queues(vhost, policy, operator) if each is not None}


def test_queues_that_it_is_in_force_on(vhost: VirtualHost) -> None:
    for name in ("q1", "q2", "other"):
        declare(vhost, name)
    found = covered(vhost, set_policy(vhost, "p"))
    assert list(found) == ["q1", "q2"]
    assert all(each.in_force and each.rival is None and each.reason is None for each in found.values())


@pytest.mark.parametrize(
    ("priority", "reason"),
    [
        (1, "'a' has the higher priority (1 against 0)"),
        (0, "'a' has the same priority, and of those the smallest name counts"),
    ],
)
def test_queues_that_it_loses(vhost: VirtualHost, priority: int, reason: str) -> None:
    declare(vhost, "q1")
    declare(vhost, "q2")
    loser = set_policy(vhost, "p")
    set_policy(vhost, "a", pattern="^q1", priority=priority)
    found = covered(vhost, loser)
    assert found["q2"].in_force
    assert (found["q1"].in_force, found["q1"].rival, found["q1"].reason) == (False, "a", reason)


def test_queues_that_it_does_not_fit(vhost: VirtualHost) -> None:
    declare(vhost, "q", arguments=arguments(queue_type="quorum"))
    lazy = covered(vhost, set_policy(vhost, "lazy", definition={"queue-mode": "lazy"}))["q"]
    assert (lazy.in_force, lazy.rival) == (False, None)
    assert lazy.reason == "it has a key that does not fit quorum queues, so none of it applies"
    classic = covered(vhost, set_policy(vhost, "classic", apply_to="classic_queues"))["q"]
    assert (classic.in_force, classic.reason) == (False, "it applies to classic queues")


def test_kinds_do_not_compete(vhost: VirtualHost) -> None:
    declare(vhost, "q")
    policies = {operator: set_policy(vhost, "p", operator, priority=9 * operator) for operator in (False, True)}
    assert all(covered(vhost, policy, operator)["q"].in_force for operator, policy in policies.items())


def test_exchanges(vhost: VirtualHost) -> None:
    vhost.declare_exchange("q", "direct", False, False, False, ())
    declare(vhost, "q1")
    definition = {"alternate-exchange": "amq.fanout"}
    weak = set_policy(vhost, "weak", definition=definition)
    set_policy(vhost, "strong", definition=definition, apply_to="exchanges", priority=1)
    (found,) = [each for each in matching_exchanges(vhost, weak) if each is not None]
    assert (found.subject.name, found.type_name, found.in_force, found.rival) == ("q", "direct", False, "strong")
    assert covered(vhost, vhost.policies.policies["strong"]) == {}
    queues_only = set_policy(vhost, "queues", apply_to="queues")
    assert list(matching_exchanges(vhost, queues_only)) == []


def test_counts(vhost: VirtualHost) -> None:
    for name in ("q1", "q2", "other"):
        declare(vhost, name)
    set_policy(vhost, "p")
    set_policy(vhost, "all", pattern="", priority=-1)
    set_policy(vhost, "cap", operator=True)
    counted: Counter[tuple[str, str, str]] = Counter()
    for _ in count_in_force([vhost], False, counted):
        pass
    exchanges = len(vhost.topology.exchanges)
    assert counted == {("v", "p", "queue"): 2, ("v", "all", "queue"): 1, ("v", "all", "exchange"): exchanges}
    counted.clear()
    for _ in count_in_force([vhost], True, counted):
        pass
    assert counted == {("v", "cap", "queue"): 2}


def gaps(vhost: VirtualHost, policy: Policy) -> str:
    return describe_gaps(policy, [each for each in matching_queues(vhost, policy, False) if each is not None])


def test_where_a_policy_is_not_in_force_is_said(vhost: VirtualHost) -> None:
    for name in ("q1", "q2", "q3"):
        declare(vhost, name)
    bounded = set_policy(vhost, "bounded")
    work = set_policy(vhost, "work", apply_to="classic_queues")
    assert gaps(vhost, bounded) == ""
    assert gaps(vhost, work) == "in force on 0 of 3 queues: 'bounded' comes first"
    set_policy(vhost, "a", pattern="^q1", priority=1)
    assert gaps(vhost, bounded) == "in force on 2 of 3 queues: 'a' comes first"
    assert gaps(vhost, work) == "in force on 0 of 3 queues: 'a', 'bounded' come first"
    declare(vhost, "q4", arguments=arguments(queue_type="quorum"))
    assert "of 3 queues" in gaps(vhost, work), "it is not for quorum queues"
    lazy = set_policy(vhost, "lazy", pattern="^q4", definition={"queue-mode": "lazy"})
    assert gaps(vhost, lazy).endswith("'bounded' comes first")


def preview(
    vhost: VirtualHost, definition: dict[str, Any], operator: bool = False, name: str = "new", **given: Any
) -> dict[str, Preview]:
    policy = Policy(name, "^q", definition, **given)
    return {found.queue.name: found for found in preview_policy(vhost, policy, operator)}


def test_only_queues_that_it_matches_are_looked_at(vhost: VirtualHost) -> None:
    for name in ("q1", "q2", "other"):
        declare(vhost, name)
    assert list(preview(vhost, {"max-length": 1})) == ["q1", "q2"]
    assert not preview(vhost, {"max-length": 1}, apply_to="exchanges")
    assert not preview(vhost, {"max-age": "1h"}), "a key that does not fit classic queues"


def test_nothing_is_done(vhost: VirtualHost) -> None:
    queue = declare(vhost)
    publish(queue, "a", "b", "c")
    assert preview(vhost, {"max-length": 1})["q"].drop == Drop(2, 2, False)
    assert (queue.store.ready_count, queue.policy, queue.settings.max_length) == (3, None, None)


@pytest.mark.parametrize("definition", [{"max-length": 1}, {"max-length": 3}, {"max-length": 0}, {"max-length": 9}])
def test_what_it_says_is_what_happens(vhost: VirtualHost, definition: dict[str, int]) -> None:
    queue = declare(vhost)
    publish(queue, *"abcde")
    found = preview(vhost, definition)["q"]
    vhost.policies.set(Policy("new", "^q", definition), operator=False)
    assert found.drop.messages == 5 - queue.ready_count()
    assert found.drop.body_bytes == 5 - queue.store.ready_bytes


def test_limits_of_bytes_give_an_estimate(vhost: VirtualHost) -> None:
    queue = declare(vhost)
    publish(queue, "aaaa", "bbbb", "cccc")
    assert preview(vhost, {"max-length-bytes": 9})["q"].drop == Drop(1, 3, True)
    assert preview(vhost, {"max-length-bytes": 0})["q"].drop == Drop(3, 12, True)
    assert preview(vhost, {"max-length-bytes": 12})["q"].drop == Drop(0, 0, False)
    assert preview(vhost, {"max-length-bytes": 9, "max-length": 1})["q"].drop == Drop(2, 8, False)


def test_a_queue_that_refuses_drops_nothing(vhost: VirtualHost) -> None:
    queue = declare(vhost, arguments=arguments(overflow="reject-publish"))
    publish(queue, *"abc")
    assert preview(vhost, {"max-length": 1})["q"].drop == Drop(0, 0, False)


def test_a_queue_that_begins_to_refuse_drops_for_the_last_time(vhost: VirtualHost) -> None:
    queue = declare(vhost)
    publish(queue, *"abc")
    definition = {"max-length": 1, "overflow": "reject-publish"}
    assert preview(vhost, definition)["q"].drop.messages == 2
    vhost.policies.set(Policy("new", "^q", definition), operator=False)
    assert queue.ready_count() == 1


class TestRivals:
    def test_a_policy_of_higher_priority_stays_in_force(self, vhost: VirtualHost) -> None:
        publish(declare(vhost), *"abc")
        vhost.policies.set(Policy("strong", "^q", {"max-length": 9}, priority=5), operator=False)
        found = preview(vhost, {"max-length": 1})["q"]
        assert (found.is_in_force, found.rival, found.changes, found.drop.messages) == (False, "strong", {}, 0)

    def test_one_of_lower_priority_gives_way(self, vhost: VirtualHost) -> None:
        declare(vhost)
        vhost.policies.set(Policy("weak", "^q", {"max-length": 9, "message-ttl": 5}), operator=False)
        found = preview(vhost, {"max-length": 1}, priority=1)["q"]
        assert (found.is_in_force, found.rival) == (True, "weak")
        assert found.changes == {"max-length": (9, 1), "message-ttl": (5, None)}

    def test_its_own_earlier_form_is_no_rival(self, vhost: VirtualHost) -> None:
        declare(vhost)
        vhost.policies.set(Policy("new", "^q", {"max-length": 9}), operator=False)
        found = preview(vhost, {"max-length": 1})["q"]
        assert (found.is_in_force, found.rival, found.changes) == (True, None, {"max-length": (9, 1)})

    def test_operator_policies_are_rivals_of_their_kind_only(self, vhost: VirtualHost) -> None:
        publish(declare(vhost), *"abc")
        vhost.policies.set(Policy("user", "^q", {"max-length": 2}, priority=9), operator=False)
        found = preview(vhost, {"max-length": 1}, operator=True)["q"]
        assert (found.is_in_force, found.rival, found.drop.messages) == (True, None, 1)
        assert preview(vhost, {"max-length": 5}, operator=True)["q"].changes == {}, "the smaller one counts"


class TestChangedPolicies:
    @pytest.mark.parametrize("rival", [None, 2])
    def test_a_queue_that_loses_it_is_shown(self, vhost: VirtualHost, rival: int | None) -> None:
        queue = declare(vhost)
        publish(queue, *"abc")
        vhost.policies.set(Policy("new", ".*", {"max-length": 9}), operator=False)
        if rival is not None:
            vhost.policies.set(Policy("rival", "", {"max-length": rival}, priority=-1), operator=False)
        policy = Policy("new", "^other", {"max-length": 9})
        (found,) = preview_policy(vhost, policy, operator=False)
        assert (found.matches, found.is_in_force) == (False, False)
        assert found.rival == (None if rival is None else "rival")
        assert found.changes == {"max-length": (9, rival)}
        assert found.drop.messages == (0 if rival is None else 1)
        vhost.policies.set(policy, operator=False)
        assert queue.ready_count() == 3 - found.drop.messages

    def test_a_queue_where_it_loses_its_priority(self, vhost: VirtualHost) -> None:
        publish(declare(vhost), *"abc")
        vhost.policies.set(Policy("rival", "", {"max-length": 1}, priority=1), operator=False)
        vhost.policies.set(Policy("new", "", {"max-length": 9}, priority=2), operator=False)
        found = preview(vhost, {"max-length": 9}, priority=0)["q"]
        # What the rival has done already cannot be undone; nothing more is dropped if its limit was in force before.
        assert (found.matches, found.is_in_force, found.rival) == (True, False, "rival")
        assert found.changes == {"max-length": (9, 1)}


class TestDeadLetters:
    @pytest.mark.parametrize(("exchange", "there"), [("amq.fanout", True), ("", True), ("none", False)])
    def test_they_go_where_the_new_policy_says(self, vhost: VirtualHost, exchange: str, there: bool) -> None:
        publish(declare(vhost), *"abc")
        found = preview(vhost, {"max-length": 1, "dead-letter-exchange": exchange})["q"]
        assert found.drop.messages == 2
        assert found.dead_letters_to == (exchange if there else None)

    def test_without_a_dead_letter_exchange_they_are_gone(self, vhost: VirtualHost) -> None:
        publish(declare(vhost), *"abc")
        assert preview(vhost, {"max-length": 1})["q"].dead_letters_to is None


def cascade(vhost: VirtualHost, definition: dict[str, Any]) -> Cascade:
    steps = follow_letters(vhost, list(preview(vhost, definition).values()))
    while True:
        try:
            next(steps)
        except StopIteration as end:
            found: Cascade = end.value
            return found


def test_what_dead_letters_drop_in_their_queues_is_what_happens(vhost: VirtualHost) -> None:
    last = declare(vhost, "q.last")
    dead = declare(vhost, "q.dead", arguments=arguments(dead_letter_exchange="", dead_letter_routing_key="q.last"))
    first = declare(vhost, "q", arguments=arguments(dead_letter_exchange="", dead_letter_routing_key="q.dead"))
    publish(first, *"0123456789")
    publish(dead, "a")
    found = cascade(vhost, {"max-length": 2})
    # Eight leave the first; there is room for one of them; and seven leave that, for which there is room for two.
    assert found.reached == {"q.dead": Reached(1, 8, 7, 0), "q.last": Reached(2, 7, 5, 5)}
    assert (found.lost, found.is_estimate) == (5, False)
    vhost.policies.set(Policy("new", "^q", {"max-length": 2}), operator=False)
    assert [queue.ready_count() for queue in (first, dead, last)] == [2, 2, 2]
    assert (dead.counters.dropped["maxlen"], last.counters.dropped["maxlen"]) == (7, 5)


@pytest.mark.parametrize(
    ("dead", "lost"),
    [
        ({"max_length": 1, "overflow": "reject-publish"}, 2),
        ({"max_length": 1, "overflow": "reject-publish", "queue_type": "quorum"}, 0),
        ({"max_length": 1, "dead_letter_exchange": ""}, 2),
        ({"max_length_bytes": 2}, 1),
        (None, 3),
    ],
)
def test_where_dead_letters_are_lost(vhost: VirtualHost, dead: dict[str, Any] | None, lost: int) -> None:
    if dead is not None:
        declare(vhost, "dead", arguments=arguments(**dead))
    queue = declare(vhost, arguments=arguments(dead_letter_exchange="", dead_letter_routing_key="dead"))
    publish(queue, *"abcd")
    assert cascade(vhost, {"max-length": 1}).lost == lost


def test_own_routing_keys_and_cycles(vhost: VirtualHost) -> None:
    queue = declare(vhost, arguments=arguments(dead_letter_exchange=""))
    publish(queue, *"abcd")
    found = cascade(vhost, {"max-length": 1})
    assert (found.reached, found.lost, found.is_estimate) == ({}, 3, True)


def test_a_dead_letter_exchange_that_does_not_exist(vhost: VirtualHost) -> None:
    queue = declare(vhost)
    publish(queue, *"abcd")
    found = preview(vhost, {"max-length": 1, "dead-letter-exchange": "nowhere"})["q"]
    assert (found.dead_letters_to, found.missing_exchange) == (None, "nowhere")
