"""Rules 23.2 to 23.19 and 24.1 to 24.3: consuming streams from any place, credit, and what cannot be done with them."""

from __future__ import annotations

import time

import pytest
from pamqp import commands

from tests.conformance.fixtures import Connect, Unique
from tests.conformance.http_api import HttpApi, bad_request, path
from tests.conformance.reply_texts import invalid_argument, no_queue, unknown_tag
from tests.conformance.streams import FIRST, consume, consumer, fill, new_stream, numbered, offsets, where
from tests.conformance.topology import bodies, counts, new_queue
from tests.support.methods import MethodType
from tests.support.tables import Triple
from tests.support.wire import Channel

CONSUME = commands.Basic.Consume


@pytest.fixture
def stream(connect: Connect, unique: Unique) -> str:
    """An empty stream."""
    return new_stream(connect().channel(), unique)


# -- refusals -------------------------------------------------------------------------------------------


def test_23_2_prefetch_is_needed(channel: Channel, stream: str, vhost: str) -> None:
    text = f"PRECONDITION_FAILED - consumer prefetch count is not set for '{where(stream, vhost)}'"
    with channel.expect_channel_close(406, text, CONSUME):
        channel.rpc(CONSUME, queue=stream)


def test_23_2_a_global_limit_is_none(channel: Channel, stream: str, vhost: str) -> None:
    channel.qos(5, global_=True)
    text = f"PRECONDITION_FAILED - consumer prefetch count is not set for '{where(stream, vhost)}'"
    with channel.expect_channel_close(406, text, CONSUME):
        channel.rpc(CONSUME, queue=stream)


def test_23_3_no_ack(channel: Channel, stream: str, vhost: str) -> None:
    channel.qos(5)
    channel.qos(5, global_=True)
    text = f"NOT_IMPLEMENTED - automatic acknowledgement not supported by stream queues {where(stream, vhost)}"
    with channel.expect_connection_close(540, text, CONSUME):
        channel.rpc(CONSUME, queue=stream, no_ack=True)


def test_23_3_global_qos(channel: Channel, stream: str, vhost: str) -> None:
    channel.qos(5)
    channel.qos(5, global_=True)
    text = f"NOT_IMPLEMENTED - {where(stream, vhost)} does not support global qos"
    with channel.expect_connection_close(540, text, CONSUME):
        channel.rpc(CONSUME, queue=stream)


def test_23_3_global_qos_that_is_lifted(channel: Channel, stream: str) -> None:
    channel.qos(5, global_=True)
    consume(channel, stream, prefetch=5)


@pytest.mark.parametrize("argument", [("x-priority", "I", 5), ("x-cancel-on-ha-failover", "t", 1)], ids=str)
def test_23_4_arguments_of_other_queue_types(channel: Channel, stream: str, vhost: str, argument: Triple) -> None:
    # Before the prefetch limit is looked at.
    text = invalid_argument(str(argument[0]), stream, vhost, " of queue type rabbit_stream_queue")
    with channel.expect_channel_close(406, text, CONSUME):
        channel.rpc(CONSUME, queue=stream, arguments=[argument])


def test_23_4_other_arguments(channel: Channel, stream: str) -> None:
    consume(channel, stream, ("x-foo", "S", "any"), ("x-credit", "F", [("credit", "I", 1), ("drain", "t", 0)]))


def test_23_4_an_offset_needs_a_stream(channel: Channel, unique: Unique, vhost: str) -> None:
    queue = new_queue(channel, unique)
    text = invalid_argument("x-stream-offset", queue, vhost, " of queue type rabbit_classic_queue")
    with channel.expect_channel_close(406, text, CONSUME):
        channel.rpc(CONSUME, queue=queue, arguments=[FIRST])


@pytest.mark.parametrize("value", ["5", "1x", "0s"])
def test_23_5_wrong_offsets(channel: Channel, stream: str, vhost: str, value: str) -> None:
    reason = f': {{invalid_stream_offset_arg,{{longstr,<<"{value}">>}}}}'
    text = invalid_argument("x-stream-offset", stream, vhost, reason)
    with channel.expect_channel_close(406, text, CONSUME):
        # Before what streams do not have is looked at.
        arguments = [("x-priority", "I", 1), ("x-stream-offset", "S", value)]
        channel.rpc(CONSUME, queue=stream, arguments=arguments)


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (("S", ""), "{invalid_stream_offset_arg,{longstr,<<>>}}"),
        (("S", "First"), '{invalid_stream_offset_arg,{longstr,<<"First">>}}'),
        (("S", "-1h"), '{invalid_stream_offset_arg,{longstr,<<"-1h">>}}'),
        (("d", 1.5), "{unacceptable_type,double}"),
        (("t", 1), "{unacceptable_type,bool}"),
        (("V", None), "{unacceptable_type,void}"),
    ],
    ids=str,
)
@pytest.mark.departs("none")
def test_23_5_what_is_no_offset(
    channel: Channel, stream: str, vhost: str, value: tuple[str, object], reason: str
) -> None:
    # RabbitMQ closes the connection with 541.
    text = invalid_argument("x-stream-offset", stream, vhost, f": {reason}")
    with channel.expect_channel_close(406, text, CONSUME):
        channel.rpc(CONSUME, queue=stream, arguments=[("x-stream-offset", *value)])


