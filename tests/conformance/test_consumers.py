"""Rules 15.1 to 15.19: basic.consume, basic.cancel, and cancellation by the broker."""

from __future__ import annotations

import re
from typing import Any

import pytest
from pamqp import commands

from tests.conformance.fixtures import Connect, Poll, Unique
from tests.conformance.reply_texts import exclusive_use, invalid_argument, no_queue
from tests.conformance.topology import bodies, counts, drain, fill, got, new_queue, numbered
from tests.support.wire import BODY, HEADER, Channel, Connection

CONSUME = commands.Basic.Consume


def test_15_1_consume_ok_comes_before_the_first_delivery(channel: Channel, unique: Unique) -> None:
    queue = new_queue(channel, unique, b"waiting")
    channel.send(CONSUME, queue=queue, consumer_tag="tag", no_ack=True)
    wire = channel.connection.wire
    assert wire.expect(channel.number, commands.Basic.ConsumeOk).consumer_tag == "tag"
    deliver = wire.expect(channel.number, commands.Basic.Deliver)
    assert (deliver.consumer_tag, deliver.delivery_tag, deliver.redelivered) == ("tag", 1, False)
    assert [wire.read_frame().type for _ in range(2)] == [HEADER, BODY]


def test_15_1_consume_with_nowait(channel: Channel, unique: Unique) -> None:
    queue = new_queue(channel, unique, b"waiting")
    channel.consume(queue, "tag", nowait=True)
    delivery = channel.next_delivery()
    assert (delivery.consumer_tag, delivery.body) == ("tag", b"waiting")
    assert not channel.replies


def test_15_1_generated_tags(channel: Channel, unique: Unique) -> None:
    queue = new_queue(channel, unique)
    tags = {channel.consume(queue).consumer_tag for _ in range(3)}
    assert len(tags) == 3
    for tag in tags:
        assert re.fullmatch(r"amq\.ctag-[A-Za-z0-9_-]{22}", tag)


@pytest.mark.parametrize("tag", ["ä☃", " ", "amq.ctag-mine", "t" * 255])
def test_15_1_any_tag_goes(channel: Channel, unique: Unique, tag: str) -> None:
    queue = new_queue(channel, unique, b"one")
    assert channel.consume(queue, tag).consumer_tag == tag
    assert channel.next_delivery().consumer_tag == tag
    assert channel.cancel(tag).consumer_tag == tag


def test_15_2_a_used_tag(connection: Connection, unique: Unique) -> None:
    channel = connection.channel()
    queue, other = new_queue(channel, unique), new_queue(channel, unique)
    channel.consume(queue, "abc")
    with channel.expect_connection_close(530, "NOT_ALLOWED - attempt to reuse consumer tag 'abc'", CONSUME):
        channel.consume(other, "abc")


def test_15_2_the_same_tag_on_another_channel(connection: Connection, unique: Unique) -> None:
    first, second = connection.channel(), connection.channel()
    queue = new_queue(first, unique)
    first.consume(queue, "abc")
    second.consume(queue, "abc")
    assert counts(first, queue) == (0, 2)


@pytest.mark.parametrize("nowait", [False, True])
def test_15_3_missing_queue(channel: Channel, unique: Unique, vhost: str, nowait: bool) -> None:
    queue = unique()
    with channel.expect_channel_close(404, no_queue(queue, vhost), CONSUME):
        channel.consume(queue, nowait=nowait)


@pytest.mark.parametrize("first_exclusive", [True, False])
@pytest.mark.parametrize("elsewhere", [True, False])
def test_15_4_exclusive_consumer(
    channel: Channel, connect: Connect, unique: Unique, vhost: str, first_exclusive: bool, elsewhere: bool
) -> None:
    queue = new_queue(channel, unique)
    channel.consume(queue, exclusive=first_exclusive)
    other = connect().channel() if elsewhere else channel
    with other.expect_channel_close(403, exclusive_use(queue, vhost), CONSUME):
        other.consume(queue, exclusive=not first_exclusive)


def test_15_4_two_exclusive_consumers(channel: Channel, unique: Unique, vhost: str) -> None:
    queue = new_queue(channel, unique)
    channel.consume(queue, exclusive=True)
    with channel.expect_channel_close(403, exclusive_use(queue, vhost), CONSUME):
        channel.consume(queue, exclusive=True)


