from __future__ import annotations

from typing import Any

import pytest

from leveret.broker.core.policy_effects import Cascade, Preview, Reached, follow_letters, preview_policy
from leveret.broker.core.queues.queue import Drop
from leveret.broker.core.vhosts.vhost import VirtualHost
from leveret.policies.policy import Policy
from tests.support.queue_content import arguments, publish
from tests.support.queues import declare


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
