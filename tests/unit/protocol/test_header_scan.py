"""The scan of a content header agrees with the decoder on every header."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from leveret.protocol import properties
from leveret.protocol.faults import ConnectionFault
from leveret.protocol.field_table import FieldTable, FieldValue, find
from leveret.protocol.header_scan import DECODE, DIRECT_REPLY_TO, PERSISTENT, ROUTING_HEADERS, scan_header
from leveret.protocol.properties import Properties, encode_content_header
from tests.support import content
from tests.support.amqp_strategies import content_headers, mutations
from tests.support.examples import examples

ACTED_ON_PROPERTIES = properties.EXPIRATION | properties.USER_ID


def decoded(payload: bytes) -> int:
    """What the scan should return, by way of the decoder."""
    try:
        read = Properties(payload)
        headers = read.headers()
    except ConnectionFault:
        return DECODE
    mode, priority = read.octet(properties.DELIVERY_MODE, 1), read.octet(properties.PRIORITY, 0)
    if (
        read.flags & ACTED_ON_PROPERTIES
        or read.text(properties.REPLY_TO) == DIRECT_REPLY_TO.decode()
        or any(find(headers, name.decode()) is not None for name in ROUTING_HEADERS)
        or mode not in (1, 2)
    ):
        return DECODE
    return priority + (PERSISTENT if mode == 2 else 0)


def header(**given: Any) -> bytes:
    return content.header(10, content.properties(**given))


@settings(max_examples=examples(500))
@given(content_headers(10))
@example(header())
@example(header(headers=[("CC", "A", [("S", "k")])]))
@example(header(headers=[("x", "F", [("CC", "S", "k")])]))
@example(header(reply_to="amq.rabbitmq.reply-to"))
@example(header(headers=[("f", "f", float("inf"))]))
@example(header(headers=[("d", "d", float("nan"))]))
@example(header(headers=[("d", "A", [("d", float("-inf"))])]))
def test_any_header(payload: bytes) -> None:
    assert scan_header(payload) == decoded(payload)


@settings(max_examples=examples(1000))
@given(content_headers(10).flatmap(mutations))
def test_mutated_headers(payload: bytes) -> None:
    assert scan_header(payload) == decoded(payload)


@given(st.binary(max_size=80))
def test_any_octets_as_a_table(octets: bytes) -> None:
    payload = encode_content_header(10, {properties.HEADERS: struct.pack(">I", len(octets)) + octets})
    assert scan_header(payload) == decoded(payload)


@pytest.mark.parametrize(("levels", "is_scanned"), [(1, True), (16, True), (17, False), (127, False)])
def test_deep_tables_are_left_to_the_decoder(levels: int, is_scanned: bool) -> None:
    table: FieldTable = ()
    for _ in range(levels):
        table = (("t", FieldValue("F", table)),)
    payload = encode_content_header(10, {properties.HEADERS: properties.encode_headers(table)})
    assert Properties(payload).headers() == table
    assert scan_header(payload) == (0 if is_scanned else DECODE)


def test_what_a_task_queue_sends() -> None:
    entries: list[tuple[str, str, Any]] = [
        ("lang", "S", "py"),
        ("eta", "V", None),
        ("timelimit", "A", [("V", None), ("V", None)]),
    ]
    entries += [("retries", "I", 0), ("stamps", "F", []), ("ignore_result", "t", 1)]
    given = {"content_type": "application/json", "headers": entries, "delivery_mode": 2, "priority": 7}
    assert scan_header(header(**given, correlation_id="1", reply_to="a")) == 7 | PERSISTENT
