"""Rules 13.13 to 13.17: exchange.bind, exchange.unbind, and exchanges that delete themselves."""

from __future__ import annotations

from itertools import pairwise

import pytest
from pamqp import commands

from tests.conformance.fixtures import Unique
from tests.conformance.reply_texts import no_exchange
from tests.conformance.topology import bound_queue, drain, got, new_exchange, new_queue
from tests.support.wire import Channel

BIND = commands.Exchange.Bind


def expect_missing(channel: Channel, name: str, vhost: str) -> None:
    with channel.expect_channel_close(404, no_exchange(name, vhost), commands.Exchange.Declare):
        channel.exchange_declare(name, passive=True)


def test_13_13_auto_delete_with_the_last_binding(channel: Channel, unique: Unique, vhost: str) -> None:
    name = new_exchange(channel, unique, auto_delete=True)
    queue = bound_queue(channel, unique, name, "one", "two")
    channel.queue_unbind(queue, name, "one")
    channel.exchange_declare(name, passive=True)
    channel.queue_unbind(queue, name, "two")
    expect_missing(channel, name, vhost)


def test_13_13_auto_delete_goes_up_a_chain(channel: Channel, unique: Unique, vhost: str) -> None:
    chain = [new_exchange(channel, unique, auto_delete=True) for _ in range(3)]
    for source, destination in pairwise(chain):
        channel.exchange_bind(destination, source)
    queue = bound_queue(channel, unique, chain[-1], "key")
    channel.queue_delete(queue)
    connection = channel.connection
    for name in chain:
        expect_missing(connection.channel(), name, vhost)


def test_13_13_never_bound_stays(channel: Channel, unique: Unique) -> None:
    name = new_exchange(channel, unique, auto_delete=True)
    queue = new_queue(channel, unique)
    channel.queue_unbind(queue, name, "never bound")
    channel.queue_delete(queue)
    channel.exchange_declare(name, auto_delete=True)


def test_13_13_a_lost_binding_as_destination_does_not_count(channel: Channel, unique: Unique) -> None:
    name, source = new_exchange(channel, unique, auto_delete=True), new_exchange(channel, unique)
    channel.exchange_bind(name, source)
    channel.exchange_unbind(name, source)
    channel.exchange_bind(name, source)
    channel.exchange_delete(source)
    channel.exchange_declare(name, passive=True)


@pytest.mark.parametrize(("source_exists", "destination_exists"), [(False, True), (True, False), (False, False)])
def test_13_15_bind_names_the_missing_exchange(
    channel: Channel, unique: Unique, vhost: str, source_exists: bool, destination_exists: bool
) -> None:
    source = new_exchange(channel, unique) if source_exists else unique("source")
    destination = new_exchange(channel, unique) if destination_exists else unique("destination")
    missing = destination if source_exists else source
    with channel.expect_channel_close(404, no_exchange(missing, vhost), BIND):
        channel.exchange_bind(destination, source)


def test_13_15_bind_is_idempotent(channel: Channel, unique: Unique) -> None:
    source, destination = new_exchange(channel, unique), new_exchange(channel, unique)
    queue = bound_queue(channel, unique, destination, "key")
    channel.exchange_bind(destination, source, "key")
    channel.exchange_bind(destination, source, "key")
    channel.publish(source, "key", b"once")
    channel.exchange_unbind(destination, source, "key")
    channel.publish(source, "key", b"never")
    assert drain(channel, queue) == [b"once"]


def test_13_15_an_exchange_may_be_bound_to_itself(channel: Channel, unique: Unique) -> None:
    name = new_exchange(channel, unique, "fanout")
    queue = bound_queue(channel, unique, name, "")
    channel.exchange_bind(name, name)
    channel.publish(name, "", b"once")
    assert drain(channel, queue) == [b"once"]


def test_13_15_system_exchanges_may_be_bound(channel: Channel, unique: Unique) -> None:
    key = unique("key")
    name = new_exchange(channel, unique, "fanout")
    queue = bound_queue(channel, unique, name, "")
    channel.exchange_bind(name, "amq.topic", key)
    channel.exchange_bind("amq.topic", "amq.direct", key)
    channel.publish("amq.direct", key, b"through three")
    assert drain(channel, queue) == [b"through three"]
    channel.exchange_unbind("amq.topic", "amq.direct", key)


def test_13_16_unbind_of_what_is_not_there(channel: Channel, unique: Unique) -> None:
    name, missing = new_exchange(channel, unique), unique("missing")
    channel.exchange_unbind(name, "amq.direct", unique("key"))
    channel.exchange_unbind(missing, "amq.direct", "key")
    channel.exchange_unbind(name, missing, "key")
    channel.exchange_unbind(missing, missing, "key")


def test_13_16_the_arguments_must_match(channel: Channel, unique: Unique) -> None:
    source, destination = new_exchange(channel, unique), new_exchange(channel, unique, "fanout")
    queue = bound_queue(channel, unique, destination, "")
    channel.exchange_bind(destination, source, "key", arguments=[("a", "I", 1)])
    channel.exchange_unbind(destination, source, "key")
    channel.exchange_unbind(destination, source, "key", arguments=[("a", "l", 1)])
    channel.publish(source, "key", b"still bound")
    channel.exchange_unbind(destination, source, "key", arguments=[("a", "I", 1)])
    channel.publish(source, "key", b"unbound")
    assert drain(channel, queue) == [b"still bound"]


def test_13_17_cycles_are_safe(channel: Channel, unique: Unique) -> None:
    ring = [new_exchange(channel, unique, "fanout") for _ in range(3)]
    for position, name in enumerate(ring):
        channel.exchange_bind(name, ring[position - 1])
    queue = bound_queue(channel, unique, ring[0], "")
    channel.queue_bind(queue, ring[1])
    channel.publish(ring[2], "", b"once")
    assert drain(channel, queue) == [b"once"]


def test_13_17_deliveries_name_the_published_route(channel: Channel, unique: Unique) -> None:
    outer, inner = new_exchange(channel, unique, "topic"), new_exchange(channel, unique, "fanout")
    queue = bound_queue(channel, unique, inner, "ignored")
    channel.exchange_bind(inner, outer, "#")
    channel.publish(outer, "some.key")
    delivery = got(channel, queue, no_ack=True)
    assert (delivery.exchange, delivery.routing_key) == (outer, "some.key")


def test_13_17_each_exchange_routes_by_its_own_type(channel: Channel, unique: Unique) -> None:
    outer, inner = new_exchange(channel, unique, "fanout"), new_exchange(channel, unique, "topic")
    channel.exchange_bind(inner, outer)
    queue = bound_queue(channel, unique, inner, "stock.*")
    for key in ("stock.ibm", "bond.ibm", "stock.sun"):
        channel.publish(outer, key, key.encode())
    assert drain(channel, queue) == [b"stock.ibm", b"stock.sun"]
