"""Rules 32.1 to 32.12: the exchange type x-message-deduplication."""

from __future__ import annotations

import time
from typing import Any

import pytest
from pamqp import commands

from tests.conformance.fixtures import Connect, SetPolicy, Unique
from tests.conformance.http_api import HttpApi, bad_request, path
from tests.conformance.operator_policies import refusal
from tests.conformance.topology import bound_queue, counts, drain, new_exchange, new_queue
from tests.support.tables import Triple
from tests.support.wire import Channel

TYPE = "x-message-deduplication"
HEADER = "x-deduplication-header"
SIZE = ("x-cache-size", "I", 100)
pytestmark = pytest.mark.plugin(TYPE)

BAD_SIZE = "Missing or invalid argument, 'x-cache-size' must be an integer greater than 0"
BAD_TTL = "Invalid argument, 'x-cache-ttl' must be an integer greater than 0"
BAD_PERSISTENCE = "Invalid argument, 'x-cache-persistence' must be either 'disk' or 'memory'"


def deduplicating(channel: Channel, unique: Unique, *arguments: Triple, size: Triple = SIZE) -> tuple[str, str]:
    """Declare an exchange of the type with a queue bound to it; return both names."""
    exchange = new_exchange(channel, unique, TYPE, arguments=[size, *arguments])
    return exchange, bound_queue(channel, unique, exchange, "")


def publish(
    channel: Channel,
    exchange: str,
    body: bytes,
    value: object = "a",
    kind: str = "S",
    *,
    headers: tuple[Triple, ...] = (),
    **options: Any,
) -> None:
    """Publish a message with a value."""
    table = [*headers, (HEADER, kind, value)]
    channel.publish(exchange, options.pop("key", "k"), body, {"headers": table}, **options)


# -- declaring ----------------------------------------------------------------------------------------------


@pytest.mark.departs("4.0")
@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ([], BAD_SIZE),
        ([("x-cache-size", "I", 0)], BAD_SIZE),
        ([("x-cache-size", "I", -1)], BAD_SIZE),
        ([("x-cache-size", "S", "10abc")], BAD_SIZE),
        ([("x-cache-size", "S", "")], BAD_SIZE),
        ([("x-cache-size", "d", 5.0)], BAD_SIZE),
        ([("x-cache-size", "t", True)], BAD_SIZE),
        ([SIZE, ("x-cache-ttl", "I", 0)], BAD_TTL),
        ([SIZE, ("x-cache-ttl", "t", True)], BAD_TTL),
        ([SIZE, ("x-cache-persistence", "S", "ram")], BAD_PERSISTENCE),
        ([SIZE, ("x-cache-persistence", "I", 1)], BAD_PERSISTENCE),
    ],
)
def test_32_2_wrong_arguments(channel: Channel, unique: Unique, arguments: list[Triple], text: str) -> None:
    with channel.expect_channel_close(406, f"PRECONDITION_FAILED - {text}", commands.Exchange.Declare):
        channel.exchange_declare(unique("x"), TYPE, arguments=arguments)


@pytest.mark.parametrize(
    "arguments",
    [
        [("x-cache-size", "S", "10")],
        [("x-cache-size", "S", "0")],
        [("x-cache-size", "b", 10), ("x-cache-ttl", "l", 1000)],
        [SIZE, ("x-cache-ttl", "S", "1000"), ("x-cache-persistence", "S", "memory")],
        [SIZE, ("x-cache-persistence", "S", "disk")],
    ],
)
def test_32_2_right_arguments(channel: Channel, unique: Unique, arguments: list[Triple]) -> None:
    exchange = new_exchange(channel, unique, TYPE, arguments=arguments)
    queue = bound_queue(channel, unique, exchange, "")
    publish(channel, exchange, b"1")
    publish(channel, exchange, b"2")
    channel.sync(queue)
    assert drain(channel, queue) == [b"1"]


