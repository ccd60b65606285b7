"""Rules 32.12 to 32.17: queues that drop messages whose header value is in them already."""

from __future__ import annotations

import time

import pytest

from tests.conformance.fixtures import Connect, Poll, SetPolicy, Unique
from tests.conformance.http_api import HttpApi, path
from tests.conformance.operator_policies import refusal
from tests.conformance.topology import counts, drain, got, new_queue
from tests.support.tables import Triple
from tests.support.wire import Channel

HEADER = "x-deduplication-header"
ARGUMENT: Triple = ("x-message-deduplication", "t", True)
pytestmark = pytest.mark.plugin("x-message-deduplication")


def unique_queue(channel: Channel, unique: Unique, *arguments: Triple) -> str:
    return new_queue(channel, unique, arguments=[ARGUMENT, *arguments])


def publish(channel: Channel, queue: str, *bodies: bytes, value: object = "a", **properties: object) -> None:
    """Publish messages with a value, and wait until they are in the queue."""
    for body in bodies:
        channel.publish("", queue, body, {"headers": [(HEADER, "S", value)], **properties})
    channel.sync(queue)


def test_32_13_a_duplicate_is_dropped_while_the_value_is_in_the_queue(channel: Channel, unique: Unique) -> None:
    queue = unique_queue(channel, unique)
    publish(channel, queue, b"1", b"2")
    publish(channel, queue, b"3", value="b")
    channel.publish("", queue, b"4")
    channel.publish("", queue, b"5")
    channel.sync(queue)
    delivery = got(channel, queue)
    # Unacked messages count.
    publish(channel, queue, b"6")
    channel.nack(delivery.delivery_tag, requeue=True)
    publish(channel, queue, b"7")
    assert drain(channel, queue) == [b"1", b"3", b"4", b"5"]


@pytest.mark.parametrize(
    ("kind", "value", "drops"), [("t", True, True), ("S", "true", True), ("I", 1, True), ("t", False, False)]
)
def test_32_13_any_value_but_false_means_so(
    channel: Channel, unique: Unique, kind: str, value: object, drops: bool
) -> None:
    queue = new_queue(channel, unique, arguments=[("x-message-deduplication", kind, value)])
    publish(channel, queue, b"1", b"2")
    assert drain(channel, queue) == ([b"1"] if drops else [b"1", b"2"])


def test_32_13_declaring_again_does_not_compare_it(channel: Channel, unique: Unique) -> None:
    queue = unique_queue(channel, unique)
    channel.queue_declare(queue)
    other = new_queue(channel, unique)
    channel.queue_declare(other, arguments=[ARGUMENT])


def test_32_13_a_quorum_queue_ignores_it(channel: Channel, unique: Unique) -> None:
    arguments = [ARGUMENT, ("x-queue-type", "S", "quorum")]
    queue = new_queue(channel, unique, arguments=arguments, durable=True)
    publish(channel, queue, b"1", b"2")
    assert drain(channel, queue) == [b"1", b"2"]


@pytest.mark.departs("4.0")
def test_32_14_a_duplicate_is_acked_and_not_dead_lettered(channel: Channel, unique: Unique) -> None:
    letters = new_queue(channel, unique)
    dead: list[Triple] = [("x-dead-letter-exchange", "S", ""), ("x-dead-letter-routing-key", "S", letters)]
    queue = unique_queue(channel, unique, *dead)
    channel.confirm_select()
    for number in range(3):
        channel.publish("", queue, b"%d" % number, {"headers": [(HEADER, "I", 5)]}, mandatory=True)
    assert channel.wait_for_confirms(3) == [True, True, True]
    assert not channel.returns
    assert (drain(channel, queue), drain(channel, letters)) == ([b"0"], [])


@pytest.mark.parametrize("way", ["ack", "reject", "nack", "get without ack", "consume without ack", "purge"])
def test_32_15_the_value_is_free_again(channel: Channel, connect: Connect, unique: Unique, way: str) -> None:
    queue = unique_queue(channel, unique)
    publish(channel, queue, b"1", b"duplicate")
    if way == "purge":
        channel.queue_purge(queue)
    elif way == "consume without ack":
        consumer = connect().channel()
        tag = consumer.consume(queue, no_ack=True)
        consumer.deliveries(1)
        consumer.cancel(tag.consumer_tag)
    elif way == "get without ack":
        got(channel, queue, no_ack=True)
    else:
        delivery = got(channel, queue)
        tag_number = delivery.delivery_tag
        if way == "ack":
            channel.ack(tag_number)
        elif way == "reject":
            channel.reject(tag_number, requeue=False)
        else:
            channel.nack(tag_number, requeue=False)
    publish(channel, queue, b"2", b"duplicate")
    assert drain(channel, queue) == [b"2"]


def test_32_15_a_purge_frees_the_values_of_unacked_messages_too(channel: Channel, unique: Unique) -> None:
    queue = unique_queue(channel, unique)
    publish(channel, queue, b"1")
    publish(channel, queue, b"2", value="b")
    delivery = got(channel, queue)
    channel.queue_purge(queue)
    publish(channel, queue, b"3")
    assert counts(channel, queue)[0] == 1
    channel.ack(delivery.delivery_tag)
    publish(channel, queue, b"4")
    assert drain(channel, queue) == [b"3"]


