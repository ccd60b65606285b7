"""Rules 1.1.8 to 1.1.10 and 1.3.3: limits declared and watched through the management HTTP API."""

from __future__ import annotations

from typing import Any

import pytest
from pamqp import commands

from tests.conformance.bounded import bounded, limits, outcomes, refill
from tests.conformance.fixtures import Poll, Unique
from tests.conformance.http_api import HttpApi, path
from tests.conformance.reply_texts import inequivalent
from tests.conformance.topology import drain, got, new_queue, numbered
from tests.support.management import Management
from tests.support.wire import Channel

LENGTH, BYTES = "x-max-length", "x-max-length-bytes"


@pytest.mark.parametrize("key", [LENGTH, BYTES])
def test_1_1_8_a_json_integer_is_a_long(channel: Channel, api: HttpApi, unique: Unique, vhost: str, key: str) -> None:
    queue = unique()
    assert api.ask("PUT", path("queues", vhost, queue), {"arguments": {key: 2}}).status == 201
    refill(channel, queue, *numbered(3))
    assert drain(channel, queue) == [b"2", b"3"]
    text = inequivalent(key, f"queue '{queue}'", vhost, "none", "the value '2' of type 'long'")
    with channel.expect_channel_close(406, text, commands.Queue.Declare):
        channel.queue_declare(queue)


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (5.5, '"expected integer, got double"'),
        (True, '"expected integer, got bool"'),
        ("5", '"expected integer, got longstr"'),
        (-1, "{value_negative,-1}"),
    ],
)
@pytest.mark.parametrize("key", [LENGTH, BYTES])
def test_1_1_8_invalid_values(api: HttpApi, unique: Unique, vhost: str, key: str, value: Any, reason: str) -> None:
    queue = unique()
    answer = api.ask("PUT", path("queues", vhost, queue), {"arguments": {key: value}})
    expected = f"invalid arg '{key}' for queue '{queue}' in vhost '{vhost}': {reason}"
    assert (answer.status, answer.document) == (400, {"error": "bad_request", "reason": expected})


def test_1_1_8_another_value(channel: Channel, api: HttpApi, unique: Unique, vhost: str) -> None:
    queue = new_queue(channel, unique, arguments=limits(10), durable=True)
    bodies = [{"durable": True, "arguments": {LENGTH: value}} for value in (10, 11)]
    equal, other = [api.ask("PUT", path("queues", vhost, queue), body) for body in bodies]
    assert (equal.status, other.status) == (204, 400)
    text = inequivalent(LENGTH, f"queue '{queue}'", vhost, "'11'", "'10'")
    assert other.document["reason"] == text.removeprefix("PRECONDITION_FAILED - ")


def test_1_1_10_unknown_arguments_are_shown(
    channel: Channel, management: Management, unique: Unique, vhost: str
) -> None:
    queue = new_queue(channel, unique, arguments=[("max-length", "I", 1), ("x-foo", "S", "bar"), (LENGTH, "b", 3)])
    found = management.request("GET", "queues", vhost, queue)["arguments"]
    assert found == {"max-length": 1, "x-foo": "bar", LENGTH: 3}


@pytest.mark.parametrize("overflow", ["drop-head", "reject-publish"])
def test_1_3_3_the_limited_quantities_are_those_that_are_shown(
    channel: Channel, management: Management, unique: Unique, vhost: str, poll: Poll, overflow: str
) -> None:
    queue = bounded(channel, unique, 3, 10, overflow)
    refill(channel, queue, b"333", b"1", b"22", headers=[("k", "S", "free")])
    got(channel, queue)
    assert outcomes(channel, queue, b"x" * 8) == [overflow == "drop-head"]
    expected = {
        "messages_ready": 2,
        "message_bytes_ready": 10 if overflow == "drop-head" else 3,
        "messages_unacknowledged": 1,
        "message_bytes_unacknowledged": 3,
        "messages": 3,
        "message_bytes": 13 if overflow == "drop-head" else 6,
    }

    def shown() -> bool:
        document = management.request("GET", "queues", vhost, queue)
        return {key: document.get(key) for key in expected} == expected

    # RabbitMQ refreshes them every five seconds.
    poll(shown)