@pytest.mark.departs("4.0")
def test_32_2_over_http(api: HttpApi, own_vhost: str) -> None:
    below = path("exchanges", own_vhost, "x")
    api.check("PUT", below, {"type": TYPE}, 400, bad_request(BAD_SIZE))
    arguments = {"x-cache-size": 5, "x-cache-ttl": 1000, "x-cache-persistence": "disk"}
    api.check("PUT", below, {"type": TYPE, "arguments": arguments}, 201)
    assert api.get(f"{below}?columns=type,arguments") == {"type": TYPE, "arguments": arguments}


@pytest.mark.parametrize(
    "again", [[], [("x-cache-size", "I", 5)], [("x-cache-size", "S", "a"), ("x-cache-ttl", "I", 0)]]
)
def test_32_3_declaring_again_compares_nothing(channel: Channel, unique: Unique, again: list[Triple]) -> None:
    exchange = new_exchange(channel, unique, TYPE, arguments=[SIZE])
    channel.exchange_declare(exchange, TYPE, arguments=again)


# -- duplicates ---------------------------------------------------------------------------------------------


def test_32_1_it_is_a_fanout(channel: Channel, unique: Unique) -> None:
    exchange, first = deduplicating(channel, unique)
    second = bound_queue(channel, unique, exchange, "another key")
    publish(channel, exchange, b"1")
    publish(channel, exchange, b"duplicate", key="other")
    publish(channel, exchange, b"2", "b")
    channel.sync(first)
    assert drain(channel, first) == drain(channel, second) == [b"1", b"2"]


def test_32_4_without_the_header_nothing_is_dropped(channel: Channel, unique: Unique) -> None:
    exchange, queue = deduplicating(channel, unique)
    for number in range(3):
        channel.publish(exchange, "", b"%d" % number)
        channel.publish(exchange, "", b"%d" % number, {"headers": [("other", "S", HEADER)]})
    channel.sync(queue)
    assert counts(channel, queue)[0] == 6


EQUAL: list[tuple[Triple, Triple]] = [
    (("", "b", 5), ("", "l", 5)),
    (("", "s", -5), ("", "I", -5)),
    (("", "B", 200), ("", "I", 200)),
    (("", "S", "a"), ("", "x", b"a")),
    (("", "V", None), ("", "V", None)),
    (("", "d", 1.5), ("", "f", 1.5)),
    (("", "S", ""), ("", "S", "")),
    (("", "A", [("I", 1)]), ("", "A", [("I", 1)])),
]
DIFFERENT: list[tuple[Triple, Triple]] = [
    (("", "I", 1), ("", "d", 1.0)),
    (("", "I", 1), ("", "S", "1")),
    (("", "I", 1), ("", "t", True)),
    (("", "V", None), ("", "S", "")),
    (("", "t", True), ("", "t", False)),
    (("", "S", "a"), ("", "S", "A")),
    (("", "A", [("I", 1)]), ("", "A", [("I", 2)])),
]


@pytest.mark.parametrize(("first", "second"), EQUAL)
def test_32_4_equal_values(channel: Channel, unique: Unique, first: Triple, second: Triple) -> None:
    exchange, queue = deduplicating(channel, unique)
    publish(channel, exchange, b"1", first[2], first[1])
    publish(channel, exchange, b"2", second[2], second[1])
    channel.sync(queue)
    assert drain(channel, queue) == [b"1"]


@pytest.mark.parametrize(("first", "second"), DIFFERENT)
def test_32_4_different_values(channel: Channel, unique: Unique, first: Triple, second: Triple) -> None:
    exchange, queue = deduplicating(channel, unique)
    publish(channel, exchange, b"1", first[2], first[1])
    publish(channel, exchange, b"2", second[2], second[1])
    channel.sync(queue)
    assert drain(channel, queue) == [b"1", b"2"]


