"""Faults that happen to chosen messages, consumers and connections."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import aio_pika
import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import AMQPError, NackError

from leveret import Leveret, LeveretThread
from leveret.broker.testing.environment import NotRunningError
from tests.integration.embedding.clients import channel_of, publish_durably, ready


@pytest.fixture
def channel(broker: LeveretThread) -> Iterator[BlockingChannel]:
    """A channel in confirm mode, with the queues `orders` and `bills` of the exchange `shop`."""
    # A fault may have closed the connection.
    with suppress(AMQPError), channel_of(broker.url) as opened:
        opened.exchange_declare("shop", "topic", durable=True)
        for name in ("orders", "bills"):
            opened.queue_declare(name, durable=True)
            opened.queue_bind(name, "shop", f"{name}.#")
        yield opened


def bodies(broker: LeveretThread, queue: str) -> list[bytes]:
    return [each.body for each in broker.messages(queue)]


# -- refused ----------------------------------------------------------------------------------------------


def test_a_queue_refuses(broker: LeveretThread, channel: BlockingChannel) -> None:
    with broker.faults.refuse(queue="orders") as fault:
        for exchange, key in (("", "orders"), ("shop", "orders.new")):
            with pytest.raises(NackError):
                channel.basic_publish(exchange, key, b"1")
        channel.basic_publish("shop", "bills.new", b"2")
        with channel_of(broker.url) as other:
            with pytest.raises(NackError):
                other.basic_publish("shop", "nothing", b"3", pika.BasicProperties(headers={"CC": ["orders.a"]}))
            # A queue that is not meant, an exchange that does not exist, a malformed header: as ever.
            other.basic_publish("", "bills", b"4")
            with pytest.raises(AMQPError):
                other.basic_publish("nowhere", "orders", b"5")
        assert fault.count == 3
    channel.basic_publish("", "orders", b"6")
    assert (bodies(broker, "orders"), bodies(broker, "bills")) == ([b"6"], [b"2", b"4"])
    # What was refused has been published.
    assert [each.body for each in broker.published("shop")] == [b"1", b"2", b"3"]


def test_some_messages_are_refused(broker: LeveretThread, channel: BlockingChannel) -> None:
    with broker.faults.refuse(exchange="shop", message=lambda each: each.json() > 2, times=2) as fault:
        for number in range(6):
            try:
                channel.basic_publish("shop", "orders", str(number).encode())
            except NackError:
                assert number in (3, 4)
        assert fault.count == 2
    assert bodies(broker, "orders") == [b"0", b"1", b"2", b"5"]
    assert len(broker.published("shop")) == 6


@pytest.mark.parametrize("differ", [False, True])
def test_messages_in_one_write(broker: LeveretThread, channel: BlockingChannel, differ: bool) -> None:
    # Without confirms pika writes many messages at once; those that are refused are dropped, and the others keep order.
    with (
        broker.faults.refuse(message=lambda each: each.body.endswith(b"7")),
        pika.BlockingConnection(pika.URLParameters(broker.url)) as connection,
    ):
        sender = connection.channel()
        for number in range(1000):
            properties = pika.BasicProperties(message_id=str(number) if differ else "same")
            sender.basic_publish("shop", "orders", b"%d" % number, properties)
        assert ready(sender, "orders") == 900
    assert bodies(broker, "orders") == [b"%d" % number for number in range(1000) if number % 10 != 7]
    assert len(broker.published("shop")) == 1000


def publish_with_a_bad_choice(broker: LeveretThread, channel: BlockingChannel) -> None:
    with broker.faults.refuse(message=lambda each: each.json()["number"] == 1):
        channel.basic_publish("", "orders", b"no JSON")
        channel.basic_publish("", "orders", b'{"number": 1}')


def test_a_choice_that_fails(broker: LeveretThread, channel: BlockingChannel) -> None:
    """The test learns of it when the block ends; the connection does not."""
    with pytest.raises(ValueError, match="Expecting value"):
        publish_with_a_bad_choice(broker, channel)
    assert bodies(broker, "orders") == [b"no JSON", b'{"number": 1}']


def test_a_connection_is_chosen(broker: LeveretThread, channel: BlockingChannel) -> None:
    parameters = pika.URLParameters(broker.url)
    parameters.client_properties = {"connection_name": "importer"}
    with pika.BlockingConnection(parameters) as connection, broker.faults.refuse(connection="importer"):
        importer = connection.channel()
        importer.confirm_delivery()
        channel.basic_publish("", "orders", b"1")
        with pytest.raises(NackError):
            importer.basic_publish("", "orders", b"2")
    assert bodies(broker, "orders") == [b"1"]


def test_in_a_transaction(broker: LeveretThread, channel: BlockingChannel) -> None:
    with pika.BlockingConnection(pika.URLParameters(broker.url)) as connection:
        sender = connection.channel()
        sender.tx_select()
        with broker.faults.refuse(queue="orders"):
            sender.basic_publish("", "orders", b"1")
        sender.basic_publish("", "orders", b"2")
        sender.tx_commit()
    assert bodies(broker, "orders") == [b"2"]


# -- held confirms ----------------------------------------------------------------------------------------


async def test_confirms_wait() -> None:
    async with Leveret() as broker, await aio_pika.connect(broker.url) as connection:
        channel = await connection.channel()
        await channel.declare_queue("q", durable=True)
        await channel.declare_queue("full", arguments={"x-max-length": 0, "x-overflow": "reject-publish"})
        exchange = channel.default_exchange
        with broker.faults.hold_confirms(message=lambda each: each.text != "early") as fault:
            late = exchange.publish(aio_pika.Message(b"late", delivery_mode=2), "q")
            refused = exchange.publish(aio_pika.Message(b"refused"), "full")
            tasks = [asyncio.ensure_future(late), asyncio.ensure_future(refused)]
            await broker.wait_until(lambda: fault.count == 2)
            # A later one is confirmed by itself.
            await exchange.publish(aio_pika.Message(b"early"), "q")
            assert [each.text for each in broker.messages("q")] == ["late", "early"]
            assert not any(task.done() for task in tasks)
        await tasks[0]
        with pytest.raises(aio_pika.exceptions.DeliveryError):
            await tasks[1]


def test_confirms_of_a_client_that_has_gone(broker: LeveretThread, channel: BlockingChannel) -> None:
    with broker.faults.hold_confirms(queue="orders") as fault:
        with pika.BlockingConnection(pika.URLParameters(broker.url)) as connection:
            sender = connection.channel()
            sender.confirm_delivery()
            publishing = threading.Thread(target=publish_until_closed, args=(sender,))
            publishing.start()
            broker.wait_until(lambda: fault.count)
            broker.faults.drop_connections()
            publishing.join(60)
            connection.close = lambda *_: None
        broker.wait_until(lambda: bodies(broker, "orders") == [b"1"])
    # Nothing is left of it, and others are served.
    with channel_of(broker.url) as other:
        publish_durably(other, "orders", b"2")


def publish_until_closed(channel: BlockingChannel) -> None:
    with pytest.raises(AMQPError):
        channel.basic_publish("", "orders", b"1")


# -- dropped connections ----------------------------------------------------------------------------------


def test_the_confirm_is_lost(broker: LeveretThread, channel: BlockingChannel) -> None:
    with broker.faults.drop_connection(after="basic.publish", queue="orders") as fault:
        channel.basic_publish("", "bills", b"1")
        with pytest.raises(AMQPError):
            channel.basic_publish("", "orders", b"2")
        assert fault.count == 1
        assert bodies(broker, "orders") == [b"2"]
        with channel_of(broker.url) as again:
            # Once, unless `times` is given.
            again.basic_publish("", "orders", b"2")
    assert bodies(broker, "orders") == [b"2", b"2"]


def test_the_publish_is_lost(broker: LeveretThread, channel: BlockingChannel) -> None:
    with broker.faults.drop_connection(before="basic.publish", message=lambda each: each.body == b"2"):
        channel.basic_publish("", "orders", b"1")
        with pytest.raises(AMQPError):
            channel.basic_publish("", "orders", b"2")
    assert bodies(broker, "orders") == [b"1"]


@pytest.mark.parametrize(("when", "left"), [("before", [b"2", b"3"]), ("after", [b"3"])])
def test_an_acknowledgement(broker: LeveretThread, channel: BlockingChannel, when: str, left: list[bytes]) -> None:
    publish_durably(channel, "orders", b"1", b"2", b"3")
    publish_durably(channel, "bills", b"4")
    tags = [channel.basic_get(queue)[0].delivery_tag for queue in ("orders", "bills", "orders")]
    channel.basic_ack(tags[0])
    with broker.faults.drop_connection(**{when: "basic.ack"}, queue="orders") as fault:  # type: ignore[arg-type]
        # Both in one write.
        channel.basic_ack(tags[1])
        channel.basic_ack(tags[2])
        with pytest.raises(AMQPError):
            channel.queue_declare("orders", passive=True)
        broker.wait_until(lambda: fault.count)
    assert broker.wait_until(lambda: bodies(broker, "orders") == left)
    assert bodies(broker, "bills") == []


@pytest.mark.parametrize("method", ["queue.declare", "channel.open", "basic.consume", "tx.commit", "basic.nack"])
def test_other_methods(broker: LeveretThread, channel: BlockingChannel, method: str) -> None:
    publish_durably(channel, "orders", b"1")
    tag = channel.basic_get("orders")[0].delivery_tag
    calls: dict[str, Callable[[], Any]] = {
        "queue.declare": lambda: channel.queue_declare("new"),
        "channel.open": lambda: channel.connection.channel(),
        "basic.consume": lambda: channel.basic_consume("orders", lambda *_: None),
        "tx.commit": lambda: channel.connection.channel().tx_commit(),
        "basic.nack": lambda: [channel.basic_nack(tag), channel.queue_declare("orders", passive=True)],
    }
    with broker.faults.drop_connection(after=method), pytest.raises(AMQPError):
        calls[method]()
    with channel_of(broker.url) as other:
        if method == "queue.declare":
            other.queue_declare("new", passive=True)
        assert broker.wait_until(lambda: ready(other, "orders") == 1)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({}, "give either before= or after=, the name of a method such as 'basic.publish'"),
        ({"before": "basic.ack", "after": "basic.ack"}, "give either before= or after="),
        ({"before": "basic.deliver"}, "'basic.deliver': clients do not send it; name one that they send on channels"),
        ({"after": "basic.fetch"}, "'basic.fetch': there is no such method"),
        ({"after": "basic.ack", "exchange": "e"}, "basic.ack has no exchange= and message=; basic.publish has"),
        ({"after": "queue.declare", "queue": "q"}, "queue.declare cannot be chosen by queue=; these can: basic.ack"),
        ({"after": "basic.ack", "times": 0}, "times=0: a fault happens once at least"),
    ],
)
def test_impossible_choices(broker: LeveretThread, arguments: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        broker.faults.drop_connection(**arguments)
    with pytest.raises(TypeError, match="unexpected keyword argument 'que'"):
        broker.faults.refuse(que="orders")  # type: ignore[call-arg]


# -- deliveries -------------------------------------------------------------------------------------------


def consume(channel: BlockingChannel, queue: str, no_ack: bool = False) -> list[tuple[bytes, bool]]:
    """Consume from a queue; return a list to which what arrives is appended, acknowledged by nobody."""
    got: list[tuple[bytes, bool]] = []
    channel.basic_consume(queue, lambda _, method, __, body: got.append((body, method.redelivered)), auto_ack=no_ack)
    return got


def let_in(channel: BlockingChannel) -> None:
    """Handle what the broker has sent so far."""
    channel.queue_declare("orders", passive=True)
    channel.connection.process_data_events(0)


@pytest.mark.parametrize("no_ack", [False, True])
def test_deliveries_wait(broker: LeveretThread, channel: BlockingChannel, no_ack: bool) -> None:
    before = consume(channel, "orders", no_ack)
    with broker.faults.hold_deliveries(queue="orders") as fault:
        after, others = consume(channel, "orders", no_ack), consume(channel, "bills")
        publish_durably(channel, "orders", b"1", b"2")
        publish_durably(channel, "bills", b"3")
        let_in(channel)
        assert (before, after, others) == ([], [], [(b"3", False)])
        assert fault.count == 2
        with broker.faults.hold_deliveries():
            pass
        # Still held by the first one.
        publish_durably(channel, "orders", b"4")
        let_in(channel)
        assert (before, after) == ([], [])
    let_in(channel)
    assert sorted(before + after) == [(b"1", False), (b"2", False), (b"4", False)]


def test_a_stream_waits(broker: LeveretThread, channel: BlockingChannel) -> None:
    channel.queue_declare("log", durable=True, arguments={"x-queue-type": "stream"})
    publish_durably(channel, "log", b"1")
    channel.basic_qos(prefetch_count=10)
    with broker.faults.hold_deliveries():
        got: list[bytes] = []
        channel.basic_consume("log", lambda *given: got.append(given[3]), arguments={"x-stream-offset": "first"})
        let_in(channel)
        assert got == []
    let_in(channel)
    assert got == [b"1"]
    with pytest.raises(ValueError, match="'log' is a stream: its messages are not requeued"):
        broker.faults.redeliver("log")


def test_messages_are_delivered_again(broker: LeveretThread, channel: BlockingChannel) -> None:
    publish_durably(channel, "orders", b"1", b"2")
    channel.basic_qos(prefetch_count=2)
    got = consume(channel, "orders")
    let_in(channel)
    assert broker.faults.redeliver("orders") == 2
    let_in(channel)
    assert got == [(b"1", False), (b"2", False), (b"1", True), (b"2", True)]
    # The first deliveries count no more; acknowledging them is no mistake.
    channel.basic_ack(2)
    channel.basic_ack(1)
    let_in(channel)
    assert len(broker.messages("orders")) == 2
    channel.basic_ack(4, multiple=True)
    let_in(channel)
    assert broker.messages("orders") == []
    with pytest.raises(LookupError, match="no queue 'order' in virtual host '/'; there are"):
        broker.faults.redeliver("order")


def test_what_was_fetched_is_delivered_again(broker: LeveretThread, channel: BlockingChannel) -> None:
    publish_durably(channel, "orders", b"1")
    tag = channel.basic_get("orders")[0].delivery_tag
    assert broker.faults.redeliver("orders") == 1
    method, _, body = channel.basic_get("orders")
    assert (body, method.redelivered) == (b"1", True)
    channel.basic_ack(tag)
    channel.basic_ack(method.delivery_tag)
    let_in(channel)
    assert broker.messages("orders") == []


# -- the disk ---------------------------------------------------------------------------------------------


def test_the_disk_is_full(broker: LeveretThread, channel: BlockingChannel) -> None:
    reasons: list[str] = []
    publish_durably(channel, "orders", b"1")
    with pika.BlockingConnection(pika.URLParameters(broker.url)) as connection:
        connection.add_on_connection_blocked_callback(lambda _, frame: reasons.append(frame.method.reason))
        sender = connection.channel()
        with broker.faults.full_disk():
            assert broker._broker.running().broker.alarms.resources == {"disk"}
            # Consumers go on.
            method, _, body = channel.basic_get("orders")
            assert body == b"1"
            channel.basic_ack(method.delivery_tag)
            sender.basic_publish("", "orders", b"2", pika.BasicProperties(delivery_mode=2))
            broker.wait_until(lambda: connection.process_data_events(0.05) or reasons)
            assert broker.messages("orders") == []
        broker.wait_until(lambda: bodies(broker, "orders") == [b"2"])
        assert ready(sender, "orders") == 1
    assert reasons == ["low on disk"]
    broker.restart()
    assert bodies(broker, "orders") == [b"2"]


def test_faults_happen_in_the_thread_of_the_broker(broker: LeveretThread, monkeypatch: pytest.MonkeyPatch) -> None:
    names: list[str] = []
    for method in ("fill", "make_room"):
        monkeypatch.setattr(broker._broker._files, method, lambda: names.append(threading.current_thread().name))
    with broker.faults.full_disk():
        pass
    assert names == ["leveret", "leveret"]


def test_what_is_on_its_way_to_a_full_disk(broker: LeveretThread, channel: BlockingChannel) -> None:
    """It was published before the alarm is known: what cannot be written is refused."""
    disk = broker._broker._files
    disk.fill()
    try:
        with pytest.raises(NackError):
            channel.basic_publish("", "orders", b"1", pika.BasicProperties(delivery_mode=2))
    finally:
        disk.make_room()
    broker.wait_until(lambda: not broker._broker.running().broker.alarms.any)
    publish_durably(channel, "orders", b"2")
    assert b"2" in bodies(broker, "orders")


def test_faults_end_with_their_broker(broker: LeveretThread) -> None:
    with LeveretThread() as other, other.faults.refuse(), other.faults.hold_deliveries(), other.faults.full_disk():
        other.stop()
    with pytest.raises(NotRunningError):
        other.faults.redeliver("q")
    with broker.faults.refuse(queue="q") as fault:
        broker.restart()
        with channel_of(broker.url) as channel:
            channel.queue_declare("q")
            with pytest.raises(NackError):
                channel.basic_publish("", "q", b"1")
        assert repr(fault) == "<Fault refuse(queue='q'), happened 1 times>"