def test_15_4_get_beside_an_exclusive_consumer(channel: Channel, connect: Connect, unique: Unique) -> None:
    queue = new_queue(channel, unique, b"1", b"2")
    channel.qos(1)
    channel.consume(queue, exclusive=True)
    assert channel.next_delivery().body == b"1"
    assert got(connect().channel(), queue, no_ack=True).body == b"2"


@pytest.mark.parametrize("end", ["cancel", "channel", "connection", "TCP"])
def test_15_4_exclusive_use_ends_with_the_consumer(
    channel: Channel, connect: Connect, unique: Unique, poll: Poll, end: str
) -> None:
    queue = new_queue(channel, unique)
    owner = connect().channel()
    tag = owner.consume(queue, exclusive=True).consumer_tag
    if end == "cancel":
        owner.cancel(tag)
    elif end == "channel":
        owner.close()
    elif end == "connection":
        owner.connection.close()
    else:
        owner.connection.abort()
        poll(lambda: counts(channel, queue) == (0, 0))
    channel.consume(queue, exclusive=True)


def test_15_5_no_local_is_ignored(channel: Channel, unique: Unique) -> None:
    queue = new_queue(channel, unique)
    channel.consume(queue, no_local=True, no_ack=True)
    channel.publish("", queue, b"my own")
    assert channel.next_delivery().body == b"my own"


def test_15_5_unknown_arguments_are_ignored(channel: Channel, unique: Unique) -> None:
    queue = new_queue(channel, unique, b"one")
    channel.consume(queue, arguments=[("foo", "S", "bar"), ("x-foo", "V", None), ("x-cancel-on", "t", 1)])
    assert channel.next_delivery().body == b"one"


@pytest.mark.parametrize("letter", ["b", "B", "s", "u", "I", "i", "l", "L"])
def test_15_6_priority_of_any_integer_type(channel: Channel, unique: Unique, letter: str) -> None:
    queue = new_queue(channel, unique)
    channel.consume(queue, "low", no_ack=True)
    channel.consume(queue, "high", no_ack=True, arguments=[("x-priority", letter, 5)])
    fill(channel, queue, b"1", b"2")
    assert [each.consumer_tag for each in channel.deliveries(2)] == ["high", "high"]


@pytest.mark.parametrize(
    ("letter", "value", "type_name"), [("S", "5", "longstr"), ("d", 5.0, "double"), ("t", 1, "bool")]
)
def test_15_6_priority_of_another_type(
    channel: Channel, unique: Unique, vhost: str, letter: str, value: Any, type_name: str
) -> None:
    queue = new_queue(channel, unique)
    text = invalid_argument("x-priority", queue, vhost, f': "expected integer, got {type_name}"')
    with channel.expect_channel_close(406, text, CONSUME):
        channel.consume(queue, arguments=[("x-priority", letter, value)])


@pytest.mark.parametrize(("letter", "value", "type_name"), [("I", 1, "signedint"), ("S", "true", "longstr")])
def test_15_6_cancel_on_ha_failover_is_a_flag(
    channel: Channel, unique: Unique, vhost: str, letter: str, value: Any, type_name: str
) -> None:
    queue = new_queue(channel, unique)
    channel.consume(queue, arguments=[("x-cancel-on-ha-failover", "t", 1)])
    text = invalid_argument("x-cancel-on-ha-failover", queue, vhost, f": {{unacceptable_type,{type_name}}}")
    with channel.expect_channel_close(406, text, CONSUME):
        channel.consume(queue, arguments=[("x-cancel-on-ha-failover", letter, value)])


def test_15_6_a_wrong_value_comes_before_an_argument_of_another_queue_type(
    channel: Channel, unique: Unique, vhost: str
) -> None:
    queue = new_queue(channel, unique)
    text = invalid_argument("x-priority", queue, vhost, ': "expected integer, got longstr"')
    with channel.expect_channel_close(406, text, CONSUME):
        channel.consume(queue, arguments=[("x-stream-offset", "S", "first"), ("x-priority", "S", "5")])


@pytest.mark.parametrize("name", ["x-stream-offset", "x-cancel-on-ha-failover"])
def test_15_6_arguments_that_quorum_queues_do_not_know(channel: Channel, unique: Unique, vhost: str, name: str) -> None:
    queue = unique()
    channel.queue_declare(queue, durable=True, arguments=[("x-queue-type", "S", "quorum")])
    try:
        text = invalid_argument(name, queue, vhost, " of queue type rabbit_quorum_queue")
        with channel.expect_channel_close(406, text, CONSUME):
            channel.consume(queue, arguments=[(name, "I", 1)])
    finally:
        channel.connection.channel(channel.number).queue_delete(queue)