# -- places ---------------------------------------------------------------------------------------------


def test_23_6_the_default_is_next(channel: Channel, connect: Connect, stream: str) -> None:
    fill(connect, stream, *numbered(5))
    consume(channel, stream)
    fill(connect, stream, *numbered(5, 5))
    assert offsets(channel.deliveries(5)) == [5, 6, 7, 8, 9]


@pytest.mark.parametrize(
    ("value", "first"),
    [
        (("S", "first"), 0),
        (("x", b"first"), 0),
        (("I", 0), 0),
        (("b", 3), 3),
        (("l", 7), 7),
        (("I", -5), 0),
        (("S", "next"), 8),
        (("x", b"next"), 8),
        (("l", 8), 8),
        (("l", 9), 9),
        (("T", 0), 0),
        (("S", "1h"), 0),
        (("T", 1 << 40), 8),
    ],
    ids=str,
)
def test_23_5_to_23_9_where_a_consumer_begins(
    channel: Channel, connect: Connect, stream: str, value: tuple[str, object], first: int
) -> None:
    fill(connect, stream, *numbered(8))
    consume(channel, stream, ("x-stream-offset", *value))
    fill(connect, stream, *numbered(4, 8))
    found = channel.deliveries(12 - first)
    assert offsets(found) == list(range(first, 12))
    assert bodies(found) == numbered(12 - first, first)
    assert not any(delivery.redelivered for delivery in found)


def test_23_7_an_offset_of_the_future(channel: Channel, connect: Connect, stream: str) -> None:
    consume(channel, stream, ("x-stream-offset", "l", 12))
    fill(connect, stream, *numbered(16))
    assert offsets(channel.deliveries(4)) == [12, 13, 14, 15]


def test_23_8_last(channel: Channel, connect: Connect, stream: str) -> None:
    fill(connect, stream, *numbered(8))
    consume(channel, stream, ("x-stream-offset", "S", "last"))
    # One message was published at a time.
    assert offsets(channel.deliveries(1)) == [7]


def test_23_8_last_of_an_empty_stream(channel: Channel, connect: Connect, stream: str) -> None:
    consume(channel, stream, ("x-stream-offset", "S", "last"))
    fill(connect, stream, *numbered(2))
    assert offsets(channel.deliveries(2)) == [0, 1]


def test_23_9_a_time(channel: Channel, connect: Connect, stream: str) -> None:
    fill(connect, stream, *numbered(3))
    between = int(time.time()) + 2
    while time.time() < between + 0.1:
        time.sleep(0.05)
    fill(connect, stream, *numbered(3, 3))
    consume(channel, stream, ("x-stream-offset", "T", between))
    assert offsets(channel.deliveries(3)) == [3, 4, 5]


def test_23_10_consumers_have_their_own_places(channel: Channel, connect: Connect, stream: str) -> None:
    fill(connect, stream, *numbered(20))
    everything = consumer(connect, stream, FIRST)
    some = consumer(connect, stream, ("x-stream-offset", "I", 15))
    channel.qos(5)
    channel.rpc(CONSUME, queue=stream, consumer_tag="a", exclusive=True, arguments=[FIRST])
    channel.rpc(CONSUME, queue=stream, consumer_tag="b", exclusive=True)
    assert offsets(everything.deliveries(20)) == list(range(20))
    assert offsets(some.deliveries(5)) == [15, 16, 17, 18, 19]
    assert {delivery.consumer_tag for delivery in channel.deliveries(5)} == {"a"}


# -- credit ---------------------------------------------------------------------------------------------


@pytest.mark.departs("4.0")
def test_23_11_credit_is_for_messages(channel: Channel, connect: Connect, stream: str) -> None:
    # RabbitMQ before 4.0 sends whole batches.
    publisher = connect().channel()
    publisher.rpc(commands.Confirm.Select)
    for body in numbered(20):
        publisher.publish("", stream, body)
    publisher.wait_for_confirms(20)
    consume(channel, stream, FIRST, prefetch=3)
    channel.deliveries(3)
    channel.expect_no_delivery(stream)
    channel.send(commands.Basic.Ack, delivery_tag=2, multiple=True)
    assert offsets(channel.deliveries(2)) == [3, 4]
    channel.expect_no_delivery(stream)


