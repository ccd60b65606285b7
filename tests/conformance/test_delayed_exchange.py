"""Rules 31.1 to 31.17: the exchange type x-delayed-message."""

from __future__ import annotations

import time
from typing import Any

import pytest
from pamqp import commands

from tests.conformance.fixtures import Connect, SetPolicy, Unique
from tests.conformance.http_api import HttpApi, bad_request, path
from tests.conformance.topology import bodies, bound_queue, counts, drain, new_exchange, new_queue
from tests.support.tables import Triple
from tests.support.wire import Channel, Delivery

TYPE = "x-delayed-message"
INNER = "x-delayed-type"
pytestmark = pytest.mark.plugin(TYPE)

NO_TYPE = f"PRECONDITION_FAILED - Invalid argument, '{INNER}' must be an existing exchange type"
#: A delay in milliseconds that a test waits for.
SHORT = 300
#: A delay that no test waits for.
LONG = 3_600_000


def delayed(channel: Channel, unique: Unique, inner: str = "direct", **options: Any) -> str:
    """Declare a delayed exchange with a type inside."""
    return new_exchange(channel, unique, TYPE, arguments=[(INNER, "S", inner)], **options)


def publish(
    channel: Channel, exchange: str, body: bytes, delay: object = SHORT, kind: str = "I", key: str = "k", **options: Any
) -> None:
    """Publish a message with a delay."""
    headers = [*options.pop("headers", []), ("x-delay", kind, delay)]
    channel.publish(exchange, key, body, {"headers": headers, **options.pop("properties", {})}, **options)


def received(channel: Channel, queue: str, count: int) -> list[Delivery]:
    """Consume messages."""
    channel.consume(queue, no_ack=True)
    return channel.deliveries(count)


# -- declaring ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("argument", [None, ("I", 1), ("t", True), ("V", None), ("F", [])])
def test_31_1_a_type_inside_is_required(channel: Channel, unique: Unique, argument: tuple[str, object] | None) -> None:
    arguments: list[Triple] = [] if argument is None else [(INNER, *argument)]
    with channel.expect_channel_close(406, NO_TYPE, commands.Exchange.Declare):
        channel.exchange_declare(unique("x"), TYPE, arguments=arguments)


def test_31_1_it_is_not_inside_itself(channel: Channel, unique: Unique) -> None:
    text = f"PRECONDITION_FAILED - Invalid argument, '{TYPE}' can't be used for '{INNER}'"
    with channel.expect_channel_close(406, text, commands.Exchange.Declare):
        channel.exchange_declare(unique("x"), TYPE, arguments=[(INNER, "S", TYPE)])


@pytest.mark.departs("4.0")
def test_31_1_an_unknown_type_inside(channel: Channel, unique: Unique) -> None:
    text = "PRECONDITION_FAILED - unknown exchange type 'zzz'"
    with channel.expect_channel_close(406, text, commands.Exchange.Declare):
        channel.exchange_declare(unique("x"), TYPE, arguments=[(INNER, "S", "zzz")])


@pytest.mark.parametrize("kind", ["S", "x"])
def test_31_1_strings_of_both_types_count(channel: Channel, unique: Unique, kind: str) -> None:
    value: object = "fanout" if kind == "S" else b"fanout"
    exchange = new_exchange(channel, unique, TYPE, arguments=[(INNER, kind, value)])
    queue = bound_queue(channel, unique, exchange, "")
    publish(channel, exchange, b"1", key="other")
    assert bodies(received(channel, queue, 1)) == [b"1"]


def test_31_1_over_http(api: HttpApi, own_vhost: str) -> None:
    below = path("exchanges", own_vhost, "x")
    text = f"Invalid argument, '{INNER}' must be an existing exchange type"
    api.check("PUT", below, {"type": TYPE}, 400, bad_request(text))
    api.check("PUT", below, {"type": TYPE, "arguments": {INNER: "topic"}}, 201)
    assert api.get(f"{below}?columns=type,arguments") == {"type": TYPE, "arguments": {INNER: "topic"}}


