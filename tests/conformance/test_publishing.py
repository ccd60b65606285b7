"""Rules 16.1 to 16.17: basic.publish – what is refused, what comes back, CC and BCC."""

from __future__ import annotations

from typing import Any

import pytest
from pamqp import commands

from tests.conformance.accounts import Accounts
from tests.conformance.fixtures import Connect, Unique
from tests.conformance.reply_texts import no_exchange
from tests.conformance.topology import bound_queue, drain, got, new_exchange, new_queue
from tests.support.tables import Triple
from tests.support.wire import Channel

PUBLISH = commands.Basic.Publish


def longstrs(*keys: str) -> list[tuple[str, str]]:
    return [("S", key) for key in keys]


def test_16_2_immediate(channel: Channel, unique: Unique) -> None:
    queue = new_queue(channel, unique)
    with channel.expect_connection_close(540, "NOT_IMPLEMENTED - immediate=true", PUBLISH):
        channel.publish("", queue, immediate=True)


def test_16_1_immediate_is_checked_first(channel: Channel, unique: Unique) -> None:
    with channel.expect_connection_close(540, "NOT_IMPLEMENTED - immediate=true", PUBLISH):
        channel.publish(unique("missing"), "", immediate=True)


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("mandatory", [False, True])
def test_16_3_missing_exchange(channel: Channel, unique: Unique, vhost: str, count: int, mandatory: bool) -> None:
    exchange = unique("x")
    with channel.expect_channel_close(404, no_exchange(exchange, vhost), PUBLISH):
        for _ in range(count):
            channel.publish(exchange, "key", b"body", mandatory=mandatory)
    assert not channel.returns
    channel.connection.channel().sync()


def test_16_3_what_was_published_before_counts(channel: Channel, unique: Unique, vhost: str) -> None:
    queue, exchange = new_queue(channel, unique), unique("x")
    channel.publish("", queue, b"before")
    with channel.expect_channel_close(404, no_exchange(exchange, vhost), PUBLISH):
        channel.publish(exchange, "key", b"fails")
        channel.publish("", queue, b"after")
    assert drain(channel.connection.channel(), queue) == [b"before"]


@pytest.mark.parametrize("user_id", ["bob", "", "guest ", "GUEST"])
def test_16_4_user_id_of_another(channel: Channel, unique: Unique, accounts: Accounts, user_id: str) -> None:
    queue = new_queue(channel, unique)
    text = (
        f"PRECONDITION_FAILED - user_id property set to '{user_id}'"
        f" but authenticated user was '{accounts.default_user}'"
    )
    with channel.expect_channel_close(406, text, PUBLISH):
        channel.publish("", queue, properties={"user_id": user_id})


def test_16_4_own_user_id(channel: Channel, unique: Unique, accounts: Accounts) -> None:
    queue = new_queue(channel, unique)
    channel.publish("", queue, properties={"user_id": accounts.default_user})
    assert got(channel, queue, no_ack=True).properties == {"user_id": accounts.default_user}


def test_16_4_an_impersonator_may_set_any(connect: Connect, accounts: Accounts, unique: Unique) -> None:
    channel = connect(**accounts.login("impersonator")).channel()
    queue = new_queue(channel, unique)
    channel.publish("", queue, properties={"user_id": "bob"})
    assert got(channel, queue, no_ack=True).properties == {"user_id": "bob"}


@pytest.mark.parametrize("expiration", ["600000", "+600000", "00600000", "315360000000"])
def test_16_5_valid_expiration(channel: Channel, unique: Unique, expiration: str) -> None:
    queue = new_queue(channel, unique)
    channel.publish("", queue, properties={"expiration": expiration})
    assert got(channel, queue, no_ack=True).properties == {"expiration": expiration}