def test_23_12_acks_in_any_order(channel: Channel, connect: Connect, stream: str) -> None:
    fill(connect, stream, *numbered(12))
    consume(channel, stream, FIRST, prefetch=3)
    tags = [delivery.delivery_tag for delivery in channel.deliveries(3)]
    for tag in (tags[1], tags[0]):
        channel.send(commands.Basic.Ack, delivery_tag=tag)
    assert offsets(channel.deliveries(2)) == [3, 4]
    channel.send(commands.Basic.Ack, delivery_tag=0, multiple=True)
    assert offsets(channel.deliveries(3)) == [5, 6, 7]
    # Nothing is removed.
    assert offsets(consumer(connect, stream, FIRST).deliveries(12)) == list(range(12))


def test_23_12_credit_comes_with_the_commit(channel: Channel, connect: Connect, stream: str) -> None:
    fill(connect, stream, *numbered(4))
    channel.rpc(commands.Tx.Select)
    consume(channel, stream, FIRST, prefetch=1)
    channel.send(commands.Basic.Ack, delivery_tag=channel.next_delivery().delivery_tag)
    channel.expect_no_delivery(stream)
    channel.rpc(commands.Tx.Commit)
    assert offsets(channel.deliveries(1)) == [1]


@pytest.mark.parametrize("requeue", [False, True])
@pytest.mark.parametrize("method", [commands.Basic.Nack, commands.Basic.Reject], ids=["nack", "reject"])
@pytest.mark.departs("3.13")
def test_23_13_a_rejection_is_an_ack(
    channel: Channel, connect: Connect, stream: str, method: MethodType, requeue: bool
) -> None:
    # 3.10.8 closes the connection with 540.
    fill(connect, stream, *numbered(3))
    consume(channel, stream, FIRST, prefetch=1)
    for expected in (0, 1, 2):
        delivery = channel.next_delivery()
        assert offsets([delivery]) == [expected]
        channel.send(method, delivery_tag=delivery.delivery_tag, requeue=requeue)
    channel.expect_no_delivery(stream)


@pytest.mark.parametrize("method", [commands.Basic.Recover, commands.Basic.RecoverAsync], ids=["sync", "async"])
def test_23_14_recover(channel: Channel, connect: Connect, stream: str, method: MethodType) -> None:
    fill(connect, stream, *numbered(1))
    consume(channel, stream, FIRST)
    channel.next_delivery()
    with channel.expect_connection_close(541, "INTERNAL_ERROR"):
        channel.send(method, requeue=True)


def test_23_14_recover_without_unacked_messages(channel: Channel, connect: Connect, stream: str) -> None:
    fill(connect, stream, *numbered(2))
    consume(channel, stream, FIRST)
    channel.deliveries(2)
    channel.send(commands.Basic.Ack, delivery_tag=0, multiple=True)
    channel.rpc(commands.Basic.Recover, requeue=True)


def test_23_15_an_unknown_tag(channel: Channel, stream: str) -> None:
    consume(channel, stream)
    with channel.expect_channel_close(406, unknown_tag(99), commands.Basic.Ack):
        channel.send(commands.Basic.Ack, delivery_tag=99)


def test_23_15_acks_after_the_end(channel: Channel, connect: Connect, stream: str) -> None:
    fill(connect, stream, *numbered(2))
    consume(channel, stream, FIRST, tag="t")
    first, second = channel.deliveries(2)
    channel.rpc(commands.Basic.Cancel, consumer_tag="t")
    channel.send(commands.Basic.Ack, delivery_tag=first.delivery_tag)
    channel.queue_delete(stream)
    channel.send(commands.Basic.Ack, delivery_tag=second.delivery_tag)
    channel.sync()


def test_a_closed_channel_gives_nothing_back(channel: Channel, connect: Connect, stream: str) -> None:
    fill(connect, stream, *numbered(3))
    other = consumer(connect, stream)
    consume(channel, stream, FIRST)
    channel.deliveries(3)
    channel.close()
    other.expect_no_delivery(stream)


# -- what cannot be done --------------------------------------------------------------------------------


def test_23_16_get(channel: Channel, stream: str, vhost: str) -> None:
    text = f"NOT_IMPLEMENTED - basic.get not supported by stream queues {where(stream, vhost)}"
    with channel.expect_connection_close(540, text, commands.Basic.Get):
        channel.get(stream)


def test_23_16_and_24_1_http(api: HttpApi, own_vhost: str) -> None:
    api.check("PUT", path("queues", own_vhost, "s"), {"durable": True, "arguments": {"x-queue-type": "stream"}}, 201)
    body = {"count": 1, "ackmode": "ack_requeue_true", "encoding": "auto"}
    text = f"540 basic.get not supported by stream queues {where('s', own_vhost)}"
    api.check("POST", path("queues", own_vhost, "s", "get"), body, 400, bad_request(text))
    text = f"queue.purge not supported by stream queues {where('s', own_vhost)}"
    api.check("DELETE", path("queues", own_vhost, "s", "contents"), None, 400, bad_request(text))


