"""Rules 16.23 to 16.28: field tables and properties are relayed byte for byte."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from tests.conformance.fixtures import Unique
from tests.conformance.topology import got, new_queue
from tests.support import content, tables
from tests.support.tables import Triple
from tests.support.wire import Channel

# One of each type, with the ends of its range.
VALUES: list[tuple[str, Any]] = [
    ("t", 0),
    ("t", 1),
    ("t", 5),
    ("b", -128),
    ("b", 127),
    ("B", 255),
    ("s", -32768),
    ("u", 65535),
    ("I", -(2**31)),
    ("i", 2**32 - 1),
    ("l", -(2**63)),
    ("l", 2**63 - 1),
    ("L", 2**64 - 1),
    ("f", 1.5),
    ("d", -1e300),
    ("D", (0, 0)),
    ("D", (255, 2**32 - 1)),
    ("S", ""),
    ("S", "ä☃\0"),
    ("S", b"\xff\xfe"),
    ("x", b""),
    ("x", b"\0\xff"),
    ("T", 0),
    ("T", 2**64 - 1),
    ("A", []),
    ("A", [("I", 1), ("S", "mixed"), ("A", [("V", None)]), ("F", [("k", "t", 1)])]),
    ("F", []),
    ("F", [("deep", "F", [("deeper", "F", [("deepest", "A", [("F", [])])])])]),
    ("V", None),
]
SHORT_STRINGS = [name for name, kind in content.FIELDS if kind == "shortstr"]
ALL: dict[str, Any] = {
    "content_type": "text/plain",
    "content_encoding": "utf-8",
    "headers": [("k", "S", "v")],
    "delivery_mode": 2,
    "priority": 7,
    "correlation_id": "correlation",
    "reply_to": "somewhere",
    "expiration": "3600000",
    "message_id": "message",
    "timestamp": 1_700_000_000,
    "type": "type",
    "app_id": "application",
    "cluster_id": "cluster",
}


def relayed(channel: Channel, unique: Unique, encoded: bytes) -> bytes:
    """Return the property flags and values as delivered, having checked that basic.get gives the same."""
    queue = new_queue(channel, unique)
    channel.publish("", queue, b"body", encoded)
    by_get = got(channel, queue)
    channel.nack(by_get.delivery_tag)
    channel.consume(queue)
    by_consumer = channel.next_delivery()
    assert (by_get.body, by_consumer.body) == (b"body", b"body")
    assert by_get.header == by_consumer.header
    return by_consumer.raw_properties


@pytest.mark.parametrize("letter", ["f", "d"])
def test_16_23_negative_zero(channel: Channel, unique: Unique, letter: str) -> None:
    encoded = content.properties(headers=[("key", letter, -0.0)])
    assert relayed(channel, unique, encoded) == encoded


@pytest.mark.parametrize("letter", ["f", "d"])
@pytest.mark.parametrize("value", ["inf", "-inf", "nan"])
def test_16_23_floats_are_finite(channel: Channel, unique: Unique, letter: str, value: str) -> None:
    queue = new_queue(channel, unique)
    with channel.expect_connection_close(541, "INTERNAL_ERROR", (0, 0)):
        channel.publish("", queue, properties={"headers": [("key", letter, float(value))]})


def test_16_23_and_16_24_all_types_at_once(channel: Channel, unique: Unique) -> None:
    headers = [(f"k{number}", letter, value) for number, (letter, value) in enumerate(VALUES)]
    encoded = content.properties(headers=headers)
    assert relayed(channel, unique, encoded) == encoded


def test_16_24_duplicate_keys_and_their_order(channel: Channel, unique: Unique) -> None:
    headers: list[Triple] = [("z", "I", 1), ("a", "S", "x"), ("z", "I", 2), ("z", "l", 1)]
    encoded = content.properties(headers=headers)
    assert relayed(channel, unique, encoded) == encoded


@pytest.mark.parametrize("key", [b"", b"k" * 255, b"\xff\xfe", "ä☃".encode(), b"with space\0"])
def test_16_28_keys(channel: Channel, unique: Unique, key: bytes) -> None:
    encoded = content.properties(headers=[(key, "S", "v")])
    assert relayed(channel, unique, encoded) == encoded


def test_16_24_all_properties(channel: Channel, unique: Unique) -> None:
    encoded = content.properties(**ALL)
    assert relayed(channel, unique, encoded) == encoded


@pytest.mark.parametrize("name", ALL)
def test_16_24_each_property_alone(channel: Channel, unique: Unique, name: str) -> None:
    encoded = content.properties(**{name: ALL[name]})
    assert relayed(channel, unique, encoded) == encoded


def test_16_24_no_properties(channel: Channel, unique: Unique) -> None:
    assert relayed(channel, unique, b"\0\0") == b"\0\0"


@pytest.mark.parametrize("value", [b"", b"\xff\xfe\0", b"v" * 255], ids=["empty", "not UTF-8", "longest"])
def test_16_24_any_bytes_in_short_strings(channel: Channel, unique: Unique, value: bytes) -> None:
    names = [name for name in SHORT_STRINGS if name not in ("expiration", "user_id")]
    encoded = content.properties(**dict.fromkeys(names, value))
    assert relayed(channel, unique, encoded) == encoded


@pytest.mark.parametrize("timestamp", [0, 1, 2**63, 2**64 - 1])
def test_16_24_any_timestamp(channel: Channel, unique: Unique, timestamp: int) -> None:
    encoded = content.properties(timestamp=timestamp)
    assert relayed(channel, unique, encoded) == encoded


def test_16_24_an_empty_headers_table(channel: Channel, unique: Unique) -> None:
    encoded = content.properties(headers=[])
    assert relayed(channel, unique, encoded) == encoded


def test_16_24_many_headers(channel: Channel, unique: Unique) -> None:
    headers = [(f"key-{number}", "S", "v" * 50) for number in range(1500)]
    encoded = content.properties(headers=headers)
    assert relayed(channel, unique, encoded) == encoded


@pytest.mark.parametrize("name", ["CC", "x-death", "x-delivery-count", "x-first-death-queue"])
def test_16_24_names_that_the_broker_knows(channel: Channel, unique: Unique, name: str) -> None:
    encoded = content.properties(headers=[(name, "A", []), ("other", "t", 5)])
    assert relayed(channel, unique, encoded) == encoded


def test_16_24_returned_byte_for_byte(channel: Channel, unique: Unique) -> None:
    headers = [(f"k{number}", letter, value) for number, (letter, value) in enumerate(VALUES)]
    encoded = content.properties(**{**ALL, "headers": headers})
    channel.publish("", unique(), b"body", encoded, mandatory=True)
    assert channel.next_return().raw_properties == encoded


def test_16_24_persistent_to_a_durable_queue(channel: Channel, unique: Unique) -> None:
    headers = [(f"k{number}", letter, value) for number, (letter, value) in enumerate(VALUES)]
    encoded = content.properties(**{**ALL, "headers": headers})
    queue = new_queue(channel, unique, durable=True)
    channel.confirm_select()
    channel.publish("", queue, b"body", encoded)
    assert channel.wait_for_confirms(1) == [True]
    assert got(channel, queue).raw_properties == encoded


def rewritten(letter: str, value: Any) -> tuple[str, Any]:
    """What becomes of a value in a table that the broker rewrites (6.25)."""
    if letter == "t":
        return letter, int(value > 0)
    return ("l" if letter == "L" else letter), value


@pytest.mark.parametrize(
    ("letter", "value"), [each for each in VALUES if each != ("L", 2**64 - 1)] + [("L", 2**63 - 1)]
)
def test_16_25_rewritten_tables_keep_their_types(channel: Channel, unique: Unique, letter: str, value: Any) -> None:
    queue = new_queue(channel, unique)
    sent: list[Triple] = [("BCC", "A", []), ("key", letter, value)]
    channel.publish("", queue, properties={"headers": sent, "type": "t"})
    expected = content.properties(headers=[("key", *rewritten(letter, value))], type="t")
    assert got(channel, queue).raw_properties == expected


def test_16_26_l_becomes_signed(channel: Channel, unique: Unique) -> None:
    queue = new_queue(channel, unique)

    def headers(letter: str) -> list[Triple]:
        nested: list[Triple] = [("in", letter, 5), ("list", "A", [(letter, 6)])]
        return [("array", "A", [(letter, 7)]), ("out", "F", nested), ("top", letter, 8)]

    channel.publish("", queue, properties={"headers": [("BCC", "A", []), *headers("L")]})
    assert got(channel, queue).headers == headers("l")


def test_16_23_types_in_arguments(channel: Channel, unique: Unique) -> None:
    queue = unique()
    arguments = [(f"k{number}", letter, value) for number, (letter, value) in enumerate(VALUES)]
    channel.queue_declare(queue, arguments=arguments)
    channel.queue_bind(queue, "amq.direct", queue, arguments=arguments)
    channel.consume(queue, arguments=arguments)
    channel.queue_unbind(queue, "amq.direct", queue, arguments=arguments)
    channel.publish("amq.direct", queue, mandatory=True)
    assert channel.next_return().routing_key == queue


def test_16_27_no_timestamp_is_added(channel: Channel, unique: Unique) -> None:
    queue = new_queue(channel, unique)
    channel.publish("", queue)
    assert got(channel, queue).properties == {}


def test_16_24_a_table_by_its_bytes(channel: Channel, unique: Unique) -> None:
    table = tables.table_body([("a", "I", 1)]) * 3
    flags = struct.pack(">H", 1 << 13)
    encoded = flags + tables.longstr(table)
    assert relayed(channel, unique, encoded) == encoded
