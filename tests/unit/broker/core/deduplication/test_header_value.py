"""Keys of header values: what is equal, and that the header is found wherever it stands."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.broker.core.deduplication.values import (
    DEDUPLICATION_HEADER,
    KEY_BYTES,
    TTL_HEADER,
    read_key,
    read_ttl,
)
from leveret.broker.core.terms import to_term
from leveret.protocol import properties
from leveret.protocol.field_table import FieldTable, FieldValue, find
from leveret.protocol.header_scan import locate_header
from leveret.protocol.properties import FLAGS, encode_content_header, encode_headers, encode_text
from tests.support.amqp_strategies import field_values, tables


def header_with(*table: tuple[str, FieldValue]) -> bytes:
    return encode_content_header(0, {properties.HEADERS: encode_headers(table), properties.REPLY_TO: encode_text("r")})


def key_of(value: FieldValue) -> bytes:
    key = read_key(header_with((DEDUPLICATION_HEADER, value)))
    assert key is not None
    return key


@given(field_values(), field_values())
def test_equal_keys_mean_equal_values(first: FieldValue, second: FieldValue) -> None:
    assert (key_of(first) == key_of(second)) is (_class_of(first) == _class_of(second))
    assert len(key_of(first)) == KEY_BYTES


def _class_of(value: FieldValue) -> object:
    """Return something that is equal for equal values."""
    if value.kind in "AF":
        return repr(value)
    kind = {"S": "S", "x": "S", "f": "d", "d": "d"}.get(value.kind, "I" if value.kind in "bBsuIilLT" else value.kind)
    return kind, to_term(value)


@given(tables(), tables(), st.sets(st.sampled_from([flag for flag, _ in FLAGS if flag != 0x2000])))
def test_the_header_is_found(before: FieldTable, after: FieldTable, flags: set[int]) -> None:
    wanted = FieldValue("S", b"value")
    table = (*before, (DEDUPLICATION_HEADER, wanted), *after)
    widths = {0x1000: b"\x02", 0x0800: b"\x05", 0x0040: bytes(8)}
    values = {flag: widths.get(flag, encode_text(f"\x16{DEDUPLICATION_HEADER}S")) for flag in flags}
    header = encode_content_header(0, {**values, properties.HEADERS: encode_headers(table)})
    first = find(table, DEDUPLICATION_HEADER)
    assert first is not None
    assert read_key(header) == key_of(first)
    without = encode_content_header(0, {**values, properties.HEADERS: encode_headers((*before, *after))})
    if find((*before, *after), DEDUPLICATION_HEADER) is None:
        assert read_key(without) is None


def test_without_headers() -> None:
    assert read_key(encode_content_header(0)) is None
    assert read_key(encode_content_header(0, {properties.REPLY_TO: encode_text(f"\x16{DEDUPLICATION_HEADER}")})) is None
    assert locate_header(header_with(("a", FieldValue("V", None))), b"\x01b") == -1


@pytest.mark.parametrize(
    ("value", "milliseconds"),
    [
        (FieldValue("b", -1), -1),
        (FieldValue("B", 200), 200),
        (FieldValue("l", 1 << 60), 1 << 60),
        (FieldValue("d", 300.7), 300),
        (FieldValue("f", 1.5), 1),
        (FieldValue("S", b"300"), None),
        (FieldValue("T", 300), None),
        (FieldValue("t", True), None),
        (FieldValue("V", None), None),
    ],
)
def test_the_ttl_of_a_message(value: FieldValue, milliseconds: int | None) -> None:
    assert read_ttl(header_with((TTL_HEADER, value))) == milliseconds
    assert read_ttl(header_with()) is None
