"""A virtual host: its metadata, and queues that are declared and deleted in it."""

from __future__ import annotations

from typing import Any

import pytest

from leveret.broker.core.vhosts.metadata import (
    InvalidMetadata,
    VirtualHostMetadata,
    metadata_from_json,
    metadata_to_json,
    read_metadata,
)
from leveret.broker.core.vhosts.vhost import VirtualHost
from leveret.protocol.faults import ChannelFault
from leveret.protocol.field_table import longstr
from tests.support.fake_consumer import FakeConsumer
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
