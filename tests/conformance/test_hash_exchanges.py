"""Rules 33.1 to 33.12: the exchange types x-consistent-hash and x-modulus-hash."""

from __future__ import annotations

from typing import Any

import pytest
from pamqp import commands

from tests.conformance.fixtures import Connect, Unique
from tests.conformance.http_api import Belongings, HttpApi, bad_request, path
from tests.conformance.reply_texts import no_queue
from tests.conformance.topology import bound_queue, counts, drain, new_exchange, new_queue
from tests.support.tables import Triple
from tests.support.wire import Channel

HASH, MODULUS = "x-consistent-hash", "x-modulus-hash"
consistent = pytest.mark.plugin(HASH)
modulus = pytest.mark.plugin(MODULUS)

TOO_SMALL = "The binding key must be greater than 0"
NO_INTEGER = "The binding key must be an integer: "
#: Binding keys that are not weights, and why.
NO_WEIGHTS = {
    "": NO_INTEGER + "<<>>",
    "a": NO_INTEGER + '<<"a">>',
    "1.5": NO_INTEGER + '<<"1.5">>',
    " 1": NO_INTEGER + '<<" 1">>',
    "1 ": NO_INTEGER + '<<"1 ">>',
    "1_0": NO_INTEGER + '<<"1_0">>',
    "+": NO_INTEGER + '<<"+">>',
    "--1": NO_INTEGER + '<<"--1">>',
    "²": NO_INTEGER + '<<"²">>',
    "0": TOO_SMALL,
    "-1": TOO_SMALL,
    "-0": TOO_SMALL,
}


def spread(channel: Channel, exchange: str, keys: range, queues: list[str], **options: Any) -> dict[str, str]:
    """Publish a message for each key; return the queue that each key has come to."""
    for key in keys:
        channel.publish(exchange, str(key), b"%d" % key, **options)
    channel.sync(*queues)
    return {body.decode(): queue for queue in queues for body in drain(channel, queue)}


def declare_bad(channel: Channel, unique: Unique, arguments: list[Triple], text: str) -> None:
    with channel.expect_channel_close(406, f"PRECONDITION_FAILED - {text}", commands.Exchange.Declare):
        channel.exchange_declare(unique("x"), HASH, arguments=arguments)


@consistent
@pytest.mark.parametrize("name", ["app_id", "", "message-id", "headers"])
def test_33_2_properties_that_are_not_hashed(channel: Channel, unique: Unique, name: str) -> None:
    declare_bad(channel, unique, [("hash-property", "S", name)], f"Unsupported property: {name}")


@consistent
@pytest.mark.parametrize("name", ["message_id", "app_id"])
def test_33_2_a_header_or_a_property(channel: Channel, unique: Unique, name: str) -> None:
    arguments: list[Triple] = [("hash-header", "S", "h"), ("hash-property", "S", name)]
    declare_bad(channel, unique, arguments, "hash-header and hash-property are mutually exclusive")


@pytest.mark.parametrize("kind", [pytest.param(HASH, marks=consistent), pytest.param(MODULUS, marks=modulus)])
def test_33_1_other_arguments_are_ignored_and_not_compared(channel: Channel, unique: Unique, kind: str) -> None:
    exchange = new_exchange(channel, unique, kind, arguments=[("hash-header", "S", "h"), ("other", "I", 1)])
    channel.exchange_declare(exchange, kind, arguments=[("hash-property", "S", "app_id")])
    channel.exchange_declare(exchange, kind)


@consistent
@pytest.mark.parametrize("key", NO_WEIGHTS)
def test_33_4_binding_keys_are_weights(channel: Channel, unique: Unique, key: str) -> None:
    exchange, queue = new_exchange(channel, unique, HASH), new_queue(channel, unique)
    with channel.expect_channel_close(406, f"PRECONDITION_FAILED - {NO_WEIGHTS[key]}", commands.Queue.Bind):
        channel.queue_bind(queue, exchange, key)


