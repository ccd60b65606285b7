"""Rules 2.3.1 to 2.3.6: by which keys letters are routed, and what of a message stays as it was."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conformance.deaths import (
    arrival,
    dead_letter,
    dead_letter_to,
    dead_lettering,
    deaths,
    headers_of_3_10,
    own_headers,
    reject,
)
from tests.conformance.fixtures import Unique
from tests.conformance.topology import bound_queue, drain, fill, new_exchange, new_queue
from tests.support import content
from tests.support.tables import Triple
from tests.support.wire import Channel

CC: Triple = ("CC", "A", [("S", "second"), ("S", "third")])
BCC: Triple = ("BCC", "A", [("S", "blind")])
ADDED = ["x-death", "x-first-death-exchange", "x-first-death-queue", "x-first-death-reason"]
# As they come, and as they are after the table was rewritten; sorted by the bytes of their keys.
VALUES: list[tuple[Triple, Triple]] = [
    (("", "V", None), ("", "V", None)),
    (("A", "I", -1), ("A", "I", -1)),
    (("a", "s", -2), ("a", "s", -2)),
    (("aa", "b", -3), ("aa", "b", -3)),
    (("array", "A", [("t", 1), ("L", 2), ("B", 3)]), ("array", "A", [("t", 1), ("l", 2), ("B", 3)])),
    (("b", "B", 4), ("b", "B", 4)),
    (("bytes", "x", b"\0\xff"), ("bytes", "x", b"\0\xff")),
    (("d", "d", 0.1), ("d", "d", 0.1)),
    (("decimal", "D", (2, 314)), ("decimal", "D", (2, 314))),
    (("f", "f", 0.5), ("f", "f", 0.5)),
    (("i", "i", 5), ("i", "i", 5)),
    (("l", "l", 6), ("l", "l", 6)),
    (("long", "L", 7), ("long", "l", 7)),
    (("nested", "F", [("z", "I", 1), ("a", "t", 0)]), ("nested", "F", [("z", "I", 1), ("a", "t", 0)])),
    (("t", "t", 2), ("t", "t", 1)),
    (("text", "S", "ä\0"), ("text", "S", "ä\0")),
    (("time", "T", 8), ("time", "T", 8)),
    (("u", "u", 9), ("u", "u", 9)),
    (("ä", "S", "after z"), ("ä", "S", "after z")),
]
PROPERTIES: dict[str, Any] = {
    "content_type": "text/plain",
    "content_encoding": "",
    "delivery_mode": 2,
    "priority": 200,
    "correlation_id": "c",
    "reply_to": "r",
    "message_id": "m" * 255,
    "timestamp": 2**63,
    "type": "t",
    "user_id": "",
    "app_id": "a",
    "cluster_id": "k",
}


def publish(channel: Channel, queue: str, *headers: Triple, **properties: Any) -> None:
    channel.publish("", queue, b"body", {"headers": list(headers), **properties})
    channel.sync(queue)


@pytest.mark.parametrize("key", ["dead", "", None])
def test_2_3_1_exchange_and_routing_key(channel: Channel, unique: Unique, key: str | None) -> None:
    exchange = new_exchange(channel, unique, "fanout")
    letters = bound_queue(channel, unique, exchange, "")
    queue = new_queue(channel, unique, b"one", arguments=dead_letter_to(exchange, key))
    letter = dead_letter(channel, queue, letters)
    assert (letter.exchange, letter.routing_key) == (exchange, queue if key is None else key)


def test_2_3_2_all_original_keys(channel: Channel, unique: Unique) -> None:
    exchange = new_exchange(channel, unique)
    queue = new_queue(channel, unique, arguments=dead_letter_to(exchange))
    keys = [queue, "second", "third", "blind", "other"]
    letters = [bound_queue(channel, unique, exchange, key) for key in keys]
    publish(channel, queue, CC, BCC)
    reject(channel, queue)
    for each in letters[:4]:
        letter = arrival(channel, each)
        assert (letter.exchange, letter.routing_key) == (exchange, queue)
    assert drain(channel, letters[4]) == []


def test_2_3_2_only_the_configured_key(channel: Channel, unique: Unique) -> None:
    exchange = new_exchange(channel, unique)
    queue = new_queue(channel, unique, arguments=dead_letter_to(exchange, "dead"))
    letters = bound_queue(channel, unique, exchange, "dead")
    others = bound_queue(channel, unique, exchange, queue, "second", "third", "blind")
    publish(channel, queue, CC, BCC)
    assert dead_letter(channel, queue, letters).routing_key == "dead"
    assert drain(channel, others) == []


def test_2_3_2_all_keys_again_at_the_next_death(channel: Channel, unique: Unique) -> None:
    first, second = new_exchange(channel, unique), new_exchange(channel, unique)
    queue = new_queue(channel, unique, arguments=dead_letter_to(first))
    between = new_queue(channel, unique, arguments=dead_letter_to(second))
    channel.queue_bind(between, first, "blind")
    letters = [bound_queue(channel, unique, second, key) for key in (queue, "second", "blind")]
    publish(channel, queue, CC, BCC)
    reject(channel, queue)
    reject(channel, between)
    assert [arrival(channel, each).routing_key for each in letters] == [queue] * 3


def test_2_3_3_cc_goes_where_a_key_is_configured(channel: Channel, unique: Unique) -> None:
    queue, letters = dead_lettering(channel, unique)
    publish(channel, queue, CC, BCC, ("other", "I", 1))
    assert own_headers(dead_letter(channel, queue, letters)) == [("other", "I", 1)]


def test_2_3_3_cc_stays_where_none_is(channel: Channel, unique: Unique) -> None:
    exchange = new_exchange(channel, unique, "fanout")
    letters = bound_queue(channel, unique, exchange, "")
    queue = new_queue(channel, unique, arguments=dead_letter_to(exchange))
    publish(channel, queue, CC, BCC, ("other", "I", 1))
    assert own_headers(dead_letter(channel, queue, letters)) == [CC, ("other", "I", 1)]


@pytest.mark.parametrize("expiration", ["600000", "+600000", "00600000"])
def test_2_3_4_expiration_is_removed(channel: Channel, unique: Unique, expiration: str) -> None:
    queue, letters = dead_lettering(channel, unique)
    channel.publish("", queue, b"body", {"expiration": expiration, "type": "t"})
    channel.sync(queue)
    letter = dead_letter(channel, queue, letters)
    assert sorted(letter.properties) == ["headers", "type"]
    assert [death["original-expiration"] for death in deaths(letter)] == [expiration]


def test_2_3_4_a_letter_does_not_expire_again(channel: Channel, unique: Unique) -> None:
    queue, letters = dead_lettering(channel, unique)
    witnessed, witness = dead_lettering(channel, unique)
    channel.publish("", queue, b"one", {"expiration": "50"})
    channel.publish("", witnessed, b"two", {"expiration": "200"})
    assert arrival(channel, witness).body == b"two"
    letter = arrival(channel, letters)
    assert (letter.body, deaths(letter)[0]["original-expiration"]) == (b"one", "50")


def test_2_3_4_the_ttl_of_a_queue_is_not_recorded(channel: Channel, unique: Unique) -> None:
    queue, letters = dead_lettering(channel, unique, ("x-message-ttl", "I", 20))
    fill(channel, queue, b"one")
    letter = arrival(channel, letters)
    assert sorted(letter.properties) == ["headers"]
    assert "original-expiration" not in deaths(letter)[0]


def test_2_3_5_all_else_is_kept(channel: Channel, unique: Unique) -> None:
    queue, letters = dead_lettering(channel, unique, durable=True)
    given = {name: value for name, value in PROPERTIES.items() if name != "user_id"}
    body = bytes(range(256)) * 1000
    headers = [before for before, _ in VALUES]
    channel.publish("", queue, body, {**given, "headers": headers, "expiration": "600000"})
    channel.sync(queue)
    letter = dead_letter(channel, queue, letters)
    assert letter.body == body
    assert {name: value for name, value in letter.properties.items() if name != "headers"} == given
    assert letter.raw_properties == content.properties(**given, headers=letter.headers)


def test_2_3_5_header_values_keep_their_types(channel: Channel, unique: Unique) -> None:
    queue, letters = dead_lettering(channel, unique)
    publish(channel, queue, *(before for before, _ in VALUES))
    letter = dead_letter(channel, queue, letters)
    assert own_headers(letter) == [after for _, after in VALUES]
    assert letter.raw_properties == content.properties(headers=letter.headers)


def test_2_3_5_properties_without_headers(channel: Channel, unique: Unique) -> None:
    queue, letters = dead_lettering(channel, unique)
    channel.publish("", queue, b"body", {"type": "t", "delivery_mode": 1})
    channel.sync(queue)
    letter = dead_letter(channel, queue, letters)
    assert letter.raw_properties == content.properties(type="t", delivery_mode=1, headers=letter.headers)


def test_2_3_6_headers_are_sorted(channel: Channel, unique: Unique) -> None:
    queue, letters = dead_lettering(channel, unique)
    publish(channel, queue, *(before for before, _ in reversed(VALUES)), ("zz", "I", 1), ("x-e", "I", 1))
    keys = [str(key) for key, _, _ in headers_of_3_10(dead_letter(channel, queue, letters))]
    expected = [*ADDED, *(str(before[0]) for before, _ in VALUES), "zz", "x-e"]
    assert keys == sorted(expected, key=lambda key: key.encode())


def test_2_3_6_nested_tables_are_not_sorted(channel: Channel, unique: Unique) -> None:
    queue, letters = dead_lettering(channel, unique)
    nested: list[Triple] = [("z", "I", 1), ("a", "I", 2), ("z", "I", 3)]
    headers: list[Triple] = [("table", "F", nested), ("array", "A", [("F", nested)])]
    publish(channel, queue, *headers)
    assert own_headers(dead_letter(channel, queue, letters)) == headers[::-1]


def test_2_3_6_equal_keys_stay_in_order(channel: Channel, unique: Unique) -> None:
    queue, letters = dead_lettering(channel, unique)
    publish(channel, queue, ("key", "I", 2), ("a", "I", 0), ("key", "S", "1"), ("key", "I", 2))
    expected: list[Triple] = [("a", "I", 0), ("key", "I", 2), ("key", "S", "1"), ("key", "I", 2)]
    assert own_headers(dead_letter(channel, queue, letters)) == expected
