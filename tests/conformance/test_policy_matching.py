"""Rules 3.1.9 and 3.2.1 to 3.2.10: which policy applies to which queue or exchange."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.conformance.accounts import Accounts
from tests.conformance.bounded import refill
from tests.conformance.fixtures import Connect, Unique
from tests.conformance.http_api import path
from tests.conformance.operator_policies import PolicySet, kept, only
from tests.conformance.topology import bound_queue, drain, new_exchange, new_queue, numbered
from tests.support.management import Management
from tests.support.wire import Channel

# Middle of the queue's name, pattern ({end} is the end of the name, letters and digits), whether it matches.
PATTERNS = [
    ("xxabcyy", r"abc.*{end}", True),
    ("xxabcyy", r"^abc.*{end}", False),
    ("xxabcyy", r"^conformance\.xxabcyy\.{end}$", True),
    ("xxabcyy", r"^conformance\.xxabc$|{end}x", False),
    ("xxabcyy", r"ABC.*{end}", False),
    ("xxabcyy", r"(?i)ABC.*{end}", True),
    ("xxabcyy", r"x(?=abc).*{end}", True),
    ("xxabcyy", r"x(?!a).bc.*{end}", False),
    ("xxabcyy", r"(?<=xx)abc.*{end}", True),
    ("xxabcyy", r"\Aconformance.*{end}\Z", True),
    ("xxabcyy", r"\Axx.*{end}", False),
    ("xxabcyy", r"[[:lower:]]{{7}}[[:punct:]]{end}", True),
    ("xxabcyy", r"\.[[:digit:]]{{7}}\.{end}", False),
    ("xxabcyy", r"xx[a-z]++\.{end}", True),
    ("xxabcyy", r"xx[a-z]++yy\.{end}", False),
    ("xxabcyy", r"(?>xx|x)abc.*{end}", True),
    ("xxabcyy", r"(x)\1abc(?<twice>y)\k<twice>\.{end}", True),
    ("xxabcyy", r"(a)\1.*{end}", False),
    ("xxabcyy", r"\.\p{{L}}{{7}}\.{end}", True),
    ("xxabcyy", r"\p{{Lu}}.*{end}", False),
    ("(.)", r"\.\(\.\)\.{end}", True),
    ("(.)", r"\Q.(.).\E{end}", True),
]
# Keys that a classic queue does not have, with a valid value.
UNSUPPORTED: list[tuple[str, Any]] = [
    ("max-age", "1h"),
    ("stream-max-segment-size-bytes", 1000),
    ("queue-leader-locator", "client-local"),
    ("initial-cluster-size", 1),
    ("delivery-limit", 3),
    ("dead-letter-strategy", "at-most-once"),
]


@pytest.fixture
def elsewhere(management: Management, accounts: Accounts, connect: Connect) -> Iterator[tuple[Channel, PolicySet]]:
    """A channel and policies in a virtual host that nobody else uses, for two queues at most."""
    vhost = accounts.vhost("max-queues")
    with PolicySet(management, vhost) as made:
        yield connect(vhost=vhost).channel(), made


def names(queue: str) -> tuple[str, str]:
    """Return the name of a queue and its end, which no other name has."""
    return queue, queue.rsplit(".", 1)[1]


@pytest.mark.parametrize(("middle", "pattern", "matches"), PATTERNS)
def test_3_2_1_patterns(
    channel: Channel, unique: Unique, policies: PolicySet, middle: str, pattern: str, matches: bool
) -> None:
    queue, end = names(new_queue(channel, unique, hint=middle))
    policies.set(pattern.format(end=end), {"max-length": 2})
    assert kept(channel, queue) == (2 if matches else 10)


def test_3_2_1_the_empty_pattern_matches_everything(elsewhere: tuple[Channel, PolicySet]) -> None:
    channel, policies = elsewhere
    policies.set("", {"max-length": 2})
    queue = channel.queue_declare("", exclusive=True).queue
    assert kept(channel, queue) == 2


@pytest.mark.parametrize(
    ("pattern", "matches"), [(r"\..{{14}}\.{end}$", True), (r"\..{{7}}\.{end}$", False), ("чере.*{end}", True)]
)
def test_3_2_2_bytes_are_matched(
    channel: Channel, unique: Unique, policies: PolicySet, pattern: str, matches: bool
) -> None:
    queue, end = names(new_queue(channel, unique, hint="очередь"))
    policies.set(pattern.format(end=end), {"max-length": 2})
    assert kept(channel, queue) == (2 if matches else 10)


def test_3_2_3_only_in_its_virtual_host(channel: Channel, unique: Unique, elsewhere: tuple[Channel, PolicySet]) -> None:
    queue = new_queue(channel, unique)
    elsewhere[1].set(only(queue), {"max-length": 2})
    assert kept(channel, queue) == 10


def test_3_2_3_definitions_of_several_policies_are_not_merged(
    channel: Channel, unique: Unique, policies: PolicySet
) -> None:
    queue = new_queue(channel, unique)
    policies.set(only(queue), {"max-length": 2}, priority=1)
    policies.set(only(queue), {"max-length-bytes": 7}, priority=2)
    assert kept(channel, queue) == 7


def test_3_2_3_one_policy_and_one_operator_policy(channel: Channel, unique: Unique, policies: PolicySet) -> None:
    queue = new_queue(channel, unique)
    policies.set(only(queue), {"max-length": 8})
    policies.operator(only(queue), {"max-length": 2}, priority=1)
    policies.operator(only(queue), {"max-length-bytes": 7}, priority=2)
    assert kept(channel, queue) == 7


@pytest.mark.parametrize(
    "priorities", [(0, 1), (1, 1.5), (-1, 0), (-2, -1.5), (2, 10), (1.25, 1.5), (0, 10**12)], ids=str
)
@pytest.mark.parametrize("ascending", [True, False])
def test_3_2_4_the_highest_priority_wins(
    channel: Channel, unique: Unique, policies: PolicySet, priorities: tuple[float, float], ascending: bool
) -> None:
    queue = new_queue(channel, unique)
    both = sorted(zip(priorities, (2, 5), strict=True), reverse=not ascending)
    for priority, length in both:
        policies.set(only(queue), {"max-length": length}, priority=priority)
    assert kept(channel, queue) == 5


def test_3_2_4_the_next_one_follows(channel: Channel, unique: Unique, policies: PolicySet) -> None:
    queue = new_queue(channel, unique)
    made = [policies.set(only(queue), {"max-length": length}, priority=-length) for length in (2, 5, 7)]
    found = []
    for name in made:
        found.append(kept(channel, queue))
        policies.clear(name)
    assert [*found, kept(channel, queue)] == [2, 5, 7, 10]


def test_3_2_5_equal_priorities(channel: Channel, unique: Unique, policies: PolicySet) -> None:
    queue = new_queue(channel, unique)
    for length in (2, 5):
        policies.set(only(queue), {"max-length": length})
    assert kept(channel, queue) in (2, 5)


@pytest.mark.departs("none")
@pytest.mark.parametrize("order", ["abc", "bca", "cab", "cba"])
def test_3_2_5_the_smallest_name_wins(channel: Channel, unique: Unique, policies: PolicySet, order: str) -> None:
    # 3.10.8 chooses by nothing that a user can see.
    queue = new_queue(channel, unique)
    for name in order:
        policies.set(only(queue), {"max-length": "abc".index(name) + 2}, name=f"{queue}.{name}", priority=1)
    assert kept(channel, queue) == 2


@pytest.mark.parametrize(("apply_to", "length"), [("queues", 10), ("all", 10), ("exchanges", 2)])
def test_3_2_6_what_a_policy_applies_to(
    channel: Channel, unique: Unique, policies: PolicySet, apply_to: str, length: int
) -> None:
    queue = new_queue(channel, unique)
    policies.set(only(queue), {"max-length": 2}, apply_to="queues")
    policies.set(only(queue), {"alternate-exchange": "amq.fanout"}, apply_to=apply_to, priority=5)
    assert kept(channel, queue) == length


@pytest.mark.parametrize(("apply_to", "routed"), [("exchanges", False), ("all", False), ("queues", True)])
def test_3_2_6_exchanges(channel: Channel, unique: Unique, policies: PolicySet, apply_to: str, routed: bool) -> None:
    exchange, alternate = new_exchange(channel, unique), new_exchange(channel, unique, "fanout")
    queue = bound_queue(channel, unique, alternate, "")
    policies.set(only(exchange), {"alternate-exchange": alternate}, apply_to="exchanges")
    policies.set(only(exchange), {"max-length": 2}, apply_to=apply_to, priority=5)
    channel.publish(exchange, "key", b"one")
    channel.sync(queue)
    assert drain(channel, queue) == ([b"one"] if routed else [])


@pytest.mark.departs("3.12")
@pytest.mark.parametrize(
    ("apply_to", "covered"), [("classic_queues", "classic"), ("quorum_queues", "quorum"), ("streams", "stream")]
)
def test_3_1_9_queues_of_one_type(
    channel: Channel, unique: Unique, policies: PolicySet, apply_to: str, covered: str
) -> None:
    for kind in ("classic", "quorum", "stream"):
        queue = new_queue(channel, unique, durable=True, arguments=[("x-queue-type", "S", kind)])
        name = policies.set(only(queue), {"max-length-bytes": 2}, apply_to=apply_to)
        shown = policies.api.get(path("queues", policies.vhost, queue))
        assert (shown.get("policy") == name) == (kind == covered), kind


@pytest.mark.parametrize(("key", "value"), UNSUPPORTED, ids=[key for key, _ in UNSUPPORTED])
def test_3_2_7_a_policy_with_a_key_of_another_type_is_skipped(
    channel: Channel, unique: Unique, policies: PolicySet, key: str, value: Any
) -> None:
    queue = new_queue(channel, unique)
    policies.set(only(queue), {"max-length": 2, key: value}, priority=9)
    assert kept(channel, queue) == 10
    policies.set(only(queue), {"max-length": 4})
    assert kept(channel, queue) == 4


@pytest.mark.parametrize("key", ["max-in-memory-length", "max-in-memory-bytes"])
def test_3_2_7_keys_that_mean_nothing_to_a_classic_queue(
    channel: Channel, unique: Unique, policies: PolicySet, key: str
) -> None:
    queue = new_queue(channel, unique)
    policies.set(only(queue), {"max-length": 2, key: 1}, priority=9)
    policies.set(only(queue), {"max-length": 4})
    assert kept(channel, queue) == 2


@pytest.mark.parametrize("options", [{"exclusive": True}, {"auto_delete": True}, {"durable": True}], ids=str)
def test_3_2_9_any_queue(channel: Channel, unique: Unique, policies: PolicySet, options: dict[str, Any]) -> None:
    queue = new_queue(channel, unique, **options)
    policies.set(only(queue), {"max-length": 2})
    assert kept(channel, queue) == 2


@pytest.mark.parametrize("exchange", ["amq.direct", "amq.topic", "amq.headers", "amq.match"])
def test_3_2_9_predeclared_exchanges(elsewhere: tuple[Channel, PolicySet], exchange: str) -> None:
    channel, policies = elsewhere
    queue = channel.queue_declare("", exclusive=True).queue
    channel.queue_bind(queue, "amq.fanout")
    policies.set(only(exchange), {"alternate-exchange": "amq.fanout"})
    channel.publish(exchange, "key", b"one", mandatory=True)
    channel.sync(queue)
    assert drain(channel, queue) == [b"one"]
    assert not channel.returns


def test_3_2_10_when_a_queue_is_declared(channel: Channel, unique: Unique, policies: PolicySet) -> None:
    queue = unique()
    policies.set(only(queue), {"max-length": 2})
    channel.queue_declare(queue)
    assert kept(channel, queue) == 2


def test_3_2_10_when_a_policy_is_set_or_cleared(channel: Channel, unique: Unique, policies: PolicySet) -> None:
    queue, other = new_queue(channel, unique), new_queue(channel, unique)
    name = policies.set(only(queue), {"max-length": 2})
    assert (kept(channel, queue), kept(channel, other)) == (2, 10)
    policies.set(only(other), {"max-length": 2}, name=name)
    assert (kept(channel, queue), kept(channel, other)) == (10, 2)
    policies.clear(name)
    assert (kept(channel, queue), kept(channel, other)) == (10, 10)


def test_3_2_10_an_equal_value_changes_nothing(channel: Channel, unique: Unique, policies: PolicySet) -> None:
    queue = new_queue(channel, unique)
    name = policies.set(only(queue), {"max-length": 2})
    refill(channel, queue, *numbered(4))
    policies.set(only(queue), {"max-length": 2}, name=name)
    assert drain(channel, queue) == [b"3", b"4"]
    assert kept(channel, queue) == 2