@pytest.mark.parametrize("mode", [0, 3, 255])
def test_16_6_unknown_delivery_mode(channel: Channel, unique: Unique, mode: int) -> None:
    queue = new_queue(channel, unique)
    text = f"PRECONDITION_FAILED - invalid message: {{delivery_mode_unknown,{mode}}}"
    with channel.expect_channel_close(406, text, PUBLISH):
        channel.publish("", queue, properties={"delivery_mode": mode})


@pytest.mark.parametrize("priority", [0, 9, 10, 255])
def test_16_6_any_priority(channel: Channel, unique: Unique, priority: int) -> None:
    queue = new_queue(channel, unique)
    channel.publish("", queue, properties={"priority": priority})
    assert got(channel, queue, no_ack=True).properties == {"priority": priority}


@pytest.mark.parametrize(
    ("properties", "text"),
    [
        (
            {"user_id": "bob", "expiration": "abc", "delivery_mode": 3},
            "user_id property set to 'bob' but authenticated user was 'guest'",
        ),
        (
            {"reply_to": "amq.rabbitmq.reply-to", "user_id": "bob", "expiration": "abc"},
            "fast reply consumer does not exist",
        ),
        ({"expiration": "abc", "delivery_mode": 3}, "invalid expiration 'abc': no_integer"),
        ({"expiration": "abc", "headers": [("CC", "I", 1)]}, "invalid expiration 'abc': no_integer"),
        (
            {"delivery_mode": 3, "headers": [("BCC", "I", 1), ("CC", "I", 1)]},
            'invalid message: {unacceptable_type_in_header,"CC",signedint}',
        ),
    ],
)
def test_16_1_order_of_checks(
    channel: Channel, unique: Unique, accounts: Accounts, properties: dict[str, Any], text: str
) -> None:
    text = text.replace("'guest'", f"'{accounts.default_user}'")
    with channel.expect_channel_close(406, f"PRECONDITION_FAILED - {text}", PUBLISH):
        channel.publish("", unique(), properties=properties)


def test_16_1_a_missing_exchange_before_properties(channel: Channel, unique: Unique, vhost: str) -> None:
    exchange = unique("x")
    with channel.expect_channel_close(404, no_exchange(exchange, vhost), PUBLISH):
        channel.publish(exchange, "", properties={"user_id": "bob"})


def test_16_1_an_internal_exchange_before_properties(channel: Channel, unique: Unique, vhost: str) -> None:
    exchange = new_exchange(channel, unique, internal=True)
    text = f"ACCESS_REFUSED - cannot publish to internal exchange '{exchange}' in vhost '{vhost}'"
    with channel.expect_channel_close(403, text, PUBLISH):
        channel.publish(exchange, "", properties={"user_id": "bob"})


def test_16_7_unroutable_is_dropped(channel: Channel, unique: Unique) -> None:
    channel.publish("", unique(), b"gone")
    channel.publish("amq.direct", unique("key"), b"gone")
    channel.sync()
    assert not channel.returns


def test_16_8_mandatory_is_returned_whole(channel: Channel, unique: Unique) -> None:
    exchange = new_exchange(channel, unique, "topic")
    body = bytes(range(256)) * 1000
    properties = {"message_id": "m", "headers": [("h", "S", "v")], "timestamp": 5}
    channel.publish(exchange, "some.key", body, properties, mandatory=True)
    returned = channel.next_return()
    assert (returned.reply_code, returned.reply_text) == (312, "NO_ROUTE")
    assert (returned.exchange, returned.routing_key) == (exchange, "some.key")
    assert (returned.properties, returned.body) == (properties, body)


def test_16_8_mandatory_that_is_routed(channel: Channel, unique: Unique) -> None:
    queue = new_queue(channel, unique)
    channel.publish("", queue, b"routed", mandatory=True)
    assert drain(channel, queue) == [b"routed"]
    assert not channel.returns


def test_16_8_returns_keep_their_order(channel: Channel, unique: Unique) -> None:
    for number in range(5):
        channel.publish("", unique(), b"%d" % number, mandatory=True)
    assert [channel.next_return().body for _ in range(5)] == [b"0", b"1", b"2", b"3", b"4"]


