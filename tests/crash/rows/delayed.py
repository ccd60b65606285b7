"""Rule 31.16: which delayed messages are there after a stop and after a crash, and when they come."""

from __future__ import annotations

import time

from tests.conformance.topology import bodies
from tests.crash.rows.table import Steps, row
from tests.integration.restarts import PERSISTENT, Restarts
from tests.support.wire import Channel

_INNER = [("x-delayed-type", "S", "topic")]


def delayed(place: Restarts, channel: Channel, durable: bool = True) -> tuple[str, str]:
    """A delayed exchange, and a durable queue that gets all from it."""
    exchange, queue = place.new("x"), place.queue(channel)
    channel.exchange_declare(exchange, "x-delayed-message", durable=durable, arguments=_INNER)
    if durable:
        channel.queue_bind(queue, exchange, "#")
    return exchange, queue


def publish(channel: Channel, exchange: str, body: bytes, delay: int, mode: int = 2) -> None:
    properties = {"headers": [("x-delay", "I", delay)], "delivery_mode": mode}
    channel.publish(exchange, "key", body, properties)


@row(2, 1, late=True)
def all_survive_and_overdue_ones_come_first(place: Restarts, mode: int) -> Steps:
    channel = place.channel()
    exchange, queue = delayed(place, channel)
    channel.confirm_select()
    began, slow = time.monotonic(), place.slowness
    for body, delay in ((b"3", 6000), (b"1", 3000), (b"2", 3200), (b"4", 6000)):
        publish(channel, exchange, body, delay * slow, mode)
    assert channel.wait_for_confirms(4) == [True] * 4
    channel = yield began + 3.3 * slow
    channel.consume(queue, no_ack=True)
    assert bodies(channel.deliveries(2)) == [b"1", b"2"]
    found = channel.deliveries(2)
    assert bodies(found) == [b"3", b"4"]
    assert time.monotonic() - began >= 6 * slow
    assert found[0].headers == [("x-delay", "l", -6000 * slow)]


@row()
def those_of_a_transient_exchange_are_gone(place: Restarts) -> Steps:
    channel = place.channel()
    exchange, queue = delayed(place, channel, durable=False)
    publish(channel, exchange, b"1", 1)
    channel.sync()
    channel = yield
    channel.exchange_declare(exchange, "x-delayed-message", durable=True, arguments=_INNER)
    channel.queue_bind(queue, exchange, "#")
    publish(channel, exchange, b"2", 1)
    channel.consume(queue, no_ack=True)
    assert bodies(channel.deliveries(1)) == [b"2"]


@row(late=True)
def a_deleted_exchange_stays_empty(place: Restarts) -> Steps:
    channel = place.channel()
    exchange, queue = delayed(place, channel)
    publish(channel, exchange, b"1", 2000)
    channel.exchange_delete(exchange)
    channel.exchange_declare(exchange, "x-delayed-message", durable=True, arguments=_INNER)
    channel.queue_bind(queue, exchange, "#")
    channel.confirm_select()
    publish(channel, exchange, b"2", 2100)
    assert channel.wait_for_confirms(1) == [True]
    channel = yield
    channel.consume(queue, no_ack=True)
    assert bodies(channel.deliveries(1)) == [b"2"]


@row()
def a_queue_of_the_same_name_is_another_thing(place: Restarts) -> Steps:
    channel = place.channel()
    exchange, _ = delayed(place, channel)
    channel.queue_declare(exchange, durable=True)
    channel.queue_bind(exchange, exchange, "#")
    publish(channel, exchange, b"1", 1500)
    channel.publish("", exchange, b"0", PERSISTENT)
    channel.sync(exchange)
    channel = yield
    channel.consume(exchange, no_ack=True)
    assert bodies(channel.deliveries(2)) == [b"0", b"1"]
