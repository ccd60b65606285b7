"""Rules 17.7 to 17.13: transactions."""

from __future__ import annotations

from typing import Any

import pytest
from pamqp import commands

from tests.conformance.fixtures import Connect, Poll, Unique
from tests.conformance.reply_texts import no_exchange, unknown_tag
from tests.conformance.topology import bodies, counts, drain, exists, fill, got, new_queue, numbered
from tests.support.wire import Channel

NOT_TRANSACTIONAL = "PRECONDITION_FAILED - channel is not transactional"


@pytest.fixture
def transaction(connect: Connect) -> Channel:
    """A channel in transaction mode, on a connection of its own."""
    channel = connect().channel()
    channel.tx_select()
    return channel


@pytest.mark.parametrize("kind", [commands.Tx.Commit, commands.Tx.Rollback])
def test_17_7_without_select(channel: Channel, kind: type[Any]) -> None:
    with channel.expect_channel_close(406, NOT_TRANSACTIONAL, kind):
        channel.rpc(kind)


def test_17_7_empty_transactions(transaction: Channel) -> None:
    transaction.tx_commit()
    transaction.tx_rollback()
    transaction.tx_select()
    transaction.tx_commit()


def test_17_7_the_channel_stays_transactional(transaction: Channel, channel: Channel, unique: Unique) -> None:
    queue = new_queue(channel, unique)
    for body in (b"1", b"2"):
        transaction.publish("", queue, body)
        transaction.sync(queue)
        assert drain(channel, queue) == []
        transaction.tx_commit()
        assert drain(channel, queue) == [body]
        transaction.publish("", queue, b"rolled back")
        transaction.tx_rollback()
    transaction.tx_commit()
    assert drain(channel, queue) == []


def test_17_7_a_second_select_keeps_what_is_held(transaction: Channel, channel: Channel, unique: Unique) -> None:
    queue = new_queue(channel, unique)
    transaction.publish("", queue, b"held")
    transaction.tx_select()
    transaction.tx_commit()
    assert drain(channel, queue) == [b"held"]


def test_17_8_publishes_take_effect_in_order_at_commit(transaction: Channel, channel: Channel, unique: Unique) -> None:
    first, second = new_queue(channel, unique), new_queue(channel, unique, durable=True)
    for body in numbered(5):
        transaction.publish("", first, body)
        transaction.publish("", second, body, {"delivery_mode": 2})
    transaction.sync(first, second)
    assert counts(channel, first) == counts(channel, second) == (0, 0)
    transaction.tx_commit()
    assert drain(channel, first) == drain(channel, second) == numbered(5)


@pytest.mark.parametrize("then", ["commit", "rollback"])
def test_17_8_returns_come_before_commit_ok(transaction: Channel, unique: Unique, then: str) -> None:
    transaction.publish("", unique(), b"lost", mandatory=True)
    transaction.sync()
    assert not transaction.returns
    if then == "commit":
        transaction.tx_commit()
        assert [each.body for each in transaction.returns] == [b"lost"]
    else:
        transaction.tx_rollback()
        transaction.sync()
        assert not transaction.returns


def test_17_8_a_missing_exchange_fails_at_once(
    transaction: Channel, channel: Channel, unique: Unique, vhost: str
) -> None:
    queue, exchange = new_queue(channel, unique), unique("x")
    transaction.publish("", queue, b"held")
    with transaction.expect_channel_close(404, no_exchange(exchange, vhost), commands.Basic.Publish):
        transaction.publish(exchange, "key")
    transaction.connection.channel().sync(queue)
    assert drain(channel, queue) == []


@pytest.mark.parametrize("requeue", [False, True])
@pytest.mark.parametrize("way", ["nack", "reject"])
def test_17_9_nacks_and_rejects_are_held(
    transaction: Channel, channel: Channel, unique: Unique, way: str, requeue: bool
) -> None:
    queue = new_queue(channel, unique, b"1")
    tag = got(transaction, queue).delivery_tag
    getattr(transaction, way)(tag, requeue=requeue)
    transaction.sync(queue)
    assert counts(channel, queue) == (0, 0)
    transaction.tx_commit()
    transaction.sync(queue)
    assert drain(channel, queue) == [b"1"] * requeue
    transaction.close()
    assert drain(channel, queue) == []