def test_23_17_deleting_cancels(channel: Channel, connect: Connect, stream: str) -> None:
    consume(channel, stream, tag="t")
    connect().channel().queue_delete(stream)
    channel.wait_until(lambda: bool(channel.cancelled), "basic.cancel")
    assert channel.cancelled.popleft() == "t"


def test_24_1_purge(channel: Channel, stream: str, vhost: str) -> None:
    text = f"NOT_IMPLEMENTED - queue.purge not supported by stream queues {where(stream, vhost)}"
    with channel.expect_connection_close(540, text, commands.Queue.Purge):
        channel.rpc(commands.Queue.Purge, queue=stream)


def test_24_2_delete(channel: Channel, connect: Connect, stream: str, vhost: str) -> None:
    fill(connect, stream, *numbered(3))
    consume(channel, stream)
    other = connect().channel()
    deleted = other.rpc(commands.Queue.Delete, queue=stream, if_unused=True, if_empty=True)
    assert deleted.message_count == 0
    with other.expect_channel_close(404, no_queue(stream, vhost), commands.Queue.Declare):
        other.queue_declare(stream, passive=True)


def test_24_3_declare_ok(channel: Channel, connect: Connect, stream: str, poll: object) -> None:
    fill(connect, stream, *numbered(9))
    consume(channel, stream)
    assert callable(poll)
    # RabbitMQ counts messages every few seconds.
    poll(lambda: counts(connect().channel(), stream) == (9, 0))


# -- filters --------------------------------------------------------------------------------------------


def _fill_filtered(connect: Connect, stream: str, *values: str | None) -> None:
    """Publish messages with these values of x-stream-filter-value, each confirmed, with their offsets as bodies."""
    with connect() as connection:
        channel = connection.channel()
        channel.rpc(commands.Confirm.Select)
        for number, value in enumerate(values):
            headers: list[Triple] = [] if value is None else [("x-stream-filter-value", "S", value)]
            channel.publish("", stream, b"%d" % number, {"headers": headers})
            channel.wait_until(lambda: bool(channel.confirms), "confirm")
            assert channel.confirms.popleft().ack


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([("x-stream-filter", "S", "eu")], [0, 3]),
        ([("x-stream-filter", "A", [("S", "eu"), ("S", "us")])], [0, 2, 3]),
        ([("x-stream-filter", "S", "eu"), ("x-stream-match-unfiltered", "t", 1)], [0, 1, 3, 4]),
        ([("x-stream-filter", "S", "eu"), ("x-stream-match-unfiltered", "t", 0)], [0, 3]),
        ([("x-stream-match-unfiltered", "t", 1)], [0, 1, 2, 3, 4, 5]),
    ],
    ids=str,
)
@pytest.mark.departs("3.13")
def test_23_19_filters(connect: Connect, stream: str, arguments: list[Triple], expected: list[int]) -> None:
    _fill_filtered(connect, stream, "eu", None, "us", "eu", "", "asia")
    channel = consumer(connect, stream, FIRST, *arguments, prefetch=2)
    for at in range(len(expected)):
        delivery = channel.next_delivery()
        assert int(delivery.body) == expected[at]
        assert delivery.delivery_tag is not None
        channel.ack(delivery.delivery_tag)
    channel.expect_no_delivery(stream)


@pytest.mark.parametrize(
    ("argument", "reason"),
    [
        (("x-stream-filter", "I", 5), "{unacceptable_type,signedint}"),
        (
            ("x-stream-filter", "S", ""),
            '"expected a string that is not empty, or an array of 1 to 1000 of them"',
        ),
        (("x-stream-match-unfiltered", "S", "true"), "{unacceptable_type,longstr}"),
    ],
    ids=str,
)
@pytest.mark.departs("none")
def test_23_19_bad_filters(channel: Channel, stream: str, vhost: str, argument: Triple, reason: str) -> None:
    # RabbitMQ ignores them.
    text = invalid_argument(str(argument[0]), stream, vhost, f": {reason}")
    with channel.expect_channel_close(406, text, CONSUME):
        channel.rpc(CONSUME, queue=stream, arguments=[argument])


@pytest.mark.parametrize("name", ["x-stream-filter", "x-stream-match-unfiltered"])
@pytest.mark.departs("3.13")
def test_23_19_filters_need_a_stream(channel: Channel, unique: Unique, vhost: str, name: str) -> None:
    queue = new_queue(channel, unique)
    text = invalid_argument(name, queue, vhost, " of queue type rabbit_classic_queue")
    with channel.expect_channel_close(406, text, CONSUME):
        channel.rpc(CONSUME, queue=queue, arguments=[(name, "S", "eu")])