@consistent
def test_33_4_exchanges_need_a_weight_too(channel: Channel, unique: Unique) -> None:
    exchange, destination = new_exchange(channel, unique, HASH), new_exchange(channel, unique, "fanout")
    with channel.expect_channel_close(406, f'PRECONDITION_FAILED - {NO_INTEGER}<<"a">>', commands.Exchange.Bind):
        channel.exchange_bind(destination, exchange, "a")


@consistent
def test_33_4_a_missing_queue_comes_first(channel: Channel, unique: Unique, vhost: str) -> None:
    exchange, queue = new_exchange(channel, unique, HASH), unique()
    with channel.expect_channel_close(404, no_queue(queue, vhost), commands.Queue.Bind):
        channel.queue_bind(queue, exchange, "a")


@consistent
def test_33_4_unbinding_checks_nothing(channel: Channel, unique: Unique) -> None:
    exchange = new_exchange(channel, unique, HASH)
    queue = bound_queue(channel, unique, exchange, "1")
    channel.queue_unbind(queue, exchange, "a")
    assert spread(channel, exchange, range(3), [queue]) == {"0": queue, "1": queue, "2": queue}


@consistent
def test_33_5_shares_follow_weights(channel: Channel, unique: Unique) -> None:
    exchange = new_exchange(channel, unique, HASH)
    queues = [bound_queue(channel, unique, exchange, weight) for weight in ("01", "+2", "5")]
    for key in range(4000):
        channel.publish(exchange, f"key {key}")
    channel.sync(*queues)
    found = [counts(channel, queue)[0] for queue in queues]
    assert sum(found) == 4000
    assert [abs(count - weight * 500) < 200 for count, weight in zip(found, (1, 2, 5), strict=True)] == [True] * 3


@consistent
def test_33_6_a_new_queue_takes_keys_only_for_itself(channel: Channel, unique: Unique) -> None:
    exchange = new_exchange(channel, unique, HASH)
    queues = [bound_queue(channel, unique, exchange, "2") for _ in range(3)]
    before = spread(channel, exchange, range(200), queues)
    assert spread(channel, exchange, range(200), queues) == before
    added = bound_queue(channel, unique, exchange, "2")
    after = spread(channel, exchange, range(200), [*queues, added])
    assert {after[key] for key in before if after[key] != before[key]} == {added}
    channel.queue_unbind(added, exchange, "2")
    assert spread(channel, exchange, range(200), queues) == before


@consistent
def test_33_3_one_destination_gets_each_message(channel: Channel, unique: Unique) -> None:
    exchange, fanout = new_exchange(channel, unique, HASH), new_exchange(channel, unique, "fanout")
    queue = bound_queue(channel, unique, exchange, "1")
    pair = [bound_queue(channel, unique, fanout, "") for _ in range(2)]
    channel.exchange_bind(fanout, exchange, "1")
    for key in range(100):
        channel.publish(exchange, str(key), b"%d" % key)
    channel.sync(queue, *pair)
    alone, one, other = (set(drain(channel, each)) for each in (queue, *pair))
    assert one == other
    assert not alone & one
    assert len(alone | one) == 100
    assert alone
    assert one


@consistent
@pytest.mark.parametrize("argument", ["hash-header", "message_id", "correlation_id", "timestamp"])
def test_33_2_what_is_hashed(channel: Channel, unique: Unique, argument: str) -> None:
    name = argument if argument == "hash-header" else "hash-property"
    value = "h" if argument == "hash-header" else argument
    exchange = new_exchange(channel, unique, HASH, arguments=[(name, "S", value)])
    queues = [bound_queue(channel, unique, exchange, "1") for _ in range(4)]

    def publish(number: int, body: bytes, key: str) -> None:
        given: dict[str, Any] = {argument: f"value {number}"}
        if argument == "hash-header":
            given = {"headers": [("h", "S", f"value {number}")]}
        elif argument == "timestamp":
            given = {"timestamp": number}
        channel.publish(exchange, key, body, given)

    for number in range(100):
        publish(number, b"%d" % number, f"a {number}")
        publish(number, b"%d" % number, f"b {number}")
    channel.sync(*queues)
    found = [drain(channel, queue) for queue in queues]
    assert all(found)
    # Both messages with a value have come to the same queue.
    assert sorted(body for each in found for body in set(each)) == sorted(b"%d" % number for number in range(100))


