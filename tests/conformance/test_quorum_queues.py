"""Rules 6.1.1 to 6.1.7: declaring quorum queues, and how often they deliver a message."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from pamqp import commands

from tests.conformance.bounded import QUORUM, quorum, refill, take_dead_letters
from tests.conformance.fixtures import Connect, Poll, Refuse, Unique
from tests.conformance.reply_texts import cut
from tests.conformance.streams import STREAM
from tests.conformance.topology import counts, drain, got, new_queue
from tests.support.management import Management
from tests.support.tables import Triple
from tests.support.wire import Channel, Delivery

DECLARE = commands.Queue.Declare
COUNT = "x-delivery-count"


def delivery_counts(delivery: Delivery) -> list[Triple]:
    """Return the header that counts deliveries, if it is there."""
    return [header for header in delivery.headers if header[0] == COUNT]


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({}, "non-durable"),
        ({"durable": True, "exclusive": True}, "exclusive-owner"),
        ({"durable": True, "auto_delete": True}, "auto-delete"),
        ({"exclusive": True}, "exclusive-owner"),
        ({"auto_delete": True, "exclusive": True}, "auto-delete"),
    ],
    ids=str,
)
@pytest.mark.parametrize("queue_type", [QUORUM, STREAM], ids=["quorum", "stream"])
def test_6_1_1_and_21_1_properties(
    channel: Channel, unique: Unique, vhost: str, queue_type: Triple, options: dict[str, bool], named: str
) -> None:
    queue = unique()
    text = f"PRECONDITION_FAILED - invalid property '{named}' for queue '{queue}' in vhost '{vhost}'"
    with channel.expect_channel_close(406, text, DECLARE):
        channel.queue_declare(queue, arguments=[queue_type], **options)


@pytest.mark.parametrize("durable", [False, True])
@pytest.mark.parametrize("queue_type", [QUORUM, STREAM], ids=["quorum", "stream"])
def test_6_1_1_and_21_2_not_server_named(channel: Channel, queue_type: Triple, durable: bool) -> None:
    text = f"PRECONDITION_FAILED - Cannot declare a server-named queue for type rabbit_{queue_type[2]}_queue"
    with channel.expect_channel_close(406, text, DECLARE):
        channel.queue_declare("", arguments=[queue_type], durable=durable)


@pytest.mark.parametrize(
    "argument",
    [
        ("x-max-priority", "I", 5),
        ("x-queue-mode", "S", "lazy"),
        ("x-queue-version", "I", 2),
        ("x-max-age", "S", "1h"),
        ("x-queue-master-locator", "S", "client-local"),
        ("x-stream-max-segment-size-bytes", "I", 1000),
        ("x-initial-cluster-size", "I", 1),
    ],
    ids=lambda argument: str(argument[0]),
)
def test_6_1_2_arguments_of_another_queue_type(refuse: Refuse, argument: Triple) -> None:
    refuse(str(argument[0]), " of queue type rabbit_quorum_queue", arguments=[QUORUM, argument], durable=True)


@pytest.mark.parametrize(
    ("argument", "reason"),
    [
        (("x-max-length", "S", "5"), '"expected integer, got longstr"'),
        (("x-max-length-bytes", "I", -1), "{value_negative,-1}"),
        (("x-overflow", "S", "none"), "invalid_overflow"),
        (("x-dead-letter-strategy", "S", "none"), "invalid_dlx_strategy"),
        (("x-quorum-initial-group-size", "I", 0), "{value_zero,0}"),
        (("x-max-in-memory-length", "I", -1), "{value_negative,-1}"),
    ],
)
def test_6_1_2_invalid_values(refuse: Refuse, argument: Triple, reason: str) -> None:
    refuse(str(argument[0]), f": {reason}", arguments=[QUORUM, argument], durable=True)


def test_6_1_2_valid_arguments(channel: Channel, unique: Unique) -> None:
    arguments: tuple[Triple, ...] = (
        ("x-expires", "I", 600_000),
        ("x-message-ttl", "I", 600_000),
        ("x-delivery-limit", "I", 5),
        ("x-single-active-consumer", "t", 1),
        ("x-max-in-memory-length", "I", 0),
        ("x-max-in-memory-bytes", "I", 0),
        ("x-dead-letter-strategy", "S", "at-most-once"),
        ("x-quorum-initial-group-size", "I", 1),
        ("x-queue-leader-locator", "S", "client-local"),
    )
    queue = quorum(channel, unique, 5, 50, "reject-publish", letters="none", arguments=arguments)
    channel.consume(queue)
    refill(channel, queue, b"1")
    assert channel.next_delivery().body == b"1"


@pytest.mark.parametrize("no_ack", [False, True])
def test_6_1_2_no_get_with_a_single_active_consumer(channel: Channel, unique: Unique, vhost: str, no_ack: bool) -> None:
    queue = quorum(channel, unique, arguments=(("x-single-active-consumer", "t", 1),))
    text = cut(
        f"RESOURCE_LOCKED - cannot obtain access to locked queue '{queue}' in vhost '{vhost}'."
        " basic.get operations are not supported by quorum queues with single active consumer"
    )
    with channel.expect_channel_close(405, text, commands.Basic.Get):
        channel.get(queue, no_ack=no_ack)


@pytest.mark.parametrize("argument", [("x-delivery-limit", "S", "two"), ("x-delivery-limit", "d", 1.5)], ids=str)
def test_6_1_2_the_delivery_limit_is_not_validated(channel: Channel, unique: Unique, argument: Triple) -> None:
    queue = quorum(channel, unique, arguments=(argument,))
    refill(channel, queue, b"1")
    assert drain(channel, queue) == [b"1"]


def test_6_1_3_no_global_qos(connect: Connect, unique: Unique, vhost: str) -> None:
    channel = connect().channel()
    queue = quorum(channel, unique)
    channel.qos(5, global_=True)
    text = f"NOT_IMPLEMENTED - queue '{queue}' in vhost '{vhost}' does not support global qos"
    with channel.expect_connection_close(540, text, commands.Basic.Consume):
        channel.consume(queue)


@pytest.mark.parametrize("arguments", [[], [("x-single-active-consumer", "t", 1)]], ids=["plain", "single-active"])
def test_6_1_3_an_exclusive_consumer_keeps_nobody_out(
    channel: Channel, unique: Unique, arguments: list[Triple]
) -> None:
    queue = quorum(channel, unique, arguments=arguments)
    for exclusive in (True, False, True):
        channel.consume(queue, exclusive=exclusive)
    refill(channel, queue, b"1")
    assert channel.next_delivery().body == b"1"


def test_6_1_3_declare_ok_counts_active_consumers(channel: Channel, unique: Unique, poll: Poll) -> None:
    plain = quorum(channel, unique)
    single = quorum(channel, unique, arguments=[("x-single-active-consumer", "t", 1)])
    for queue in (plain, single):
        for _ in range(3):
            channel.consume(queue)
    poll(lambda: counts(channel, plain)[1] == 3)
    poll(lambda: counts(channel, single)[1] == 1)


@pytest.mark.parametrize("properties", [{}, {"delivery_mode": 1}, {"delivery_mode": 2, "priority": 3}], ids=str)
def test_6_1_4_properties_stay_as_they_were(channel: Channel, unique: Unique, properties: dict[str, int]) -> None:
    queue = quorum(channel, unique)
    channel.consume(queue)
    refill(channel, queue, b"1", **properties)
    assert channel.next_delivery().properties == properties


def test_6_1_5_requeued_messages_go_to_the_tail(channel: Channel, unique: Unique, poll: Poll) -> None:
    queue = quorum(channel, unique)
    refill(channel, queue, b"a0", b"a1", b"b2")
    unacked = [got(channel, queue) for _ in range(2)]
    channel.nack(unacked[-1].delivery_tag, multiple=True)
    poll(lambda: counts(channel, queue)[0] == 3)
    assert drain(channel, queue) == [b"b2", b"a0", b"a1"]


def test_6_1_6_a_get_counts_from_zero(channel: Channel, unique: Unique, poll: Poll) -> None:
    queue = quorum(channel, unique)
    refill(channel, queue, b"1", headers=[("k", "S", "v")])
    for count in range(4):
        poll(lambda: counts(channel, queue)[0] == 1)
        delivery = got(channel, queue)
        assert (delivery.headers, delivery.redelivered) == ([("k", "S", "v"), (COUNT, "l", count)], count > 0)
        channel.nack(delivery.delivery_tag)


def test_6_1_6_a_delivery_counts_from_one(channel: Channel, unique: Unique) -> None:
    queue = quorum(channel, unique)
    channel.consume(queue)
    refill(channel, queue, b"1")
    for count in range(4):
        delivery = channel.next_delivery()
        assert (delivery_counts(delivery), delivery.redelivered) == ([(COUNT, "l", count)] if count else [], count > 0)
        channel.nack(delivery.delivery_tag)


def take_back(connect: Connect, queue: str, way: str) -> None:
    """Consume one message in a connection of its own and give it back."""
    channel = connect().channel()
    channel.qos(1)
    channel.consume(queue, "tag")
    delivery = channel.next_delivery()
    channel.cancel("tag")
    if way == "nack":
        channel.nack(delivery.delivery_tag)
    elif way == "reject":
        channel.reject(delivery.delivery_tag)
    elif way == "channel":
        channel.close()
    elif way == "lost":
        channel.connection.abort()
    channel.connection.close()


@pytest.mark.parametrize("way", ["nack", "reject", "channel", "connection", "lost"])
@pytest.mark.parametrize("dead_letters", [True, False])
def test_6_1_7_delivery_limit(
    channel: Channel, connect: Connect, unique: Unique, poll: Poll, way: str, dead_letters: bool
) -> None:
    letters = new_queue(channel, unique, hint="letters")
    limit: Triple = ("x-delivery-limit", "I", 2)
    queue = quorum(channel, unique, letters=letters if dead_letters else None, arguments=(limit,))
    refill(channel, queue, b"1")
    for _ in range(3):
        poll(lambda: counts(channel, queue) == (1, 0))
        take_back(connect, queue, way)
    if dead_letters:
        poll(lambda: counts(channel, letters)[0] == 1)
        assert take_dead_letters(channel, letters) == [(b"1", "delivery_limit")]
    # RabbitMQ counts a cancelled consumer until all that it held has been settled.
    poll(lambda: counts(channel, queue) == (0, 0))
    assert channel.get(queue) is None


def redeliveries(channel: Channel, queue: str, most: int) -> int:
    """Nack a message until it does not come back, at most so often; return how often it was delivered."""
    channel.qos(1)
    channel.consume(queue)
    refill(channel, queue, b"1")
    for count in range(most):
        try:
            delivery = channel.next_delivery(timeout=5)
        except TimeoutError:
            return count
        channel.nack(delivery.delivery_tag)
    return most


@pytest.mark.departs("4.0")
def test_6_1_7_default_delivery_limit(channel: Channel, unique: Unique) -> None:
    letters = new_queue(channel, unique, hint="letters")
    queue = quorum(channel, unique, letters=letters)
    assert redeliveries(channel, queue, 30) == 21
    assert take_dead_letters(channel, letters) == [(b"1", "delivery_limit")]


@pytest.mark.departs("4.0")
def test_6_1_7_no_delivery_limit(channel: Channel, unique: Unique) -> None:
    queue = quorum(channel, unique, arguments=(("x-delivery-limit", "I", -1),))
    assert redeliveries(channel, queue, 30) == 30


@pytest.mark.departs("4.0")
@pytest.mark.parametrize(
    ("given", "shown"), [((), 20), ([("x-delivery-limit", "I", 3)], 3), ([("x-delivery-limit", "l", -1)], "unlimited")]
)
def test_6_1_7_the_delivery_limit_is_shown(
    channel: Channel, unique: Unique, management: Management, vhost: str, given: Sequence[Triple], shown: object
) -> None:
    queue = new_queue(channel, unique, arguments=[QUORUM, *given], durable=True)
    assert management.request("GET", "queues", vhost, queue)["delivery_limit"] == shown
