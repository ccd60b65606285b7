"""The header x-delay: which values delay a message, and what the message is delivered with."""

from __future__ import annotations

import math
from typing import Any

import pytest

from leveret.broker.core.delays.waiting import DELAY_MAX, mark_delayed, published_delay, read_delay
from leveret.protocol import properties
from leveret.protocol.field_table import FieldTable, FieldValue
from leveret.protocol.properties import Properties, encode_content_header, encode_headers
from leveret.storage.message import Envelope


def headers(kind: str, value: Any) -> FieldTable:
    return (("a", FieldValue("t", True)), ("x-delay", FieldValue(kind, value)))


@pytest.mark.parametrize("kind", "bBsuIilL")
def test_all_integers_count(kind: str) -> None:
    assert read_delay(headers(kind, 100)) == 100


@pytest.mark.parametrize(
    ("kind", "value", "delay"),
    [
        ("d", 900.9, 900), ("f", 2.5, 2), ("S", b"900", 900), ("S", b"+900", 900), ("S", b"0900", 900),
        ("l", 2**32, 2**32), ("l", 2**63 - 1, DELAY_MAX), ("d", 1e300, DELAY_MAX), ("S", b"9" * 5000, DELAY_MAX),
        ("S", b"9" * 25, DELAY_MAX),
    ],
)  # fmt: skip
def test_numbers_in_other_forms_count(kind: str, value: object, delay: int) -> None:
    assert read_delay(headers(kind, value)) == delay


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("I", 0), ("I", -5), ("d", 0.9), ("d", -1e300), ("S", b" 900"), ("S", b"900.5"), ("S", b"abc"), ("S", b""),
        ("S", b"-900"), ("S", b"+"), ("S", b"\xb2"), ("x", b"900"), ("t", True), ("T", 900), ("V", None), ("F", ()),
        ("A", ()), ("D", (0, 900)), ("d", math.nan), ("d", math.inf), ("f", -math.inf),
    ],
)  # fmt: skip
def test_what_cannot_be_used_is_no_delay(kind: str, value: object) -> None:
    assert read_delay(headers(kind, value)) == 0
    assert read_delay(()) == 0


def test_the_first_of_two_counts() -> None:
    assert read_delay((*headers("I", 5), *headers("I", 9))) == 5


def test_the_delivered_header_has_the_negative_delay() -> None:
    table = (("z", FieldValue("L", 1)), ("x-delay", FieldValue("S", b"900")), ("a", FieldValue("F", ())))
    header = encode_content_header(3, {properties.HEADERS: encode_headers(table), properties.PRIORITY: b"\x04"})
    published = Envelope(b"\x01d\x01k", header, True, 4, 7, True, ("blind",), 2)

    delay, stored = mark_delayed(published)

    read = Properties(stored.header)
    assert delay == 900
    assert read.headers() == (
        ("a", FieldValue("F", ())), ("x-delay", FieldValue("l", -900)), ("z", FieldValue("l", 1)),
    )  # fmt: skip
    assert read.octet(properties.PRIORITY, 0) == 4
    assert (stored.route, stored.persistent, stored.priority, stored.expiration_ms) == (b"\x01d\x01k", True, 4, 7)
    assert (stored.dead, stored.blind_keys, stored.delivery_count) == (True, ("blind",), 2)
    assert read_delay(read.headers()) == 0
    assert published_delay(stored) == 900
    assert published_delay(published) == 0


def test_a_message_without_delay_stays_as_it_is() -> None:
    envelope = Envelope(b"", encode_content_header(0))
    assert mark_delayed(envelope) == (0, envelope)