@consistent
@pytest.mark.parametrize("name", ["hash-header", "hash-property"])
def test_33_9_without_the_header_all_go_to_one_queue(channel: Channel, unique: Unique, name: str) -> None:
    exchange = new_exchange(channel, unique, HASH, arguments=[(name, "S", "message_id")])
    queues = [bound_queue(channel, unique, exchange, "1") for _ in range(4)]
    bare = spread(channel, exchange, range(20), queues)
    other = spread(channel, exchange, range(20, 40), queues, properties={"headers": [("other", "I", 1)]})
    assert len(set(bare.values())) == len(set(other.values())) == 1


@consistent
def test_33_9_cc_changes_nothing(channel: Channel, unique: Unique) -> None:
    exchange = new_exchange(channel, unique, HASH)
    queues = [bound_queue(channel, unique, exchange, "1") for _ in range(4)]
    copies = {"headers": [("CC", "A", [("S", "a"), ("S", "b")])]}
    channel.publish(exchange, "key", b"0", copies)
    channel.sync(*queues)
    assert sum(len(drain(channel, queue)) for queue in queues) == 1


@pytest.mark.departs("none")
@pytest.mark.parametrize("name", ["hash-header", "hash-property"])
def test_33_2_arguments_that_are_no_strings(channel: Channel, unique: Unique, vhost: str, name: str) -> None:
    exchange = unique("x")
    text = (
        f"PRECONDITION_FAILED - invalid type 'signedint' for arg '{name}' in exchange '{exchange}' in vhost '{vhost}'"
    )
    with channel.expect_channel_close(406, text, commands.Exchange.Declare):
        channel.exchange_declare(exchange, HASH, arguments=[(name, "I", 5)])


@pytest.mark.departs("none")
def test_33_7_weights_of_a_queue_add_up(channel: Channel, unique: Unique) -> None:
    exchange = new_exchange(channel, unique, HASH)
    twice, once = bound_queue(channel, unique, exchange, "1", "2"), bound_queue(channel, unique, exchange, "1")
    assert list(spread(channel, exchange, range(1000), [twice, once]).values()).count(twice) > 650
    channel.queue_unbind(twice, exchange, "1")
    assert 550 < list(spread(channel, exchange, range(1000), [twice, once]).values()).count(twice) < 750
    channel.queue_unbind(twice, exchange, "2")
    assert set(spread(channel, exchange, range(100), [twice, once]).values()) == {once}


@modulus
def test_33_12_modulus_counts_bindings(channel: Channel, unique: Unique) -> None:
    exchange = new_exchange(channel, unique, MODULUS)
    twice, once = bound_queue(channel, unique, exchange, "a", "b"), bound_queue(channel, unique, exchange, "a")
    first = spread(channel, exchange, range(900), [twice, once])
    assert len(first) == 900
    assert 500 < list(first.values()).count(twice) < 700
    assert spread(channel, exchange, range(900), [twice, once]) == first


@modulus
def test_33_12_modulus_hashes_cc(channel: Channel, unique: Unique) -> None:
    exchange = new_exchange(channel, unique, MODULUS)
    queues = [bound_queue(channel, unique, exchange, "") for _ in range(3)]
    alone = spread(channel, exchange, range(60), queues)
    copied = spread(channel, exchange, range(60), queues, properties={"headers": [("CC", "A", [("S", "a")])]})
    assert len(copied) == 60
    assert copied != alone