@pytest.mark.parametrize("letters", [False, True])
@pytest.mark.parametrize("limit", [("x-max-length", "I", 1), ("x-message-ttl", "I", 1)])
def test_32_15_drop_head_and_expiry_free_the_value(
    channel: Channel, unique: Unique, limit: Triple, letters: bool
) -> None:
    dead: list[Triple] = [("x-dead-letter-exchange", "S", "")] if letters else []
    if letters:
        dead.append(("x-dead-letter-routing-key", "S", new_queue(channel, unique)))
    queue = unique_queue(channel, unique, limit, *dead)
    publish(channel, queue, b"1")
    if limit[0] == "x-max-length":
        publish(channel, queue, b"2", value="b")
        publish(channel, queue, b"3", b"duplicate")
        assert drain(channel, queue) == [b"3"]
        return
    time.sleep(0.05)
    channel.confirm_select()
    channel.consume(queue, no_ack=True)
    publish(channel, queue, b"2")
    assert [delivery.body for delivery in channel.deliveries(1)] == [b"2"]


def test_32_15_a_consumer_that_waits_without_acks(channel: Channel, connect: Connect, unique: Unique) -> None:
    queue = unique_queue(channel, unique)
    consumer = connect().channel()
    consumer.consume(queue, no_ack=True)
    for number in range(20):
        # One write, so the broker has all of them at once.
        channel.publish("", queue, b"%d" % number, {"headers": [(HEADER, "I", 1)]})
    assert len(consumer.deliveries(20)) == 20


def test_batches_of_different_messages(channel: Channel, unique: Unique) -> None:
    queue = unique_queue(channel, unique)
    channel.confirm_select()
    for number in range(60):
        headers: list[Triple] = [(HEADER, "I", number % 20), ("n", "I", number)]
        channel.publish("", queue, b"%d" % number, {"message_id": str(number), "headers": headers})
    assert channel.wait_for_confirms(60) == [True] * 60
    assert drain(channel, queue) == [b"%d" % number for number in range(20)]


def test_a_full_queue_refuses_what_is_no_duplicate(channel: Channel, unique: Unique) -> None:
    queue = unique_queue(channel, unique, ("x-max-length", "I", 1), ("x-overflow", "S", "reject-publish"))
    channel.confirm_select()
    for value in "abba":
        channel.publish("", queue, value.encode(), {"headers": [(HEADER, "S", value)]})
    assert channel.wait_for_confirms(4) == [True, False, False, True]
    assert drain(channel, queue) == [b"a"]
    publish(channel, queue, b"b", value="b")
    assert drain(channel, queue) == [b"b"]


@pytest.mark.departs("4.0")
def test_32_16_a_policy_counts_messages_that_are_there(
    channel: Channel, unique: Unique, policy: SetPolicy, api: HttpApi, vhost: str, poll: Poll
) -> None:
    queue = new_queue(channel, unique)
    publish(channel, queue, b"1", b"2")
    publish(channel, queue, b"3", value="b")
    delivery = got(channel, queue)
    policy(queue, {"x-message-deduplication": True}, apply_to="queues")
    poll(lambda: _entries(api, vhost, queue) == 2)
    publish(channel, queue, b"4")
    publish(channel, queue, b"5", value="b")
    channel.ack(delivery.delivery_tag)
    # The second message has the value.
    publish(channel, queue, b"6")
    got(channel, queue, no_ack=True)
    publish(channel, queue, b"7")
    assert drain(channel, queue) == [b"3", b"7"]


def _entries(api: HttpApi, vhost: str, queue: str) -> object:
    info = api.get(path("queues", vhost, queue))["backing_queue_status"].get("message_deduplication_cache_info", {})
    return info.get("entries")


def test_32_17_over_http(channel: Channel, unique: Unique, api: HttpApi, vhost: str) -> None:
    queue = unique_queue(channel, unique)
    publish(channel, queue, b"1", b"2")
    publish(channel, queue, b"3", value="b")
    info = api.get(path("queues", vhost, queue))["backing_queue_status"]["message_deduplication_cache_info"]
    assert (info["entries"], len(info["nodes"]), set(info)) == (2, 1, {"bytes", "entries", "nodes"})


def test_32_12_the_policy_is_checked(api: HttpApi, own_vhost: str) -> None:
    body = {"pattern": "q", "definition": {"x-message-deduplication": "true"}}
    text = '"x-message-deduplication" must be a boolean, got <<"true">>'
    api.check("PUT", path("policies", own_vhost, "p"), body, 400, refusal(text))


def test_a_policy_switches_it_off(channel: Channel, unique: Unique, policy: SetPolicy) -> None:
    queue = unique_queue(channel, unique)
    publish(channel, queue, b"1", b"2")
    policy(queue, {"x-message-deduplication": False}, apply_to="queues")
    publish(channel, queue, b"3")
    assert drain(channel, queue) == [b"1", b"3"]


def test_a_transaction(channel: Channel, connect: Connect, unique: Unique) -> None:
    queue = unique_queue(channel, unique)
    transaction = connect().channel()
    transaction.tx_select()
    for body in (b"1", b"2"):
        transaction.publish("", queue, body, {"headers": [(HEADER, "S", "a")]})
    publish(channel, queue, b"0", value="b")
    transaction.tx_commit()
    assert drain(channel, queue) == [b"0", b"1"]