def test_32_4_the_header_among_others(channel: Channel, unique: Unique) -> None:
    exchange, queue = deduplicating(channel, unique)
    others: tuple[Triple, ...] = (
        ("t", "t", True), ("n", "F", [(HEADER, "S", "inside")]), ("a", "A", [("S", HEADER)]), ("d", "D", (2, 314)),
        ("v", "V", None), ("s", "S", f"\x16{HEADER}S\x00\x00\x00\x01z"), ("l", "l", 1), ("f", "f", 0.5),
    )  # fmt: skip
    properties: dict[str, object] = {"content_type": "text/plain", "content_encoding": "utf-8", "delivery_mode": 2}
    for body, value in ((b"1", "a"), (b"2", "inside"), (b"3", "z"), (b"4", "a")):
        headers = [*others, (HEADER, "S", value), ("after", "S", "x")]
        channel.publish(exchange, "", body, {**properties, "headers": headers, "message_id": body.decode()})
    channel.sync(queue)
    assert drain(channel, queue) == [b"1", b"2", b"3"]


def test_32_5_the_ttl(channel: Channel, unique: Unique) -> None:
    exchange, queue = deduplicating(channel, unique, ("x-cache-ttl", "I", 600))
    publish(channel, exchange, b"1")
    started = time.monotonic()
    publish(channel, exchange, b"duplicate")
    channel.sync(queue)
    if time.monotonic() - started < 0.5:
        assert counts(channel, queue)[0] == 1
    # A duplicate does not prolong it.
    while counts(channel, queue)[0] < 2:
        assert time.monotonic() - started < 10
        publish(channel, exchange, b"again")
        channel.sync(queue)
    assert time.monotonic() - started >= 0.59


@pytest.mark.parametrize(("kind", "value"), [("I", 300), ("d", 300.5), ("l", 300), ("s", 300)])
def test_32_5_the_ttl_of_a_message(channel: Channel, unique: Unique, kind: str, value: object) -> None:
    exchange, queue = deduplicating(channel, unique)
    publish(channel, exchange, b"1", headers=(("x-cache-ttl", kind, value),))
    started = time.monotonic()
    while counts(channel, queue)[0] < 2:
        assert time.monotonic() - started < 10
        publish(channel, exchange, b"again")
        channel.sync(queue)
    assert time.monotonic() - started >= 0.29


@pytest.mark.parametrize("value", [0, -1])
def test_32_5_not_remembered(channel: Channel, unique: Unique, value: int) -> None:
    exchange, queue = deduplicating(channel, unique)
    for body in (b"1", b"2", b"3"):
        publish(channel, exchange, body, headers=(("x-cache-ttl", "I", value),))
    channel.sync(queue)
    assert drain(channel, queue) == [b"1", b"2", b"3"]


@pytest.mark.departs("4.0")
@pytest.mark.parametrize(("kind", "value"), [("S", "1"), ("t", True), ("V", None)])
def test_32_5_a_ttl_that_is_no_number_is_none(channel: Channel, unique: Unique, kind: str, value: object) -> None:
    exchange, queue = deduplicating(channel, unique)
    for body in (b"1", b"2"):
        publish(channel, exchange, body, headers=(("x-cache-ttl", kind, value),))
    channel.sync(queue)
    assert drain(channel, queue) == [b"1"]


@pytest.mark.departs("4.0")
def test_32_6_the_oldest_value_makes_room(channel: Channel, unique: Unique) -> None:
    exchange, queue = deduplicating(channel, unique, size=("x-cache-size", "I", 3))
    for value in ("a", "b", "c", "a", "d", "b", "c", "d", "a"):
        publish(channel, exchange, value.encode(), value)
    channel.sync(queue)
    # The second a is a duplicate and does not count as new; d takes its place.
    assert drain(channel, queue) == [b"a", b"b", b"c", b"d", b"a"]


@pytest.mark.departs("4.0")
def test_32_7_a_duplicate_is_acked_and_goes_nowhere(channel: Channel, unique: Unique) -> None:
    alternate = new_exchange(channel, unique, "fanout")
    other = bound_queue(channel, unique, alternate, "")
    exchange, queue = deduplicating(channel, unique, ("alternate-exchange", "S", alternate))
    channel.confirm_select()
    for body in (b"1", b"2", b"3"):
        publish(channel, exchange, body, mandatory=True)
    assert channel.wait_for_confirms(3) == [True, True, True]
    assert not channel.returns
    assert (drain(channel, queue), counts(channel, other)[0]) == ([b"1"], 0)