@pytest.mark.parametrize("kind", [pytest.param(HASH, marks=consistent), pytest.param(MODULUS, marks=modulus)])
def test_33_1_unroutable_without_bindings(connect: Connect, unique: Unique, kind: str) -> None:
    channel = connect().channel()
    other = new_exchange(channel, unique, "fanout")
    queue = bound_queue(channel, unique, other, "")
    exchange = new_exchange(channel, unique, kind)
    backed = new_exchange(channel, unique, kind, arguments=[("alternate-exchange", "S", other)])
    channel.publish(exchange, "k", b"back", mandatory=True)
    channel.publish(backed, "k", b"through", mandatory=True)
    returned = channel.next_return()
    assert (returned.reply_code, returned.body) == (312, b"back")
    assert drain(channel, queue) == [b"through"]


@consistent
def test_33_2_arguments_over_http(api: HttpApi, own_vhost: str) -> None:
    below = path("exchanges", own_vhost, "x")
    body = {"type": HASH, "arguments": {"hash-property": "app_id"}}
    api.check("PUT", below, body, 400, bad_request("Unsupported property: app_id"))
    api.check("PUT", below, {"type": HASH, "arguments": {"hash-header": "h"}}, 201)
    shown = api.get(f"{below}?columns=type,arguments")
    assert shown == {"type": HASH, "arguments": {"hash-header": "h"}}


@consistent
@pytest.mark.parametrize("key", ["a", "", "0"])
def test_33_4_weights_over_http(api: HttpApi, own_vhost: str, key: str) -> None:
    api.check("PUT", path("exchanges", own_vhost, "x"), {"type": HASH}, 201)
    api.check("PUT", path("queues", own_vhost, "q"), {}, 201)
    below = path("bindings", own_vhost, "e", "x", "q", "q")
    api.check("POST", below, {"routing_key": key}, 400, bad_request(NO_WEIGHTS[key]))
    assert api.ask("POST", below, {"routing_key": "3"}).status == 201
    for number in range(3):
        published = {"routing_key": str(number), "properties": {}, "payload": "m", "payload_encoding": "string"}
        api.check("POST", path("exchanges", own_vhost, "x", "publish"), published, 200, {"routed": True})


@consistent
def test_33_2_definitions_carry_them(api: HttpApi, own_vhost: str, belongings: Belongings) -> None:
    arguments = {"hash-property": "message_id"}
    api.check("PUT", path("exchanges", own_vhost, "x"), {"type": HASH, "durable": True, "arguments": arguments}, 201)
    api.check("PUT", path("queues", own_vhost, "q"), {"durable": True}, 201)
    assert api.ask("POST", path("bindings", own_vhost, "e", "x", "q", "q"), {"routing_key": "7"}).status == 201
    exported = api.get(path("definitions", own_vhost))
    other = belongings.vhost()
    assert api.ask("POST", path("definitions", other), exported).status == 204
    shown = api.get(f"{path('exchanges', other, 'x')}?columns=type,arguments")
    assert shown == {"type": HASH, "arguments": arguments}
    assert [each["routing_key"] for each in api.get(path("bindings", other, "e", "x", "q", "q"))] == ["7"]


@pytest.mark.parametrize(
    ("kind", "description"),
    [
        pytest.param(HASH, "Consistent Hashing Exchange", marks=consistent),
        pytest.param(MODULUS, "Modulus Hashing Exchange", marks=modulus),
        pytest.param(
            "x-random",
            "Randomly picks a binding (queue) to route via (to).",
            marks=pytest.mark.plugin("x-random"),
        ),
        pytest.param("x-recent-history", "Recent History Exchange.", marks=pytest.mark.plugin("x-recent-history")),
    ],
)
def test_33_1_descriptions(api: HttpApi, kind: str, description: str) -> None:
    types = api.get("overview")["exchange_types"]
    assert {"name": kind, "description": description, "enabled": True} in types