def test_31_2_the_type_inside_checks_arguments_and_keys(channel: Channel, unique: Unique) -> None:
    exchange = delayed(channel, unique, "x-consistent-hash")
    queue = new_queue(channel, unique)
    text = 'PRECONDITION_FAILED - The binding key must be an integer: <<"a">>'
    with channel.expect_channel_close(406, text, commands.Queue.Bind):
        channel.queue_bind(queue, exchange, "a")


@pytest.mark.parametrize("again", [[], [(INNER, "S", "topic")], [(INNER, "S", "zzz")], [(INNER, "I", 1)]])
def test_31_3_declaring_again_does_not_compare_it(channel: Channel, unique: Unique, again: list[Triple]) -> None:
    exchange = delayed(channel, unique)
    channel.exchange_declare(exchange, TYPE, arguments=again)


def test_31_3_the_type_is_compared(channel: Channel, unique: Unique, vhost: str) -> None:
    exchange = delayed(channel, unique)
    text = (
        f"PRECONDITION_FAILED - inequivalent arg 'type' for exchange '{exchange}' in vhost '{vhost}':"
        f" received 'direct' but current is ''{TYPE}''"
    )
    with channel.expect_channel_close(406, text, commands.Exchange.Declare):
        channel.exchange_declare(exchange, "direct")


# -- delays -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "value"), [("b", 120), ("l", SHORT), ("d", 300.7), ("S", "+300")])
def test_31_4_values_that_delay(channel: Channel, unique: Unique, kind: str, value: object) -> None:
    exchange = delayed(channel, unique)
    queue = bound_queue(channel, unique, exchange, "k")
    started = time.monotonic()
    publish(channel, exchange, b"late", value, kind)
    channel.publish(exchange, "k", b"at once")
    assert bodies(received(channel, queue, 2)) == [b"at once", b"late"]
    assert time.monotonic() - started >= int(float(str(value))) / 1000


@pytest.mark.departs("4.0")
@pytest.mark.parametrize("value", [" 900", "900.5", "abc", ""])
def test_31_4_strings_that_are_no_numbers(channel: Channel, unique: Unique, value: str) -> None:
    exchange = delayed(channel, unique)
    queue = bound_queue(channel, unique, exchange, "k")
    publish(channel, exchange, b"1", value, "S")
    channel.sync(queue)
    assert counts(channel, queue)[0] == 1


@pytest.mark.parametrize(("kind", "value"), [("I", 0), ("I", -5), ("t", True), ("T", 900), ("V", None), ("F", [])])
def test_31_5_routed_at_once_with_the_header_as_it_is(
    channel: Channel, unique: Unique, kind: str, value: object
) -> None:
    exchange = delayed(channel, unique)
    queue = bound_queue(channel, unique, exchange, "k")
    publish(channel, exchange, b"1", value, kind)
    channel.sync(queue)
    (delivery,) = received(channel, queue, 1)
    assert delivery.headers == [("x-delay", kind, value)]


@pytest.mark.departs("4.0")
def test_31_5_a_delay_of_years(channel: Channel, unique: Unique) -> None:
    exchange = delayed(channel, unique)
    queue = bound_queue(channel, unique, exchange, "k")
    channel.confirm_select()
    publish(channel, exchange, b"1", 2**32 + 1, "l")
    assert channel.wait_for_confirms(1) == [True]
    assert counts(channel, queue)[0] == 0


@pytest.mark.departs("4.0")
def test_31_6_a_stored_message_is_not_returned(channel: Channel, unique: Unique) -> None:
    other = bound_queue(channel, unique, alternate := new_exchange(channel, unique, "fanout"), "")
    exchange = new_exchange(
        channel, unique, TYPE, arguments=[(INNER, "S", "direct"), ("alternate-exchange", "S", alternate)]
    )
    channel.confirm_select()
    publish(channel, exchange, b"1", LONG, mandatory=True)
    assert channel.wait_for_confirms(1) == [True]
    assert counts(channel, other)[0] == 0
    assert not channel.returns
    # When it is due and there is no queue for it, the alternate exchange gets it.
    publish(channel, exchange, b"2")
    (delivery,) = received(channel, other, 1)
    assert (delivery.body, delivery.exchange) == (b"2", exchange)


