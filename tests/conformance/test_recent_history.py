"""Rules 33.15 to 33.22: the exchange type x-recent-history."""

from __future__ import annotations

from typing import Any

import pytest
from pamqp import commands

from tests.conformance.fixtures import Connect, Poll, Unique
from tests.conformance.http_api import HttpApi, bad_request, path
from tests.conformance.topology import bound_queue, counts, drain, fill, got, new_exchange, new_queue, numbered
from tests.support.tables import Triple
from tests.support.wire import Channel

TYPE = "x-recent-history"
LENGTH = "x-recent-history-length"
pytestmark = pytest.mark.plugin(TYPE)


def history_of(channel: Channel, unique: Unique, length: int | None = None, **options: Any) -> str:
    arguments: list[Triple] = [] if length is None else [(LENGTH, "I", length)]
    return new_exchange(channel, unique, TYPE, arguments=arguments, **options)


def publish(channel: Channel, exchange: str, *bodies: bytes, **options: Any) -> None:
    for body in bodies:
        channel.publish(exchange, "key", body, **options)
    channel.sync()


@pytest.mark.parametrize(
    ("kind", "value", "shown"),
    [
        ("I", 0, "0"), ("I", -1, "-1"), ("l", 0, "0"), ("u", 5, "5"), ("i", 5, "5"), ("B", 5, "5"), ("d", 5.0, "5.0"),
        ("S", "5", '<<"5">>'), ("t", True, "true"), ("T", 5, "5"),
    ],
)  # fmt: skip
def test_33_15_lengths_that_are_refused(channel: Channel, unique: Unique, kind: str, value: object, shown: str) -> None:
    text = f"PRECONDITION_FAILED - Invalid argument {shown}, '{LENGTH}' must be a positive integer"
    with channel.expect_channel_close(406, text, commands.Exchange.Declare):
        channel.exchange_declare(unique("x"), TYPE, arguments=[(LENGTH, kind, value)])


@pytest.mark.parametrize("kind", ["b", "s", "I", "l"])
def test_33_15_the_newest_messages_are_remembered(channel: Channel, unique: Unique, kind: str) -> None:
    exchange = new_exchange(channel, unique, TYPE, arguments=[(LENGTH, kind, 3)])
    publish(channel, exchange, *numbered(5))
    assert drain(channel, bound_queue(channel, unique, exchange, "")) == [b"3", b"4", b"5"]


def test_33_15_twenty_by_default(channel: Channel, unique: Unique) -> None:
    exchange = history_of(channel, unique)
    publish(channel, exchange, *numbered(25))
    assert drain(channel, bound_queue(channel, unique, exchange, "")) == numbered(25)[5:]
    channel.exchange_declare(exchange, TYPE, arguments=[(LENGTH, "S", "not compared")])


@pytest.mark.parametrize("queue_type", ["classic", "quorum"])
def test_33_16_history_comes_behind_what_is_there(channel: Channel, unique: Unique, queue_type: str) -> None:
    exchange = history_of(channel, unique)
    publish(channel, exchange, b"first", properties={"headers": [("h", "I", 1)], "message_id": "id"})
    publish(channel, exchange, b"second")
    queue = new_queue(channel, unique, b"before", durable=True, arguments=[("x-queue-type", "S", queue_type)])
    channel.queue_bind(queue, exchange, "any")
    publish(channel, exchange, b"live")
    deliveries = [got(channel, queue, no_ack=True) for _ in range(4)]
    assert [delivery.body for delivery in deliveries] == [b"before", b"first", b"second", b"live"]
    first = deliveries[1]
    assert (first.exchange, first.routing_key, first.redelivered) == (exchange, "key", False)
    assert b"id" in first.header


def test_33_16_limits_of_the_queue_apply(channel: Channel, unique: Unique) -> None:
    exchange = history_of(channel, unique)
    publish(channel, exchange, *numbered(5))
    kept = new_queue(channel, unique, arguments=[("x-max-length", "I", 2)])
    refused = new_queue(channel, unique, arguments=[("x-max-length", "I", 2), ("x-overflow", "S", "reject-publish")])
    for queue in (kept, refused):
        channel.queue_bind(queue, exchange, "")
    channel.sync(kept, refused)
    assert (drain(channel, kept), drain(channel, refused)) == ([b"4", b"5"], [b"1", b"2"])


def test_33_17_every_new_binding_replays(channel: Channel, unique: Unique) -> None:
    exchange = history_of(channel, unique)
    publish(channel, exchange, b"old")
    queue = bound_queue(channel, unique, exchange, "one")
    channel.queue_bind(queue, exchange, "one")
    channel.sync(queue)
    assert drain(channel, queue) == [b"old"]
    channel.queue_bind(queue, exchange, "two")
    channel.queue_bind(queue, exchange, "two", arguments=[("a", "I", 1)])
    channel.sync(queue)
    assert drain(channel, queue) == [b"old"] * 2
    publish(channel, exchange, b"live")
    assert drain(channel, queue) == [b"live"]
    channel.queue_unbind(queue, exchange, "one")
    channel.queue_bind(queue, exchange, "one")
    channel.sync(queue)
    assert drain(channel, queue) == [b"old", b"live"]


@pytest.mark.parametrize(
    ("kind", "value", "stored"), [("t", True, False), ("t", False, True), ("S", "true", True), ("I", 1, True)]
)
def test_33_18_messages_that_are_not_stored(
    channel: Channel, unique: Unique, kind: str, value: object, stored: bool
) -> None:
    exchange = history_of(channel, unique)
    queue = bound_queue(channel, unique, exchange, "")
    publish(channel, exchange, b"m", properties={"headers": [("x-recent-history-no-store", kind, value)]})
    live = got(channel, queue, no_ack=True)
    assert b"x-recent-history-no-store" in live.header
    assert drain(channel, bound_queue(channel, unique, exchange, "")) == ([b"m"] if stored else [])