@pytest.mark.parametrize("name", ["CC", "BCC"])
@pytest.mark.parametrize(
    ("letter", "value", "type_name"), [("S", "key", "longstr"), ("I", 1, "signedint"), ("V", None, "void")]
)
def test_16_16_must_be_an_array(
    channel: Channel, unique: Unique, name: str, letter: str, value: Any, type_name: str
) -> None:
    text = f'PRECONDITION_FAILED - invalid message: {{unacceptable_type_in_header,"{name}",{type_name}}}'
    with channel.expect_channel_close(406, text, PUBLISH):
        channel.publish("", unique(), properties={"headers": [(name, letter, value)]})


@pytest.mark.parametrize("name", ["CC", "BCC"])
def test_16_16_further_routing_keys(channel: Channel, unique: Unique, name: str) -> None:
    queues = [new_queue(channel, unique) for _ in range(4)]
    keys = [("S", queues[1]), ("I", 5), ("S", queues[2]), ("x", queues[3].encode())]
    channel.publish("", queues[0], b"body", {"headers": [(name, "A", keys)]})
    assert [drain(channel, queue) for queue in queues] == [[b"body"]] * 3 + [[]]


@pytest.mark.parametrize("name", ["cc", "Cc", "bcc"])
def test_16_16_lower_case_means_nothing(channel: Channel, unique: Unique, name: str) -> None:
    first, second = new_queue(channel, unique), new_queue(channel, unique)
    headers: list[Triple] = [(name, "A", longstrs(second))]
    channel.publish("", first, b"body", {"headers": headers})
    assert got(channel, first).headers == headers
    assert drain(channel, second) == []


def test_16_17_cc_stays_and_bcc_goes(channel: Channel, unique: Unique) -> None:
    exchange = new_exchange(channel, unique)
    queues = [bound_queue(channel, unique, exchange, key) for key in ("main", "copy", "blind")]
    headers: list[Triple] = [
        ("first", "I", 1),
        ("CC", "A", longstrs("copy")),
        ("BCC", "A", longstrs("blind")),
        ("last", "S", "x"),
    ]
    channel.publish(exchange, "main", b"body", {"headers": headers, "message_id": "m"})
    for queue in queues:
        delivery = got(channel, queue)
        assert delivery.headers == [each for each in headers if each[0] != "BCC"]
        assert (delivery.properties["message_id"], delivery.routing_key) == ("m", "main")


def test_16_17_bcc_is_removed_from_returns(channel: Channel, unique: Unique) -> None:
    headers: list[Triple] = [("CC", "A", longstrs(unique())), ("BCC", "A", longstrs(unique()))]
    channel.publish("", unique(), b"", {"headers": headers}, mandatory=True)
    assert channel.next_return().headers == headers[:1]


def test_16_17_bcc_alone_leaves_an_empty_table(channel: Channel, unique: Unique) -> None:
    queue, blind = new_queue(channel, unique), new_queue(channel, unique)
    channel.publish("", queue, b"", {"headers": [("BCC", "A", longstrs(blind))]})
    assert [got(channel, each).properties for each in (queue, blind)] == [{"headers": []}] * 2


def test_16_17_duplicates_collapse(channel: Channel, unique: Unique) -> None:
    queue = new_queue(channel, unique)
    headers = [("CC", "A", longstrs(queue, queue)), ("BCC", "A", longstrs(queue))]
    channel.publish("", queue, b"once", {"headers": headers})
    assert drain(channel, queue) == [b"once"]


@pytest.mark.parametrize("name", ["CC", "BCC"])
def test_16_17_any_routed_key_is_enough(channel: Channel, unique: Unique, name: str) -> None:
    queue = new_queue(channel, unique)
    headers = [(name, "A", longstrs(unique(), queue))]
    channel.publish("", unique(), b"routed", {"headers": headers}, mandatory=True)
    assert drain(channel, queue) == [b"routed"]
    assert not channel.returns
