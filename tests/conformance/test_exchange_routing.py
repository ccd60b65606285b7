"""Rules 16.9 to 16.15: how the exchange types route; alternate exchanges."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conformance.fixtures import Unique
from tests.conformance.topology import bound_queue, drain, got, new_exchange, new_queue
from tests.support.tables import Triple
from tests.support.wire import Channel

# Pattern: keys that match, keys that do not (6.12).
TOPICS: dict[str, tuple[list[str], list[str]]] = {
    "": ([""], ["a", "."]),
    "a": (["a"], ["", "a.", ".a", "A", "b"]),
    "*": (["a", "*", "#"], ["", ".", "a.b"]),
    "#": (["", ".", "a", "a.b.c", "#"], []),
    "#.#": (["", ".", "a", "a.b.c"], []),
    "*.#": (["a", ".", "a.b", "a.b.c"], [""]),
    "#.*": (["a", ".", "a.b", "a.b.c"], [""]),
    "*.*": ([".", "a.", ".a", "a.b"], ["", "a", "a.b.c", ".."]),
    "a.*": (["a.", "a.b", "a.*"], ["a", "a.b.c", "b.a"]),
    "*.a": ([".a", "b.a"], ["a", "a.b", "c.b.a"]),
    "a.#": (["a", "a.", "a..b", "a.b.c"], ["", "b", "ab", "A.b"]),
    "#.b": (["b", ".b", "a.b", "a.c.b"], ["", "b.", "a"]),
    "a.#.b": (["a.b", "a..b", "a.c.b", "a.c.d.b", "a.b.b"], ["a", "b", "a.b.c"]),
    "a.*.b": (["a..b", "a.c.b"], ["a.b", "a.c.d.b"]),
    "#.a.#": (["a", "b.a", "a.b", "c.a.b"], ["", "b", "aa"]),
    "*.a.#.b.*": (["x.a.b.y", "x.a.c.b.y", "x.a.b.b.y"], ["a.b", "x.a.y", "x.a.b"]),
    "a*": (["a*"], ["a", "ab", "a.b"]),
    "*a": (["*a"], ["a", "ba"]),
    "a#": (["a#"], ["a", "ab", "a.b"]),
    "##": (["##"], ["", "a", "#"]),
    "**.#*": (["**.#*"], ["a.b"]),
    "ä.*": (["ä.ö", "ä.☃"], ["a.ö"]),
}
HEADERS_SENT: list[Triple] = [
    ("number", "I", 1),
    ("text", "S", "one"),
    ("flag", "t", 1),
    ("x-extra", "S", "x"),
    ("nested", "F", [("in", "I", 1)]),
]
# x-match (None: absent), further arguments, does HEADERS_SENT match? (6.13, 6.14)
HEADERS: list[tuple[str | None, list[Triple], bool]] = [
    (None, [("number", "I", 1)], True),
    (None, [("number", "I", 1), ("text", "S", "two")], False),
    ("all", [("number", "I", 1), ("text", "S", "one")], True),
    ("all", [("number", "I", 1), ("missing", "S", "")], False),
    ("all", [("number", "I", 1), ("x-extra", "S", "differs, but does not count")], True),
    ("all", [], True),
    ("all", [("x-extra", "S", "differs")], True),
    ("any", [("number", "I", 2), ("text", "S", "one")], True),
    ("any", [("number", "I", 2), ("text", "S", "two")], False),
    ("any", [("x-extra", "S", "x")], False),
    ("any", [], False),
    ("all-with-x", [("number", "I", 1), ("x-extra", "S", "x")], True),
    ("all-with-x", [("number", "I", 1), ("x-extra", "S", "y")], False),
    ("all-with-x", [], True),
    ("any-with-x", [("number", "I", 2), ("x-extra", "S", "x")], True),
    ("any-with-x", [("number", "I", 2), ("x-extra", "S", "y")], False),
    ("any-with-x", [], False),
    ("all", [("number", "l", 1)], True),
    ("all", [("number", "b", 1)], True),
    ("all", [("number", "d", 1.0)], True),
    ("all", [("number", "S", "1")], False),
    ("all", [("number", "t", 1)], False),
    ("all", [("flag", "t", 1)], True),
    ("all", [("flag", "t", 0)], False),
    ("all", [("flag", "I", 1)], False),
    ("all", [("text", "x", b"one")], True),
    ("all", [("text", "S", "One")], False),
    ("all", [("Text", "S", "one")], False),
    ("all", [("number", "V", None)], True),
    ("all", [("missing", "V", None)], False),
    ("any", [("missing", "V", None), ("text", "V", None)], True),
    ("all", [("nested", "F", [("in", "I", 1)])], True),
    ("all", [("nested", "F", [("in", "I", 2)])], False),
]


def test_16_11_default_exchange_routes_by_queue_name(channel: Channel, unique: Unique) -> None:
    queue, other = new_queue(channel, unique), new_queue(channel, unique)
    channel.publish("", queue, b"mine")
    channel.publish("", queue + "x", b"nobody's")
    assert (drain(channel, queue), drain(channel, other)) == ([b"mine"], [])


@pytest.mark.parametrize("exchange", ["amq.direct", "declared"])
def test_16_11_direct_compares_whole_keys(channel: Channel, unique: Unique, exchange: str) -> None:
    if exchange == "declared":
        exchange = new_exchange(channel, unique)
    key = unique("key")
    queue = bound_queue(channel, unique, exchange, key)
    for published in (key, key.upper(), key + ".", key[:-1], "#", key):
        channel.publish(exchange, published, published.encode())
    assert drain(channel, queue) == [key.encode()] * 2


def test_16_11_the_empty_key_is_a_key(channel: Channel, unique: Unique) -> None:
    exchange = new_exchange(channel, unique)
    queue = bound_queue(channel, unique, exchange, "")
    channel.publish(exchange, "", b"empty")
    channel.publish(exchange, "key", b"other")
    assert drain(channel, queue) == [b"empty"]


def test_16_11_keys_need_not_be_utf8_when_published(channel: Channel, unique: Unique) -> None:
    exchange = new_exchange(channel, unique, "fanout")
    queue = bound_queue(channel, unique, exchange, "")
    channel.publish(exchange, b"\xff\xfe\0")
    delivery = got(channel, queue, no_ack=True)
    assert delivery.routing_key.encode("utf-8", "surrogateescape") == b"\xff\xfe\0"


def test_16_11_fanout_ignores_keys(channel: Channel, unique: Unique) -> None:
    exchange = new_exchange(channel, unique, "fanout")
    queues = [bound_queue(channel, unique, exchange, key) for key in ("", "a", "#")]
    for key in ("", "a", "b"):
        channel.publish(exchange, key, key.encode())
    assert [drain(channel, queue) for queue in queues] == [[b"", b"a", b"b"]] * 3


def test_16_12_topic_with_many_bindings(channel: Channel, unique: Unique) -> None:
    exchange = new_exchange(channel, unique, "topic")
    queues = {pattern: bound_queue(channel, unique, exchange, pattern) for pattern in TOPICS}
    keys = sorted({key for rows in TOPICS.values() for row in rows for key in row})
    for key in keys:
        channel.publish(exchange, key, key.encode())
    for pattern, (matching, others) in TOPICS.items():
        found = [body.decode() for body in drain(channel, queues[pattern])]
        assert [key for key in found if key in matching or key in others] == sorted(matching), pattern


def test_16_12_a_removed_pattern_leaves_its_neighbours(channel: Channel, unique: Unique) -> None:
    exchange = new_exchange(channel, unique, "topic")
    queue = bound_queue(channel, unique, exchange, "a.#", "a.*.c", "a.b.c")
    channel.queue_unbind(queue, exchange, "a.#")
    channel.publish(exchange, "a.b.c", b"three words")
    channel.publish(exchange, "a.b", b"two words")
    channel.queue_unbind(queue, exchange, "a.b.c")
    channel.publish(exchange, "a.x.c", b"star")
    channel.queue_unbind(queue, exchange, "a.*.c")
    channel.publish(exchange, "a.b.c", b"gone")
    assert drain(channel, queue) == [b"three words", b"star"]


@pytest.mark.parametrize(("x_match", "arguments", "matches"), HEADERS)
def test_16_13_headers(
    channel: Channel, unique: Unique, x_match: str | None, arguments: list[Triple], matches: bool
) -> None:
    exchange = new_exchange(channel, unique, "headers")
    given = list(arguments) if x_match is None else [*arguments, ("x-match", "S", x_match)]
    queue = bound_queue(channel, unique, exchange, "key does not count", arguments=given)
    channel.publish(exchange, "", b"sent", {"headers": HEADERS_SENT})
    assert drain(channel, queue) == [b"sent"] * matches


@pytest.mark.parametrize("properties", [{}, {"headers": []}])
@pytest.mark.parametrize(
    ("x_match", "matches"), [("all", True), ("any", False), ("all-with-x", True), ("any-with-x", False)]
)
def test_16_14_messages_without_headers(
    channel: Channel, unique: Unique, x_match: str, matches: bool, properties: dict[str, Any]
) -> None:
    exchange = new_exchange(channel, unique, "headers")
    queue = bound_queue(channel, unique, exchange, "", arguments=[("x-match", "S", x_match)])
    with_argument = [("x-match", "S", x_match), ("a", "S", "b")]
    never = bound_queue(channel, unique, exchange, "", arguments=with_argument)
    channel.publish(exchange, "", b"bare", properties)
    assert drain(channel, queue) == [b"bare"] * matches
    assert drain(channel, never) == []


@pytest.mark.parametrize("name", ["amq.headers", "amq.match"])
def test_16_13_predeclared_headers_exchanges(channel: Channel, unique: Unique, name: str) -> None:
    mark: Triple = ("mark", "S", unique("mark"))
    queue = bound_queue(channel, unique, name, "", arguments=[mark])
    channel.publish(name, "", b"mine", {"headers": [mark]})
    channel.publish(name, "", b"other", {"headers": [("mark", "S", "other")]})
    assert drain(channel, queue) == [b"mine"]


def alternate(channel: Channel, unique: Unique, name: str, type_: str = "direct") -> str:
    return new_exchange(channel, unique, type_, arguments=[("alternate-exchange", "S", name)])


def test_16_15_alternate_exchange_gets_the_unmatched(channel: Channel, unique: Unique) -> None:
    last = new_exchange(channel, unique, "fanout")
    exchange = alternate(channel, unique, last)
    unmatched = bound_queue(channel, unique, last, "")
    matched = bound_queue(channel, unique, exchange, "key")
    channel.publish(exchange, "key", b"matched", mandatory=True)
    channel.publish(exchange, "other", b"unmatched", mandatory=True)
    delivery = got(channel, unmatched, no_ack=True)
    assert (delivery.exchange, delivery.routing_key, delivery.body) == (exchange, "other", b"unmatched")
    assert (drain(channel, unmatched), drain(channel, matched)) == ([], [b"matched"])
    assert not channel.returns


def test_16_15_alternate_exchanges_chain(channel: Channel, unique: Unique) -> None:
    last = new_exchange(channel, unique, "fanout")
    queue = bound_queue(channel, unique, last, "")
    middle = alternate(channel, unique, last)
    channel.publish(alternate(channel, unique, middle), "key", b"far")
    assert drain(channel, queue) == [b"far"]


def test_16_15_a_dead_end_counts_as_matched(channel: Channel, unique: Unique) -> None:
    last, dead_end = new_exchange(channel, unique, "fanout"), new_exchange(channel, unique)
    exchange = alternate(channel, unique, last)
    queue = bound_queue(channel, unique, last, "")
    channel.exchange_bind(dead_end, exchange, "key")
    channel.publish(exchange, "key", b"lost", mandatory=True)
    assert channel.next_return().body == b"lost"
    assert drain(channel, queue) == []


@pytest.mark.parametrize("cyclic", [False, True])
def test_16_15_unroutable_alternate_exchanges(channel: Channel, unique: Unique, cyclic: bool) -> None:
    other = unique("x")
    exchange = alternate(channel, unique, other)
    if cyclic:
        channel.exchange_declare(other, arguments=[("alternate-exchange", "S", exchange)])
    channel.publish(exchange, "key", b"lost", mandatory=True)
    assert channel.next_return().body == b"lost"


def test_16_15_the_default_exchange_is_no_alternate(channel: Channel, unique: Unique) -> None:
    queue = new_queue(channel, unique)
    channel.publish(alternate(channel, unique, ""), queue, b"lost", mandatory=True)
    assert channel.next_return().body == b"lost"
    assert drain(channel, queue) == []


def test_16_15_one_key_that_matches_is_enough(channel: Channel, unique: Unique) -> None:
    last = new_exchange(channel, unique, "fanout")
    exchange = alternate(channel, unique, last)
    matched, unmatched = bound_queue(channel, unique, exchange, "copy"), bound_queue(channel, unique, last, "")
    channel.publish(exchange, "other", b"one", {"headers": [("CC", "A", [("S", "copy")])]})
    assert (drain(channel, matched), drain(channel, unmatched)) == ([b"one"], [])


def test_16_15_an_alternate_exchange_behind_a_binding(channel: Channel, unique: Unique) -> None:
    last = new_exchange(channel, unique, "fanout")
    inner = alternate(channel, unique, last)
    outer = new_exchange(channel, unique, "fanout")
    channel.exchange_bind(inner, outer)
    queue = bound_queue(channel, unique, last, "")
    channel.publish(outer, "key", b"unmatched inside")
    assert drain(channel, queue) == [b"unmatched inside"]


def test_16_9_cc_keeps_the_published_route(channel: Channel, unique: Unique) -> None:
    exchange = new_exchange(channel, unique)
    queue = bound_queue(channel, unique, exchange, "copy")
    channel.publish(exchange, "main", b"", {"headers": [("CC", "A", [("S", "copy")])]})
    delivery = got(channel, queue, no_ack=True)
    assert (delivery.exchange, delivery.routing_key) == (exchange, "main")


def test_16_10_one_copy_a_queue(channel: Channel, unique: Unique) -> None:
    exchange = new_exchange(channel, unique, "topic")
    queue = bound_queue(channel, unique, exchange, "#", "a.*", "*.b", "a.b")
    channel.publish(exchange, "a.b", b"once")
    assert drain(channel, queue) == [b"once"]