def test_33_19_unroutable_messages_are_stored(channel: Channel, unique: Unique) -> None:
    other = new_exchange(channel, unique, "fanout")
    alternate = bound_queue(channel, unique, other, "")
    exchange = new_exchange(channel, unique, TYPE, arguments=[("alternate-exchange", "S", other)])
    publish(channel, exchange, b"one", mandatory=True)
    alone = history_of(channel, unique)
    publish(channel, alone, b"two", mandatory=True)
    assert [returned.body for returned in channel.returns] == [b"two"]
    assert drain(channel, alternate) == [b"one"]
    assert drain(channel, bound_queue(channel, unique, exchange, "")) == [b"one"]
    assert drain(channel, bound_queue(channel, unique, alone, "")) == [b"two"]


def test_33_19_rolled_back_messages_are_stored(connect: Connect, unique: Unique) -> None:
    connection = connect()
    channel, other = connection.channel(), connection.channel()
    exchange = history_of(channel, unique)
    channel.tx_select()
    channel.publish(exchange, "key", b"rolled back")
    channel.tx_rollback()
    assert drain(other, bound_queue(other, unique, exchange, "")) == [b"rolled back"]


def test_33_19_messages_that_pass_by_are_stored(channel: Channel, unique: Unique) -> None:
    source, exchange = new_exchange(channel, unique, "direct"), history_of(channel, unique)
    channel.exchange_bind(exchange, source, "key")
    copies: dict[str, Any] = {"headers": [("CC", "A", [("S", "copy")]), ("BCC", "A", [("S", "blind")])]}
    channel.publish(source, "key", b"passing", copies)
    channel.publish(source, "other", b"not passing")
    queue = bound_queue(channel, unique, exchange, "")
    delivery = got(channel, queue, no_ack=True)
    assert (delivery.body, delivery.exchange, delivery.routing_key) == (b"passing", source, "key")
    assert b"CC" in delivery.header
    assert b"BCC" not in delivery.header
    assert counts(channel, queue)[0] == 0


def test_33_19_dead_letters_are_stored(channel: Channel, unique: Unique, poll: Poll) -> None:
    exchange = history_of(channel, unique)
    source = new_queue(channel, unique, arguments=[("x-dead-letter-exchange", "S", exchange)])
    live = bound_queue(channel, unique, exchange, "")
    fill(channel, source, *numbered(3))
    tags = [got(channel, source).delivery_tag for _ in range(3)]
    channel.nack(tags[-1], multiple=True, requeue=False)
    poll(lambda: counts(channel, live)[0] == 3)
    assert drain(channel, bound_queue(channel, unique, exchange, "")) == numbered(3)


def test_33_20_an_exchange_gets_the_history_too(channel: Channel, unique: Unique) -> None:
    exchange, direct = history_of(channel, unique), new_exchange(channel, unique, "direct")
    queue = bound_queue(channel, unique, direct, "key")
    channel.exchange_bind(direct, exchange, "")
    assert drain(channel, queue) == []
    channel.exchange_unbind(direct, exchange, "")
    publish(channel, exchange, b"one")
    channel.exchange_bind(direct, exchange, "")
    channel.sync(queue)
    assert drain(channel, queue) == [b"one"]


@pytest.mark.departs("none")
def test_33_20_an_exchange_gets_it_oldest_first(channel: Channel, unique: Unique) -> None:
    exchange, direct = history_of(channel, unique), new_exchange(channel, unique, "direct")
    queue = bound_queue(channel, unique, direct, "key")
    publish(channel, exchange, *numbered(2))
    channel.publish(exchange, "nowhere", b"unroutable")
    publish(channel, exchange, b"3")
    channel.exchange_bind(direct, exchange, "")
    channel.sync(queue)
    assert drain(channel, queue) == numbered(3)


def test_33_22_deleting_the_exchange_clears_it(channel: Channel, unique: Unique) -> None:
    exchange = history_of(channel, unique)
    publish(channel, exchange, b"gone")
    channel.exchange_delete(exchange)
    channel.exchange_declare(exchange, TYPE)
    assert drain(channel, bound_queue(channel, unique, exchange, "")) == []


def test_33_15_over_http(api: HttpApi, own_vhost: str) -> None:
    below = path("exchanges", own_vhost, "x")
    reason = f"Invalid argument 0, '{LENGTH}' must be a positive integer"
    api.check("PUT", below, {"type": TYPE, "arguments": {LENGTH: 0}}, 400, bad_request(reason))
    api.check("PUT", below, {"type": TYPE, "arguments": {LENGTH: 1}}, 201)
    for payload in ("old", "new"):
        published = {"routing_key": "k", "properties": {}, "payload": payload, "payload_encoding": "string"}
        api.check("POST", f"{below}/publish", published, 200, {"routed": False})
    api.check("PUT", path("queues", own_vhost, "q"), {}, 201)
    assert api.ask("POST", path("bindings", own_vhost, "e", "x", "q", "q"), {}).status == 201
    asked = {"count": 5, "ackmode": "ack_requeue_false", "encoding": "auto"}
    found = api.ask("POST", path("queues", own_vhost, "q", "get"), asked).document
    assert [each["payload"] for each in found] == ["new"]