@pytest.mark.parametrize("tag", ["unknown", ""])
def test_15_7_cancel_of_an_unknown_tag(channel: Channel, tag: str) -> None:
    assert channel.cancel(tag).consumer_tag == tag


def test_15_7_nothing_comes_after_cancel_ok(channel: Channel, unique: Unique) -> None:
    queue = new_queue(channel, unique)
    channel.consume(queue, "tag", no_ack=True)
    assert channel.cancel("tag").consumer_tag == "tag"
    channel.publish("", queue, b"late")
    channel.expect_no_delivery(queue)
    assert counts(channel, queue) == (1, 0)
    assert channel.cancel("tag").consumer_tag == "tag"


def test_15_7_cancel_with_nowait(channel: Channel, unique: Unique) -> None:
    queue = new_queue(channel, unique)
    channel.consume(queue, "tag")
    channel.cancel("tag", nowait=True)
    channel.cancel("unknown", nowait=True)
    assert counts(channel, queue) == (0, 0)


def test_15_7_a_cancelled_tag_is_free(channel: Channel, unique: Unique) -> None:
    queue = new_queue(channel, unique, b"one")
    channel.consume(queue, "tag")
    channel.next_delivery()
    channel.cancel("tag")
    channel.consume(queue, "tag")
    fill(channel, queue, b"two")
    assert channel.next_delivery().body == b"two"


def test_15_8_unacked_messages_stay_with_the_channel(channel: Channel, connect: Connect, unique: Unique) -> None:
    queue = new_queue(channel, unique, *numbered(3))
    other = connect().channel()
    other.consume(queue, "tag")
    tags = [each.delivery_tag for each in other.deliveries(3)]
    other.cancel("tag")
    assert counts(channel, queue) == (0, 0)
    other.ack(tags[1])
    other.close()
    assert drain(channel, queue) == [b"1", b"3"]


@pytest.mark.departs("none")
def test_15_9_pipelined_consume_and_cancel(channel: Channel, unique: Unique) -> None:
    # 3.10.8 can fail here with 541.
    queue = new_queue(channel, unique)
    channel.send(CONSUME, queue=queue, consumer_tag="tag")
    channel.send(commands.Basic.Cancel, consumer_tag="tag")
    assert channel.reply(commands.Basic.ConsumeOk).consumer_tag == "tag"
    assert channel.reply(commands.Basic.CancelOk).consumer_tag == "tag"
    assert counts(channel, queue) == (0, 0)


def test_15_18_consumers_hear_of_the_deletion(channel: Channel, connect: Connect, unique: Unique) -> None:
    queue = new_queue(channel, unique)
    other = connect().channel()
    other.consume(queue, "one")
    other.consume(queue, "two")
    channel.queue_delete(queue)
    other.wait_until(lambda: len(other.cancelled) == 2, "basic.cancel")
    assert sorted(other.cancelled) == ["one", "two"]


def test_15_18_basic_cancel_has_nowait_set(channel: Channel, connect: Connect, unique: Unique) -> None:
    queue = new_queue(channel, unique)
    other = connect().channel()
    other.consume(queue, "tag")
    channel.queue_delete(queue)
    cancel = other.connection.wire.expect(other.number, commands.Basic.Cancel)
    assert (cancel.consumer_tag, cancel.nowait) == ("tag", True)


def test_15_18_delete_ok_comes_first(channel: Channel, unique: Unique) -> None:
    queue = new_queue(channel, unique)
    channel.consume(queue, "tag")
    channel.send(commands.Queue.Delete, queue=queue)
    wire = channel.connection.wire
    wire.expect(channel.number, commands.Queue.DeleteOk)
    assert wire.expect(channel.number, commands.Basic.Cancel).consumer_tag == "tag"


def test_15_19_the_tag_is_free_again(channel: Channel, unique: Unique) -> None:
    queue, other = new_queue(channel, unique), new_queue(channel, unique, *numbered(2))
    channel.consume(queue, "tag")
    channel.queue_delete(queue)
    channel.wait_until(lambda: bool(channel.cancelled), "basic.cancel")
    channel.consume(other, "tag")
    assert bodies(channel.deliveries(2)) == numbered(2)
