"""The header x-stream-offset among the others."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from leveret.protocol.field_table import FieldTable, FieldValue
from leveret.protocol.header_scan import split_for_offset
from leveret.protocol.properties import HEADERS, Properties, encode_content_header, encode_headers
from tests.support.amqp_strategies import encoded_properties, tables

OFFSET = "x-stream-offset"


def with_offset(header: bytes, offset: int) -> Properties:
    before, after = split_for_offset(header)
    return Properties(before + offset.to_bytes(8, "big", signed=True) + after)


def key(entry: tuple[str, FieldValue]) -> bytes:
    return entry[0].encode("utf-8", "surrogateescape")


@given(properties=encoded_properties(), table=st.none() | tables(), offset=st.integers(0, 2**63 - 1))
@example(properties={}, table=((OFFSET, FieldValue("S", b"mine")), ("a", FieldValue("t", True))), offset=5)
@example(
    properties={}, table=(("z", FieldValue("I", 1)), ("a", FieldValue("I", 2)), ("z", FieldValue("I", 0))), offset=0
)
def test_headers_are_sorted_and_the_rest_stays(
    properties: dict[int, bytes], table: FieldTable | None, offset: int
) -> None:
    properties = {flag: value for flag, value in properties.items() if flag != HEADERS}
    if table is not None:
        properties[HEADERS] = encode_headers(table)
    header = encode_content_header(123, properties)
    found = with_offset(header, offset)
    kept = [entry for entry in table or () if entry[0] != OFFSET]
    # A value of type L is read as l, but relayed as it came.
    expected = sorted([*kept, (OFFSET, FieldValue("l", offset))], key=key)
    assert found.headers(1000) == tuple(expected)
    assert found.payload[:12] == header[:12]
    assert {flag: found.raw(flag) for flag in properties if flag != HEADERS} == {
        flag: value for flag, value in properties.items() if flag != HEADERS
    }
    assert found.flags == Properties(header).flags | HEADERS


def test_encoded_values_are_relayed_as_they_came() -> None:
    table = b"\x01bL\x00\x00\x00\x00\x00\x00\x00\x07" + b"\x01aF\x00\x00\x00\x00"
    header = encode_content_header(0, {HEADERS: len(table).to_bytes(4, "big") + table})
    raw = with_offset(header, 1).raw(HEADERS)
    assert raw is not None
    assert raw[4:].startswith(table[11:] + table[:11])
