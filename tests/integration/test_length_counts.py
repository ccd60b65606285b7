"""Limits that count unacknowledged messages, as clients, the HTTP API and leveretctl see them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from pamqp import commands

from tests.conformance.http_api import HttpApi, path
from tests.conformance.topology import drain, got
from tests.support.leveret_process import LeveretProcess
from tests.support.leveretctl import Leveretctl
from tests.support.wire import Channel, Connection

QUEUE = "work"


@pytest.fixture
def channel(process: LeveretProcess) -> Iterator[Channel]:
    with Connection(process.url) as connection:
        channel = connection.channel()
        channel.confirm_select()
        yield channel
        channel.queue_delete(QUEUE)


def declare(channel: Channel, kind: str = "classic", **arguments: Any) -> None:
    table = [
        (f"x-{name.replace('_', '-')}", "S" if type(value) is str else "I", value) for name, value in arguments.items()
    ]
    channel.queue_declare(QUEUE, durable=True, arguments=[*table, ("x-queue-type", "S", kind)])


def outcomes(channel: Channel, *bodies: bytes) -> list[bool]:
    """Publish in one write, on a channel of its own; return for each message whether it was acknowledged."""
    other = channel.connection.channel()
    other.confirm_select()
    for body in bodies:
        other.publish("", QUEUE, body)
    found = other.wait_for_confirms(len(bodies))
    other.close()
    return found


@pytest.mark.parametrize("kind", ["classic", "quorum"])
def test_reject_publish(channel: Channel, kind: str) -> None:
    declare(channel, kind, max_length=3, length_counts="all", overflow="reject-publish")
    channel.consume(QUEUE)
    assert outcomes(channel, b"1", b"2", b"3", b"4") == [True, True, True, False]
    deliveries = channel.deliveries(3)
    assert outcomes(channel, b"5") == [False]
    channel.ack(deliveries[0].delivery_tag)
    channel.sync()
    assert outcomes(channel, b"6", b"7") == [True, False]


@pytest.mark.parametrize("kind", ["classic", "quorum"])
def test_drop_head(channel: Channel, kind: str) -> None:
    declare(channel, kind, max_length=2, length_counts="all")
    channel.consume(QUEUE)
    assert outcomes(channel, b"1", b"2", b"3") == [True] * 3
    tags = [delivery.delivery_tag for delivery in channel.deliveries(2)]
    channel.expect_no_delivery(QUEUE)
    channel.nack(tags[-1], multiple=True)
    assert [delivery.body for delivery in channel.deliveries(2)] == [b"1", b"2"]


def test_requeue_and_policies(channel: Channel, api: HttpApi) -> None:
    declare(channel)
    below = path("policies", "/", "less")
    outcomes(channel, b"1", b"2", b"3")
    tags = [got(channel, QUEUE).delivery_tag for _ in range(3)]
    policy = {"pattern": f"^{QUEUE}$", "definition": {"max-length": 1, "length-counts": "all"}}
    assert api.ask("PUT", below, policy).status == 201
    try:
        assert outcomes(channel, b"4") == [True]
        channel.nack(tags[-1], multiple=True)
        channel.sync(QUEUE)
        assert drain(channel, QUEUE) == [b"1", b"2", b"3"]
    finally:
        api.ask("DELETE", below)


def test_what_is_refused(channel: Channel, api: HttpApi) -> None:
    text = (
        f"PRECONDITION_FAILED - invalid arg 'x-length-counts' for queue '{QUEUE}' in vhost '/': invalid_length_counts"
    )
    other = channel.connection.channel()
    with other.expect_channel_close(406, text, commands.Queue.Declare):
        declare(other, length_counts="unacked")
    declare(channel, length_counts="all")
    again = channel.connection.channel()
    text = (
        f"PRECONDITION_FAILED - inequivalent arg 'x-length-counts' for queue '{QUEUE}' in vhost '/':"
        " received none but current is the value 'all' of type 'longstr'"
    )
    with again.expect_channel_close(406, text, commands.Queue.Declare):
        declare(again)
    policy = {"pattern": "", "definition": {"length-counts": "some"}}
    reply = api.ask("PUT", path("policies", "/", "wrong"), policy)
    assert (reply.status, "is not a valid length-counts value" in reply.document["reason"]) == (400, True)


def test_what_is_shown(channel: Channel, api: HttpApi, process: LeveretProcess) -> None:
    declare(channel, max_length=10, length_counts="all")
    outcomes(channel, b"1", b"2", b"3")
    channel.get(QUEUE)
    explained = api.get(path("queues", "/", QUEUE, "explain"))
    assert explained["in_force"] == {"max-length": 10, "length-counts": "all"}
    fill = api.get(path("queues", "/", QUEUE))["fill"]
    assert fill == explained["fill"]
    assert (fill["length_counts"], fill["messages_counted"], fill["percent"]) == ("all", 3, 30.0)
    ctl = Leveretctl(process.http_url)
    assert ctl.output("list_queues", "-s", "name", "length_counts") == f"{QUEUE}\tall\n"
    assert "ready and unacknowledged: 3 messages of 10 (30%)" in ctl.output("explain_queue", QUEUE)
