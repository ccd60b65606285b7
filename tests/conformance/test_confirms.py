"""Rules 5.1 to 5.9: publisher confirms."""

from __future__ import annotations

import pytest
from pamqp import commands

from tests.conformance.fixtures import Connect, Unique
from tests.conformance.topology import bodies, drain, got, new_exchange, new_queue, numbered
from tests.support import content, methods
from tests.support.wire import BODY, HEADER, METHOD, Channel, Confirm, frame

PERSISTENT = {"delivery_mode": 2}


def in_one_write(channel: Channel, queue: str, messages: list[bytes]) -> None:
    """Publish messages with as little delay between them as can be."""
    number = channel.number
    out = []
    for body in messages:
        publish = methods.payload(commands.Basic.Publish, exchange="", routing_key=queue)
        out += [frame(METHOD, number, publish), frame(HEADER, number, content.header(len(body)))]
        out += [frame(BODY, number, body)]
    channel.connection.wire.send_bytes(b"".join(out))


def test_5_1_select_is_repeatable(channel: Channel, unique: Unique) -> None:
    queue = new_queue(channel, unique)
    channel.confirm_select()
    channel.publish("", queue)
    channel.confirm_select()
    channel.publish("", queue)
    assert channel.wait_for_confirms(2) == [True, True]


def test_5_1_select_with_nowait(channel: Channel, unique: Unique) -> None:
    queue = new_queue(channel, unique)
    channel.confirm_select(nowait=True)
    channel.publish("", queue)
    assert channel.wait_for_confirms(1) == [True]


@pytest.mark.parametrize("nowait", [False, True])
def test_5_2_not_on_a_transactional_channel(channel: Channel, nowait: bool) -> None:
    channel.tx_select()
    text = "PRECONDITION_FAILED - cannot switch from tx to confirm mode"
    with channel.expect_channel_close(406, text, commands.Confirm.Select):
        channel.confirm_select(nowait=nowait)


def test_5_2_no_transactions_on_a_confirm_channel(channel: Channel) -> None:
    channel.confirm_select()
    text = "PRECONDITION_FAILED - cannot switch from confirm to tx mode"
    with channel.expect_channel_close(406, text, commands.Tx.Select):
        channel.tx_select()


def test_5_1_counting_starts_with_select(channel: Channel, unique: Unique) -> None:
    queue = new_queue(channel, unique)
    channel.publish("", queue)
    channel.publish("", queue)
    channel.sync(queue)
    assert not channel.confirms
    channel.confirm_select()
    channel.publish("", queue)
    channel.wait_until(lambda: bool(channel.confirms), "confirm")
    assert channel.confirms.popleft() == Confirm(True, 1, False)


def test_5_1_each_channel_counts_for_itself(channel: Channel, unique: Unique) -> None:
    queue = new_queue(channel, unique)
    other = channel.connection.channel()
    for each in (channel, other):
        each.confirm_select()
        each.publish("", queue)
    assert channel.wait_for_confirms(1) == other.wait_for_confirms(1) == [True]


def test_5_3_a_failing_publish_gets_none(channel: Channel, unique: Unique) -> None:
    queue = new_queue(channel, unique)
    channel.confirm_select()
    channel.publish("", queue)
    assert channel.wait_for_confirms(1) == [True]
    text = "PRECONDITION_FAILED - invalid expiration 'x': no_integer"
    with channel.expect_channel_close(406, text, commands.Basic.Publish):
        channel.publish("", queue, properties={"expiration": "x"})
    assert not channel.confirms