@pytest.mark.departs("4.0")
def test_32_7_the_alternate_exchange_gets_what_is_no_duplicate(channel: Channel, unique: Unique) -> None:
    alternate = new_exchange(channel, unique, "fanout")
    other = bound_queue(channel, unique, alternate, "")
    exchange = new_exchange(channel, unique, TYPE, arguments=[SIZE, ("alternate-exchange", "S", alternate)])
    for body in (b"1", b"2"):
        publish(channel, exchange, body)
    channel.sync(other)
    assert drain(channel, other) == [b"1"]


def test_32_8_remembered_without_a_queue(channel: Channel, unique: Unique) -> None:
    exchange = new_exchange(channel, unique, TYPE, arguments=[SIZE])
    channel.confirm_select()
    publish(channel, exchange, b"1", mandatory=True)
    assert channel.wait_for_confirms(1) == [True]
    assert [returned.reply_code for returned in channel.returns] == [312]
    queue = bound_queue(channel, unique, exchange, "")
    publish(channel, exchange, b"2")
    publish(channel, exchange, b"3", "b")
    channel.sync(queue)
    assert drain(channel, queue) == [b"3"]


def test_32_8_remembered_though_rolled_back(channel: Channel, connect: Connect, unique: Unique) -> None:
    exchange, queue = deduplicating(channel, unique)
    transaction = connect().channel()
    transaction.tx_select()
    publish(transaction, exchange, b"1")
    transaction.tx_rollback()
    for body, value in ((b"2", "a"), (b"3", "b"), (b"4", "b"), (b"5", "c")):
        publish(transaction, exchange, body, value)
    channel.publish(exchange, "", b"0")
    channel.sync(queue)
    assert drain(channel, queue) == [b"0"]
    transaction.tx_commit()
    assert drain(channel, queue) == [b"3", b"5"]


# -- with other exchanges -----------------------------------------------------------------------------------


def test_a_queue_that_is_reached_otherwise_gets_all(channel: Channel, unique: Unique) -> None:
    fanout = new_exchange(channel, unique, "fanout")
    exchange, filtered = deduplicating(channel, unique)
    channel.exchange_bind(exchange, fanout, "")
    both = bound_queue(channel, unique, exchange, "")
    channel.queue_bind(both, fanout, "")
    for body in (b"1", b"2"):
        publish(channel, fanout, body)
    channel.sync(both)
    assert (drain(channel, filtered), drain(channel, both)) == ([b"1"], [b"1", b"2"])


def test_behind_each_other(channel: Channel, unique: Unique) -> None:
    first, _ = deduplicating(channel, unique, size=("x-cache-size", "I", 1))
    second, queue = deduplicating(channel, unique)
    channel.exchange_bind(second, first, "")
    for body, value in ((b"1", "a"), (b"2", "b"), (b"3", "a")):
        publish(channel, first, body, value)
    publish(channel, second, b"4", "b")
    channel.sync(queue)
    assert drain(channel, queue) == [b"1", b"2"]


def test_inside_a_delayed_exchange(channel: Channel, unique: Unique) -> None:
    arguments: list[Triple] = [("x-delayed-type", "S", TYPE), SIZE]
    exchange = new_exchange(channel, unique, "x-delayed-message", arguments=arguments)
    queue = bound_queue(channel, unique, exchange, "")
    for body, value, delay in ((b"1", "a", 0), (b"2", "a", 1), (b"3", "b", 1), (b"4", "b", 2), (b"5", "c", 3)):
        publish(channel, exchange, body, value, headers=(("x-delay", "I", delay),))
    channel.consume(queue, no_ack=True)
    assert [delivery.body for delivery in channel.deliveries(3)] == [b"1", b"3", b"5"]
    channel.expect_no_delivery()