@pytest.mark.parametrize("multiple", [False, True])
def test_17_9_a_held_tag_is_no_longer_outstanding(
    transaction: Channel, channel: Channel, unique: Unique, multiple: bool
) -> None:
    queue = new_queue(channel, unique, b"1")
    tag = got(transaction, queue).delivery_tag
    transaction.ack(tag, multiple=multiple)
    with transaction.expect_channel_close(406, unknown_tag(tag), commands.Basic.Ack):
        transaction.ack(tag)


def test_17_9_rollback_makes_tags_outstanding_again(transaction: Channel, channel: Channel, unique: Unique) -> None:
    queue = new_queue(channel, unique, *numbered(3))
    transaction.consume(queue)
    deliveries = transaction.deliveries(3)
    transaction.ack(deliveries[0].delivery_tag)
    transaction.nack(deliveries[1].delivery_tag)
    transaction.tx_rollback()
    transaction.expect_no_delivery(queue)
    transaction.ack(deliveries[0].delivery_tag)
    transaction.tx_commit()
    transaction.close()
    assert drain(channel, queue) == [b"2", b"3"]


def test_17_9_commit_settles_publishes_and_acks(transaction: Channel, channel: Channel, unique: Unique) -> None:
    source, target = new_queue(channel, unique, *numbered(3)), new_queue(channel, unique)
    transaction.consume(source)
    for delivery in transaction.deliveries(3):
        transaction.publish("", target, delivery.body)
        transaction.ack(delivery.delivery_tag)
    transaction.tx_commit()
    transaction.close()
    assert (drain(channel, source), drain(channel, target)) == ([], numbered(3))


def test_17_9_a_held_ack_makes_no_room(transaction: Channel, channel: Channel, unique: Unique) -> None:
    queue = new_queue(channel, unique, b"1", b"2")
    transaction.qos(1)
    transaction.consume(queue)
    tag = transaction.next_delivery().delivery_tag
    transaction.ack(tag)
    transaction.expect_no_delivery(queue)
    transaction.tx_commit()
    assert transaction.next_delivery().body == b"2"


@pytest.mark.parametrize("end", ["channel", "connection", "TCP"])
def test_17_10_without_commit_nothing_happened(
    transaction: Channel, channel: Channel, unique: Unique, poll: Poll, end: str
) -> None:
    source, target = new_queue(channel, unique, b"1", b"2"), new_queue(channel, unique)
    for _ in range(2):
        transaction.ack(got(transaction, source).delivery_tag)
    transaction.publish("", target, b"lost")
    transaction.sync(target)
    if end == "channel":
        transaction.close()
    elif end == "connection":
        transaction.connection.close()
    else:
        transaction.connection.abort()
    poll(lambda: counts(channel, source) == (2, 0))
    again = [got(channel, source) for _ in range(2)]
    assert bodies(again) == [b"1", b"2"]
    assert [each.redelivered for each in again] == [True, True]
    assert drain(channel, target) == []


def test_17_13_recover_leaves_held_acks(transaction: Channel, channel: Channel, unique: Unique) -> None:
    queue = new_queue(channel, unique, b"1", b"2")
    tag = got(transaction, queue).delivery_tag
    got(transaction, queue)
    transaction.ack(tag)
    transaction.recover()
    transaction.sync(queue)
    assert drain(channel, queue) == [b"2"]
    transaction.tx_commit()
    transaction.close()
    assert drain(channel, queue) == []


def test_17_13_other_methods_are_not_transactional(
    transaction: Channel, channel: Channel, connect: Connect, unique: Unique
) -> None:
    queue = new_queue(transaction, unique)
    transaction.queue_bind(queue, "amq.direct", queue)
    fill(channel, queue, b"1")
    assert got(transaction, queue, no_ack=True).body == b"1"
    transaction.tx_rollback()
    channel.publish("amq.direct", queue, b"2")
    assert drain(channel, queue) == [b"2"]
    transaction.queue_delete(queue)
    transaction.tx_rollback()
    assert not exists(connect, queue)