@pytest.mark.departs("4.0")
def test_31_7_a_transaction_stores_at_commit(connect: Connect, channel: Channel, unique: Unique) -> None:
    exchange = delayed(channel, unique)
    queue = bound_queue(channel, unique, exchange, "k")
    transaction = connect().channel()
    transaction.tx_select()
    publish(transaction, exchange, b"rolled back", 1)
    transaction.tx_rollback()
    publish(transaction, exchange, b"committed", 1)
    transaction.tx_commit()
    assert bodies(received(channel, queue, 1)) == [b"committed"]
    channel.expect_no_delivery()


def test_31_8_all_keys_route_when_it_is_due(channel: Channel, unique: Unique) -> None:
    exchange = delayed(channel, unique)
    queues = [bound_queue(channel, unique, exchange, key) for key in ("k", "cc", "bcc")]
    headers = [("CC", "A", [("S", "cc")]), ("BCC", "A", [("S", "bcc")])]
    publish(channel, exchange, b"1", headers=headers)
    for queue in queues:
        (delivery,) = received(channel, queue, 1)
        assert [key for key, _, _ in delivery.headers] == ["CC", "x-delay"]


def test_31_9_behind_another_exchange(channel: Channel, unique: Unique) -> None:
    exchange = delayed(channel, unique)
    fanout = new_exchange(channel, unique, "fanout")
    channel.exchange_bind(exchange, fanout, "")
    at_once = bound_queue(channel, unique, fanout, "")
    late = bound_queue(channel, unique, exchange, "k")
    publish(channel, fanout, b"1")
    assert bodies(received(channel, at_once, 1)) == [b"1"]
    (delivery,) = received(channel, late, 1)
    assert (delivery.body, delivery.exchange, delivery.routing_key) == (b"1", fanout, "k")


def test_31_9_only_the_first_of_two_delays(channel: Channel, unique: Unique) -> None:
    first, second = delayed(channel, unique), delayed(channel, unique)
    channel.exchange_bind(second, first, "k")
    queue = bound_queue(channel, unique, second, "k")
    started = time.monotonic()
    publish(channel, first, b"1", 1000)
    received(channel, queue, 1)
    assert time.monotonic() - started >= 1.0


def test_31_10_the_bindings_of_the_moment_count(channel: Channel, unique: Unique) -> None:
    exchange = delayed(channel, unique)
    removed = bound_queue(channel, unique, exchange, "k")
    publish(channel, exchange, b"1")
    channel.queue_unbind(removed, exchange, "k")
    added = bound_queue(channel, unique, exchange, "k")
    assert bodies(received(channel, added, 1)) == [b"1"]
    assert counts(channel, removed)[0] == 0


@pytest.mark.parametrize("inner", ["fanout", "topic", "headers", "x-random", "x-consistent-hash", "x-modulus-hash"])
def test_31_10_every_type_routes(channel: Channel, unique: Unique, inner: str) -> None:
    exchange = delayed(channel, unique, inner)
    queue = new_queue(channel, unique)
    channel.queue_bind(queue, exchange, "1", arguments=[("a", "I", 5)])
    for body in (b"1", b"2"):
        publish(channel, exchange, body, key="1", headers=[("a", "I", 5)])
    assert sorted(bodies(received(channel, queue, 2))) == [b"1", b"2"]


def test_31_11_order(channel: Channel, unique: Unique) -> None:
    exchange = delayed(channel, unique)
    queue = bound_queue(channel, unique, exchange, "k")
    for number in range(200):
        publish(channel, exchange, b"%d" % number, 1000)
    publish(channel, exchange, b"first", 500)
    found = received(channel, queue, 201)
    assert bodies(found) == [b"first", *(b"%d" % number for number in range(200))]
    assert not any(delivery.redelivered for delivery in found)


