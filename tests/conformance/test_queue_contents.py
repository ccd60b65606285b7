"""Rules 14.29 to 14.34 and 15.28: queue.purge, queue.delete and basic.get."""

from __future__ import annotations

import pytest
from pamqp import commands

from tests.conformance.fixtures import Unique
from tests.conformance.reply_texts import no_queue
from tests.conformance.topology import counts, drain, fill, got, new_queue, numbered
from tests.support.wire import Channel

DELETE = commands.Queue.Delete


def test_14_29_purge_takes_ready_messages(channel: Channel, unique: Unique) -> None:
    queue = new_queue(channel, unique, *numbered(4))
    unacked = got(channel, queue)
    assert channel.queue_purge(queue).message_count == 3
    assert channel.queue_purge(queue).message_count == 0
    channel.nack(unacked.delivery_tag)
    assert drain(channel, queue) == [b"1"]


def test_14_29_purge_with_nowait(channel: Channel, unique: Unique) -> None:
    queue = new_queue(channel, unique, b"1", b"2")
    channel.queue_purge(queue, nowait=True)
    assert counts(channel, queue) == (0, 0)


def test_14_29_purge_of_a_missing_queue(channel: Channel, unique: Unique, vhost: str) -> None:
    queue = unique()
    with channel.expect_channel_close(404, no_queue(queue, vhost), commands.Queue.Purge):
        channel.queue_purge(queue)


def test_14_29_delete_counts_ready_messages(channel: Channel, unique: Unique, vhost: str) -> None:
    queue = new_queue(channel, unique, *numbered(4))
    channel.get(queue)
    assert channel.queue_delete(queue).message_count == 3
    with channel.expect_channel_close(404, no_queue(queue, vhost), commands.Queue.Declare):
        channel.queue_declare(queue, passive=True)


def test_14_29_delete_with_nowait(channel: Channel, unique: Unique, vhost: str) -> None:
    queue = new_queue(channel, unique, b"1")
    channel.queue_delete(queue, nowait=True)
    with channel.expect_channel_close(404, no_queue(queue, vhost), commands.Queue.Declare):
        channel.queue_declare(queue, passive=True)


@pytest.mark.parametrize("if_unused", [False, True])
@pytest.mark.parametrize("if_empty", [False, True])
@pytest.mark.parametrize("prefix", ["", "amq."])
def test_14_30_delete_of_a_missing_queue(
    channel: Channel, unique: Unique, if_unused: bool, if_empty: bool, prefix: str
) -> None:
    deleted = channel.queue_delete(prefix + unique(), if_unused=if_unused, if_empty=if_empty)
    assert deleted.message_count == 0


@pytest.mark.parametrize("if_empty", [False, True])
def test_14_31_in_use(channel: Channel, unique: Unique, vhost: str, if_empty: bool) -> None:
    queue = new_queue(channel, unique)
    channel.consume(queue)
    text = f"PRECONDITION_FAILED - queue '{queue}' in vhost '{vhost}' in use"
    with channel.expect_channel_close(406, text, DELETE):
        channel.queue_delete(queue, if_unused=True, if_empty=if_empty)


@pytest.mark.parametrize("in_use", [False, True])
def test_14_31_not_empty(channel: Channel, unique: Unique, vhost: str, in_use: bool) -> None:
    queue = new_queue(channel, unique, b"1", b"2")
    if in_use:
        channel.qos(1)
        channel.consume(queue)
        channel.next_delivery()
    text = f"PRECONDITION_FAILED - queue '{queue}' in vhost '{vhost}' not empty"
    with channel.expect_channel_close(406, text, DELETE):
        channel.queue_delete(queue, if_unused=in_use, if_empty=True)


def test_14_31_only_unacked_messages_count_as_empty(channel: Channel, unique: Unique) -> None:
    queue = new_queue(channel, unique, b"1")
    channel.get(queue)
    assert channel.queue_delete(queue, if_empty=True, if_unused=True).message_count == 0


def test_14_31_conditions_that_hold(channel: Channel, unique: Unique) -> None:
    queue = new_queue(channel, unique, b"1", b"2")
    assert channel.queue_delete(queue, if_unused=True).message_count == 2
    queue = new_queue(channel, unique)
    channel.consume(queue)
    assert channel.queue_delete(queue, if_empty=True).message_count == 0


@pytest.mark.parametrize("way", ["ack", "nack", "reject", "ack all", "drop"])
def test_14_34_settling_after_deletion(channel: Channel, unique: Unique, way: str) -> None:
    queue = new_queue(channel, unique, b"1")
    tag = got(channel, queue).delivery_tag
    channel.queue_delete(queue)
    if way == "ack":
        channel.ack(tag)
    elif way == "nack":
        channel.nack(tag)
    elif way == "reject":
        channel.reject(tag)
    elif way == "drop":
        channel.reject(tag, requeue=False)
    else:
        channel.ack(multiple=True)
    channel.queue_declare(queue)
    assert drain(channel, queue) == []


def test_14_34_a_new_queue_of_the_name_has_nothing_of_the_old(channel: Channel, unique: Unique) -> None:
    queue = new_queue(channel, unique, b"old", durable=True)
    channel.get(queue)
    channel.queue_delete(queue)
    channel.queue_declare(queue, durable=True)
    fill(channel, queue, b"new")
    channel.recover()
    assert drain(channel, queue) == [b"new"]


def test_15_28_get_counts_what_is_left(channel: Channel, unique: Unique) -> None:
    queue = new_queue(channel, unique, *numbered(3))
    found = [got(channel, queue) for _ in range(3)]
    assert [(each.body, each.message_count) for each in found] == [(b"1", 2), (b"2", 1), (b"3", 0)]
    assert [each.redelivered for each in found] == [False] * 3
    assert channel.get(queue) is None


@pytest.mark.parametrize("no_ack", [False, True])
def test_15_28_get_of_a_missing_queue(channel: Channel, unique: Unique, vhost: str, no_ack: bool) -> None:
    queue = unique()
    with channel.expect_channel_close(404, no_queue(queue, vhost), commands.Basic.Get):
        channel.get(queue, no_ack=no_ack)
