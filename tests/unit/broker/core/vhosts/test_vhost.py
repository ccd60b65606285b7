"""A virtual host: its metadata, and queues that are declared and deleted in it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

import pytest

from leveret.broker.core.queues.classic_queue import ClassicQueue
from leveret.broker.core.vhosts.metadata import (
    InvalidMetadata,
    VirtualHostMetadata,
    metadata_from_json,
    metadata_to_json,
    read_metadata,
)
from leveret.broker.core.vhosts.vhost import VirtualHost
from leveret.policies.policy import Policy
from leveret.protocol.faults import ChannelFault
from leveret.protocol.field_table import longstr
from tests.support.fake_consumer import FakeConsumer
from tests.support.manual_loop import ManualLoop
from tests.support.queue_content import publish
from tests.support.queues import declare

KNOWN = VirtualHostMetadata("old", ("a",), True, "quorum")


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ({}, VirtualHostMetadata("", (), True, "quorum")),
        ({"description": "new", "tags": "a, b,,c"}, VirtualHostMetadata("new", ("a", "b", "c"), True, "quorum")),
        ({"tags": ["x", " y "]}, VirtualHostMetadata("", ("x", "y"), True, "quorum")),
        ({"tracing": False}, VirtualHostMetadata("", (), False, "quorum")),
        ({"tracing": "false"}, VirtualHostMetadata("", (), False, "quorum")),
        ({"default_queue_type": "classic"}, VirtualHostMetadata("", (), True, "classic")),
        ({"defaultqueuetype": "classic"}, VirtualHostMetadata("", (), True, "classic")),
        ({"default_queue_type": "undefined"}, VirtualHostMetadata("", (), True, None)),
        ({"metadata": {"description": "in", "tags": ["t"]}}, VirtualHostMetadata("in", ("t",), True, "quorum")),
        ({"description": "out", "metadata": {"description": "in"}}, VirtualHostMetadata("out", (), True, "quorum")),
    ],
)
def test_reading(document: dict[str, Any], expected: VirtualHostMetadata) -> None:
    assert read_metadata(document, KNOWN) == expected


@pytest.mark.parametrize(
    ("document", "reason"),
    [
        ({"tracing": "maybe"}, ["not_boolean", "maybe"]),
        ({"tracing": 1}, ["not_boolean", 1]),
        ({"default_queue_type": "nope"}, "Unsupported queue type 'nope'"),
        ({"default_queue_type": []}, "Unsupported queue type '[]'"),
        ({"tags": 5}, "tags must be a list of strings, or one string with commas"),
        ({"tags": [5]}, "tags must be a list of strings, or one string with commas"),
    ],
)
def test_what_is_refused(document: dict[str, Any], reason: object) -> None:
    with pytest.raises(InvalidMetadata) as caught:
        read_metadata(document, KNOWN)
    assert caught.value.reason == reason


def test_what_is_kept_comes_back() -> None:
    assert metadata_from_json(metadata_to_json(KNOWN)) == KNOWN
    assert metadata_from_json({}) == VirtualHostMetadata(), "kept by an earlier release"


class TestDefaultQueueType:
    @pytest.fixture(autouse=True)
    def quorum(self, vhost: VirtualHost) -> None:
        vhost.metadata = VirtualHostMetadata(default_queue_type="quorum")

    def test_durable_queues_that_name_no_type_get_it(self, vhost: VirtualHost) -> None:
        queue = declare(vhost)
        assert (queue.queue_type, queue.arguments) == ("quorum", (("x-queue-type", longstr("quorum")),))
        assert declare(vhost) is queue, "declaring it again the same way finds it"

    @pytest.mark.parametrize("given", [{"durable": False}, {"auto_delete": True}, {"owner": object()}])
    def test_what_a_quorum_queue_cannot_be_stays_classic(self, vhost: VirtualHost, given: dict[str, Any]) -> None:
        queue = declare(vhost, **given)
        assert (queue.queue_type, queue.arguments) == ("classic", ())

    def test_the_argument_comes_first(self, vhost: VirtualHost) -> None:
        declare(vhost, "c", arguments=(("x-queue-type", longstr("classic")),))
        assert vhost.queues["c"].queue_type == "classic"

    def test_a_queue_from_before_is_another_type(self, vhost: VirtualHost) -> None:
        vhost.metadata = VirtualHostMetadata()
        declare(vhost)
        vhost.metadata = VirtualHostMetadata(default_queue_type="quorum")
        with pytest.raises(ChannelFault, match="received the value 'quorum' of type 'longstr' but current is none"):
            declare(vhost)


def test_deleting_an_old_queue_again_spares_the_new_one_of_its_name(vhost: VirtualHost) -> None:
    old = declare(vhost, "q")
    vhost.delete_queue(old)
    new = declare(vhost, "q")
    assert vhost.delete_queue(old) == 0
    assert vhost.queues == {"q": new}


def test_an_exclusive_auto_delete_queue_may_go_either_way(vhost: VirtualHost) -> None:
    owner = object()
    queue = declare(vhost, "q", owner=owner, auto_delete=True)
    consumer = FakeConsumer(queue)
    queue.add_consumer(consumer)
    queue.remove_consumer(consumer)
    assert vhost.queues == {}
    vhost.delete_queues_of(owner)


@pytest.fixture
def queues(vhost: VirtualHost) -> list[ClassicQueue]:
    return [declare(vhost, f"q{number}") for number in range(6)]


def limits(queues: list[ClassicQueue]) -> list[int | None]:
    return [queue.settings.max_length for queue in queues]


def take(steps: Iterator[None] | None, count: int | None = None) -> None:
    assert steps is not None
    for _ in islice(steps, count):
        pass


def bounded(limit: int, name: str = "p", priority: int = 0) -> Policy:
    return Policy(name, "^q", {"max-length": limit}, priority)


def test_a_queue_a_step(vhost: VirtualHost, queues: list[ClassicQueue]) -> None:
    is_new, steps = vhost.policies.set_in_steps(bounded(3), operator=False)
    assert is_new
    assert limits(queues) == [None] * 6
    take(steps, 2)
    assert limits(queues) == [3, 3, *[None] * 4]
    take(steps)
    assert limits(queues) == [3] * 6


def test_new_queues_have_it_at_once(vhost: VirtualHost, queues: list[ClassicQueue]) -> None:
    _, steps = vhost.policies.set_in_steps(bounded(3), operator=False)
    assert declare(vhost, "q-new").settings.max_length == 3
    take(steps)


def test_the_same_policy_again_takes_no_steps(vhost: VirtualHost, queues: list[ClassicQueue]) -> None:
    vhost.policies.set(bounded(3), operator=False)
    is_new, steps = vhost.policies.set_in_steps(bounded(3), operator=False)
    assert (is_new, list(steps)) == (False, [])


def test_changes_that_overtake_each_other(vhost: VirtualHost, queues: list[ClassicQueue]) -> None:
    _, first = vhost.policies.set_in_steps(bounded(3), operator=False)
    take(first, 2)
    _, second = vhost.policies.set_in_steps(bounded(5), operator=False)
    take(second, 4)
    take(first)
    assert limits(queues) == [5] * 6, "the older change applies the latest policy"
    cleared = vhost.policies.clear_in_steps("p", operator=False)
    take(second)
    take(cleared)
    assert limits(queues) == [None] * 6


def test_queues_that_go_meanwhile(vhost: VirtualHost, queues: list[ClassicQueue]) -> None:
    _, steps = vhost.policies.set_in_steps(bounded(3), operator=False)
    take(steps, 1)
    vhost.delete_queue(queues[1])
    again = declare(vhost, "q1")
    take(steps)
    assert (again.settings.max_length, queues[1].settings.max_length) == (3, None)


def test_whom_a_change_does_not_concern(vhost: VirtualHost, queues: list[ClassicQueue]) -> None:
    other = declare(vhost, "other")
    vhost.policies.set(Policy("o", "^o", {"max-length": 9}), operator=False)
    vhost.policies.set(bounded(3), operator=False)
    assert (other.settings.max_length, limits(queues)) == (9, [3] * 6)


def test_a_policy_that_ceases_to_match(vhost: VirtualHost, queues: list[ClassicQueue]) -> None:
    vhost.policies.set(bounded(3), operator=False)
    vhost.policies.set(Policy("p", "^q5", {"max-length": 4}), operator=False)
    assert limits(queues) == [*[None] * 5, 4]


def test_what_is_not_there_cannot_be_cleared(vhost: VirtualHost) -> None:
    assert vhost.policies.clear_in_steps("p", operator=False) is None


def test_exchanges_too(vhost: VirtualHost) -> None:
    vhost.declare_exchange("x", "direct", True, False, False, ())
    _, steps = vhost.policies.set_in_steps(Policy("p", "^x", {"alternate-exchange": "amq.fanout"}), operator=False)
    exchange = vhost.topology.exchanges["x"]
    assert exchange.alternate is None
    take(steps)
    assert exchange.alternate == "amq.fanout"


def test_what_a_consumer_is_about_to_get_is_not_dropped(vhost: VirtualHost, loop: ManualLoop) -> None:
    queue = declare(vhost)
    consumer = FakeConsumer(queue, room=1)
    queue.add_consumer(consumer)
    publish(queue, *"ab")
    vhost.policies.set(bounded(0), operator=False)
    loop.run()
    assert consumer.received == ["a"]
    assert queue.counters.dropped["maxlen"] == 1