def test_31_11_different_headers(channel: Channel, unique: Unique) -> None:
    exchange = delayed(channel, unique, "fanout")
    queue = bound_queue(channel, unique, exchange, "")
    for number in range(40):
        delay = 3000 - 60 * number if number % 4 else 0
        properties = {"message_id": str(number), "delivery_mode": 1 + number % 2}
        publish(channel, exchange, b"%d" % number, delay, headers=[("n", "I", number)], properties=properties)
    found = [int(body) for body in bodies(received(channel, queue, 40))]
    at_once = list(range(0, 40, 4))
    assert found == at_once + sorted(set(range(40)) - set(at_once), reverse=True)


def test_31_11_the_ttl_starts_when_it_is_due(channel: Channel, unique: Unique) -> None:
    exchange = delayed(channel, unique)
    queue = bound_queue(channel, unique, exchange, "k")
    publish(channel, exchange, b"1", 600, properties={"expiration": "300"})
    (delivery,) = received(channel, queue, 1)
    assert delivery.properties["expiration"] == "300"


@pytest.mark.departs("3.13")
def test_31_12_the_header_at_delivery(channel: Channel, unique: Unique) -> None:
    exchange = delayed(channel, unique)
    queue = bound_queue(channel, unique, exchange, "k")
    publish(channel, exchange, b"1", "10", "S", headers=[("z", "I", 1), ("b", "t", True)])
    (delivery,) = received(channel, queue, 1)
    assert delivery.headers == [("b", "t", True), ("x-delay", "l", -10), ("z", "I", 1)]


def test_31_13_a_dead_letter_is_delayed(channel: Channel, unique: Unique) -> None:
    exchange = delayed(channel, unique)
    queue = bound_queue(channel, unique, exchange, "k")
    source = new_queue(channel, unique, arguments=[
        ("x-dead-letter-exchange", "S", exchange), ("x-message-ttl", "I", 0), ("x-dead-letter-routing-key", "S", "k"),
    ])  # fmt: skip
    started = time.monotonic()
    publish(channel, "", b"1", key=source)
    (delivery,) = received(channel, queue, 1)
    assert time.monotonic() - started >= SHORT / 1000
    assert {key for key, _, _ in delivery.headers} >= {"x-delay", "x-death"}


@pytest.mark.departs("4.0")
def test_31_15_deleting_the_exchange_drops_its_messages(channel: Channel, unique: Unique) -> None:
    exchange = delayed(channel, unique)
    publish(channel, exchange, b"1")
    channel.exchange_delete(exchange)
    channel.exchange_declare(exchange, TYPE, arguments=[(INNER, "S", "direct")])
    queue = bound_queue(channel, unique, exchange, "k")
    publish(channel, exchange, b"2", SHORT + 1)
    assert bodies(received(channel, queue, 1)) == [b"2"]


@pytest.mark.departs("4.0")
def test_31_17_a_limit_refuses(channel: Channel, connect: Connect, unique: Unique, policy: SetPolicy) -> None:
    exchange = delayed(channel, unique)
    queue = bound_queue(channel, unique, exchange, "k")
    policy(exchange, {"max-delayed": 2}, apply_to="exchanges")
    channel.confirm_select()
    for number in range(3):
        publish(channel, exchange, b"%d" % number, LONG)
    # What is not delayed is not limited.
    channel.publish(exchange, "k", b"at once")
    assert channel.wait_for_confirms(4) == [True, True, False, True]
    assert drain(channel, queue) == [b"at once"]
    transaction = connect().channel()
    transaction.tx_select()
    publish(transaction, exchange, b"3", LONG)
    text = "PRECONDITION_FAILED - partial tx completion"
    with transaction.expect_channel_close(406, text, commands.Tx.Commit):
        transaction.tx_commit()