def test_5_9_every_number_is_confirmed_once(channel: Channel, unique: Unique) -> None:
    queue = new_queue(channel, unique, durable=True)
    channel.confirm_select()
    for number in range(200):
        channel.publish("", queue, b"%d" % number, PERSISTENT if number % 3 else {})
    seen: list[int] = []

    def complete() -> bool:
        while channel.confirms:
            confirm = channel.confirms.popleft()
            assert confirm.ack
            first = 1 if confirm.multiple else confirm.delivery_tag
            seen.extend(tag for tag in range(first, confirm.delivery_tag + 1) if tag not in known)
            if not confirm.multiple:
                assert confirm.delivery_tag not in known
            known.update(seen)
        return len(seen) >= 200

    known: set[int] = set()
    channel.wait_until(complete, "200 confirms")
    assert sorted(seen) == list(range(1, 201))


def test_5_9_confirms_are_coalesced(channel: Channel, unique: Unique) -> None:
    queue = new_queue(channel, unique)
    channel.confirm_select()
    in_one_write(channel, queue, numbered(200))
    channel.wait_until(lambda: bool(channel.confirms) and channel.confirms[-1].delivery_tag == 200, "the last confirm")
    assert len(channel.confirms) < 200
    assert any(confirm.multiple for confirm in channel.confirms)
    assert drain(channel, queue) == numbered(200)


@pytest.mark.parametrize("durable", [False, True])
@pytest.mark.parametrize("mode", [1, 2])
def test_5_5_ack(channel: Channel, unique: Unique, durable: bool, mode: int) -> None:
    queue = new_queue(channel, unique, durable=durable)
    channel.confirm_select()
    for body in numbered(3):
        channel.publish("", queue, body, {"delivery_mode": mode})
    assert channel.wait_for_confirms(3) == [True] * 3
    assert drain(channel, queue) == numbered(3)


def test_5_5_to_many_queues(channel: Channel, unique: Unique) -> None:
    exchange = new_exchange(channel, unique, "fanout")
    queues = [new_queue(channel, unique, durable=durable) for durable in (True, False, True)]
    for queue in queues:
        channel.queue_bind(queue, exchange)
    channel.confirm_select()
    for body in numbered(20):
        channel.publish(exchange, "", body, PERSISTENT)
    assert channel.wait_for_confirms(20) == [True] * 20
    assert [drain(channel, queue) for queue in queues] == [numbered(20)] * 3


@pytest.mark.parametrize("no_ack", [True, False])
def test_5_5_consumed_at_once(channel: Channel, connect: Connect, unique: Unique, no_ack: bool) -> None:
    queue = new_queue(channel, unique, durable=True)
    consumer = connect().channel()
    consumer.consume(queue, no_ack=no_ack)
    channel.confirm_select()
    for body in numbered(10):
        channel.publish("", queue, body, PERSISTENT)
    deliveries = consumer.deliveries(10)
    assert bodies(deliveries) == numbered(10)
    if not no_ack:
        consumer.ack(deliveries[-1].delivery_tag, multiple=True)
    assert channel.wait_for_confirms(10) == [True] * 10


def test_5_4_unroutable_messages_are_confirmed(channel: Channel, unique: Unique) -> None:
    queue = new_queue(channel, unique)
    channel.confirm_select()
    channel.publish("", unique())
    channel.publish("", queue)
    channel.publish("amq.direct", unique("key"), mandatory=True)
    assert channel.wait_for_confirms(3) == [True] * 3
    assert len(channel.returns) == 1


def test_5_7_a_deleted_queue(channel: Channel, unique: Unique) -> None:
    queue = new_queue(channel, unique, durable=True)
    channel.confirm_select()
    for body in numbered(100):
        channel.publish("", queue, body, PERSISTENT)
    channel.send(commands.Queue.Delete, queue=queue)
    assert channel.wait_for_confirms(100) == [True] * 100
    channel.reply(commands.Queue.DeleteOk)


def test_5_5_confirms_without_the_capability(connect: Connect, unique: Unique) -> None:
    channel = connect(capabilities={}).channel()
    queue = new_queue(channel, unique)
    channel.confirm_select()
    channel.publish("", queue)
    assert channel.wait_for_confirms(1) == [True]
    assert got(channel, queue).delivery_tag == 1