def test_dead_letters_are_duplicates_too(channel: Channel, unique: Unique) -> None:
    exchange, target = deduplicating(channel, unique)
    source = new_queue(channel, unique, arguments=[("x-dead-letter-exchange", "S", exchange)])
    for body, value in ((b"1", "a"), (b"2", "a"), (b"3", "b")):
        publish(channel, "", body, value, key=source)
    channel.sync(source)
    for _ in range(3):
        delivery = channel.get(source)
        assert delivery is not None
        channel.reject(delivery.delivery_tag, requeue=False)
    channel.sync(source)
    assert drain(channel, target) == [b"1", b"3"]


def test_messages_with_ids_of_their_own(channel: Channel, unique: Unique) -> None:
    exchange, queue = deduplicating(channel, unique)
    channel.confirm_select()
    for number in range(60):
        options = {"message_id": str(number), "headers": [(HEADER, "I", number % 20), ("n", "I", number)]}
        channel.publish(exchange, "", b"%d" % number, {**options, "delivery_mode": 1 + number % 2})
    assert channel.wait_for_confirms(60) == [True] * 60
    assert drain(channel, queue) == [b"%d" % number for number in range(20)]


@pytest.mark.departs("4.0")
def test_32_8_a_message_that_is_refused_can_be_tried_again(channel: Channel, unique: Unique) -> None:
    exchange = new_exchange(channel, unique, TYPE, arguments=[SIZE])
    queue = new_queue(channel, unique, arguments=[("x-max-length", "I", 1), ("x-overflow", "S", "reject-publish")])
    channel.queue_bind(queue, exchange, "")
    channel.confirm_select()
    publish(channel, exchange, b"1", "a")
    publish(channel, exchange, b"2", "b")
    publish(channel, exchange, b"3", "a")
    assert channel.wait_for_confirms(3) == [True, False, True]
    assert drain(channel, queue) == [b"1"]
    publish(channel, exchange, b"4", "b")
    channel.sync(queue)
    assert drain(channel, queue) == [b"4"]


# -- policies and the HTTP API ------------------------------------------------------------------------------


def test_32_11_the_exchange_over_http(channel: Channel, unique: Unique, api: HttpApi, vhost: str) -> None:
    exchange, queue = deduplicating(channel, unique)
    for value in "abca":
        publish(channel, exchange, b"1", value)
    channel.sync(queue)
    info = api.get(path("exchanges", vhost, exchange))["cache_info"]
    assert (info["entries"], info["size"], len(info["nodes"])) == (3, 100, 1)
    assert info["bytes"] > 0


def test_32_12_a_policy_replaces_arguments(channel: Channel, unique: Unique, policy: SetPolicy) -> None:
    exchange, queue = deduplicating(channel, unique)
    for value in "abc":
        publish(channel, exchange, value.encode(), value)
    channel.sync(queue)
    policy(exchange, {"x-cache-size": 2}, apply_to="exchanges")

    for value in "cde":
        publish(channel, exchange, value.encode(), value)
    publish(channel, exchange, b"a again", "a")
    channel.sync(queue)
    assert drain(channel, queue) == [b"a", b"b", b"c", b"d", b"e", b"a again"]


@pytest.mark.parametrize(
    ("definition", "text"),
    [
        ({"x-cache-size": 0}, '"x-cache-size" must be an integer greater than 0, got 0'),
        ({"x-cache-size": "5"}, '"x-cache-size" must be an integer greater than 0, got <<"5">>'),
        ({"x-cache-ttl": -1}, '"x-cache-ttl" must be an integer greater than 0, got -1'),
        ({"x-cache-persistence": "zz"}, '"x-cache-persistence" must be either "disk" or "memory", got <<"zz">>'),
    ],
)
def test_32_12_policies_are_checked(api: HttpApi, own_vhost: str, definition: dict[str, object], text: str) -> None:
    body = {"pattern": "^x$", "definition": definition, "apply-to": "exchanges"}
    api.check("PUT", path("policies", own_vhost, "p"), body, 400, refusal(text))
