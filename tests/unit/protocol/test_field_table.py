from __future__ import annotations

import datetime
import decimal
import inspect
import math
import struct
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pamqp import decode, encode

from leveret.protocol.field_table import (
    FLOAT_KINDS,
    INTEGER_KINDS,
    MAX_STORED_DEPTH,
    TYPE_NAMES,
    FieldTable,
    FieldValue,
    MalformedTable,
    as_text,
    decode_table,
    encode_table,
    encode_value,
    find,
    longstr,
    normalize,
    sort_table,
)
from tests.support import tables as triples
from tests.support.amqp_strategies import LETTERS, any_short_text, short_text, tables, value_of
from tests.support.examples import examples


def as_pamqp(field: FieldValue) -> Any:
    """What pamqp decodes a value to."""
    kind, value = field
    if kind == "D":
        scale, unscaled = value
        # It reads them signed.
        unscaled -= (unscaled >> 31) << 32
        return decimal.Decimal(unscaled) * decimal.Decimal(10) ** -scale
    if kind == "T":
        return datetime.datetime.fromtimestamp(value, tz=datetime.UTC)
    if kind == "S":
        try:
            return value.decode("utf-8")
        except UnicodeDecodeError:
            return value
    if kind == "A":
        return [as_pamqp(item) for item in value]
    return as_dictionary(value) if kind == "F" else value


def as_dictionary(table: FieldTable) -> dict[str, Any]:
    return {key: as_pamqp(value) for key, value in table}


def with_length(octets: bytes) -> bytes:
    return struct.pack(">I", len(octets)) + octets


def is_readable(value: FieldValue) -> bool:
    """Whether pamqp reads it as what it is: it takes late timestamps for milliseconds."""
    if value.kind == "T":
        return bool(value.value <= 0xFFFFFFFF)
    if value.kind == "A":
        return all(map(is_readable, value.value))
    return value.kind != "F" or all(
        is_readable(each) and key.isprintable() and len(key.encode("utf-8", "replace")) < 256 and key.isascii()
        for key, each in value.value
    )


@given(tables())
def test_tables_come_back_byte_for_byte(table: FieldTable) -> None:
    octets = encode_table(table)
    decoded = decode_table(octets)
    assert decoded == table
    assert encode_table(decoded) == octets
    assert hash(decoded) == hash(table)


@pytest.mark.parametrize("kind", LETTERS)
@settings(max_examples=examples(50))
@given(data=st.data())
def test_every_type_comes_back_byte_for_byte(kind: str, data: st.DataObject) -> None:
    value = data.draw(value_of(kind))
    octets = b"\x01k" + encode_value(value)
    assert octets[2:3] == kind.encode()
    assert decode_table(octets) == (("k", value),)
    assert encode_table(decode_table(octets)) == octets


@pytest.mark.parametrize("kind", LETTERS)
@settings(max_examples=examples(50))
@given(data=st.data())
def test_every_type_is_read_as_pamqp_reads_it(kind: str, data: st.DataObject) -> None:
    value = data.draw(value_of(kind).filter(is_readable))
    octets = with_length(encode_table((("k", value),)))
    consumed, read = decode.field_table(octets)
    assert consumed == len(octets)
    assert read == {"k": as_pamqp(value)}


PLAIN = st.recursive(
    st.one_of(
        st.booleans(),
        st.integers(-(2**63), 2**63 - 1),
        st.floats(width=32, allow_nan=False, allow_infinity=False),
        st.decimals(allow_nan=False, allow_infinity=False, places=2, min_value=0, max_value=10**6),
        st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
        st.binary(max_size=20).map(bytearray),
        st.datetimes(datetime.datetime(1970, 1, 2), datetime.datetime(2100, 1, 1)),
        st.none(),
    ),
    lambda values: st.lists(values, max_size=4) | st.dictionaries(short_text(30), values, max_size=4),
    max_leaves=8,
)


@given(st.dictionaries(short_text(30), PLAIN, max_size=5))
def test_what_pamqp_writes_comes_back_byte_for_byte(table: dict[str, Any]) -> None:
    octets = encode.field_table(table)
    assert with_length(encode_table(decode_table(octets[4:]))) == octets


@given(tables())
def test_an_independent_reading_agrees(table: FieldTable) -> None:
    def plain(field: FieldValue) -> Any:
        kind, value = field
        if kind == "F":
            return [(key, each.kind, plain(each)) for key, each in value]
        if kind == "A":
            return [(each.kind, plain(each)) for each in value]
        if kind == "L":
            return value % 2**64
        return triples.to_text(value) if kind == "S" else value

    assert triples.decode_body(encode_table(table)) == [(key, each.kind, plain(each)) for key, each in table]


def test_duplicates_order_and_odd_keys_are_kept() -> None:
    table = (("b", longstr("1")), ("a", longstr("2")), ("b", longstr("3")), ("", FieldValue("V", None)))
    assert decode_table(encode_table(table)) == table
    assert find(table, "b") == longstr("1")
    assert find(table, "c") is None
    assert [key for key, _ in sort_table(table)] == ["", "a", "b", "b"]
    # Of equal keys the first stays the first.
    assert find(sort_table(table), "b") == longstr("1")


@given(tables())
def test_sorting_is_by_the_bytes_of_the_keys(table: FieldTable) -> None:
    ordered = sort_table(table)
    keys = [key.encode("utf-8", "surrogateescape") for key, _ in ordered]
    assert keys == sorted(keys)
    assert sorted(map(repr, ordered)) == sorted(map(repr, table))
    assert sort_table(ordered) == ordered


def test_large_unsigned_numbers_are_read_as_negative() -> None:
    octets = b"\x01kL" + b"\xff" * 8
    assert decode_table(octets) == (("k", FieldValue("L", -1)),)
    assert encode_table(decode_table(octets)) == octets


def test_any_octet_but_zero_is_true() -> None:
    for octet in range(256):
        assert decode_table(b"\x01kt" + bytes((octet,))) == (("k", FieldValue("t", octet != 0)),)


@given(tables())
def test_a_normalized_table_has_the_same_bits_without_l(table: FieldTable) -> None:
    normal = normalize(table)
    assert "'L'" not in repr([field.kind for field in flat(normal)])
    assert [field.kind.lower() for field in flat(normal)] == [field.kind.lower() for field in flat(table)]
    assert normalize(normal) == normal
    for before, after in zip(flat(table), flat(normal), strict=True):
        if before.kind not in "AF":
            assert encode_value(after)[1:] == encode_value(before)[1:]


def flat(table: FieldTable) -> list[FieldValue]:
    found: list[FieldValue] = []
    for _, field in table:
        found += flatten(field)
    return found


def flatten(field: FieldValue) -> list[FieldValue]:
    if field.kind == "F":
        return [field, *flat(field.value)]
    if field.kind == "A":
        return [field, *(inner for item in field.value for inner in flatten(item))]
    return [field]


@given(any_short_text())
def test_strings(text: str) -> None:
    assert as_text(longstr(text)) == text
    assert longstr(text) == longstr(text.encode("utf-8", "surrogateescape"))


@pytest.mark.parametrize("kind", LETTERS)
def test_every_type_has_a_name(kind: str) -> None:
    assert TYPE_NAMES[kind]
    assert (kind in INTEGER_KINDS) == (TYPE_NAMES[kind].endswith(("byte", "short", "int", "long")))
    assert (kind in FLOAT_KINDS) == (kind in "fd")


def test_there_are_no_other_types() -> None:
    assert set(TYPE_NAMES) == set(LETTERS)


# -- mistakes -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("content", [b"", b"\0" * 12])
def test_other_letters_are_refused(content: bytes) -> None:
    for letter in set(range(256)) - set(LETTERS.encode()):
        octets = bytes((letter,)) + content
        with pytest.raises(MalformedTable, match="unknown field type"):
            decode_table(b"\x01k" + octets)
        with pytest.raises(MalformedTable, match="unknown field type"):
            decode_table(b"\x01kA" + with_length(octets))


@pytest.mark.parametrize("kind", LETTERS.replace("V", ""))
@settings(max_examples=examples(50))
@given(data=st.data())
def test_a_value_cut_short_is_refused(kind: str, data: st.DataObject) -> None:
    octets = b"\x01k" + encode_value(data.draw(value_of(kind)))
    end = data.draw(st.integers(1, len(octets) - 1))
    with pytest.raises(MalformedTable):
        decode_table(octets[:end])


@given(st.binary(max_size=60))
def test_any_bytes_are_a_table_or_refused(octets: bytes) -> None:
    try:
        table = decode_table(octets)
    except MalformedTable:
        return
    assert decode_table(encode_table(table)) == table


@pytest.mark.parametrize("number", [math.inf, -math.inf, math.nan])
@pytest.mark.parametrize(("letter", "layout"), [(b"f", ">f"), (b"d", ">d")])
def test_floats_that_are_no_numbers_are_refused(letter: bytes, layout: str, number: float) -> None:
    with pytest.raises(MalformedTable, match="not a number"):
        decode_table(b"\x01k" + letter + struct.pack(layout, number))


@pytest.mark.parametrize("kind", ["A", "F"])
def test_endless_nesting_is_refused(kind: str) -> None:
    octets = b""
    for _ in range(20_000):
        octets = (b"\x00F" if kind == "F" else b"A") + with_length(octets)
    with pytest.raises(MalformedTable, match="nested too deep"):
        decode_table(octets if kind == "F" else b"\x01k" + octets)


@pytest.mark.parametrize("nesting", [1, 10, 64])
def test_deep_nesting_is_fine(nesting: int) -> None:
    value = longstr("bottom")
    for _ in range(nesting):
        value = FieldValue("A", (FieldValue("F", (("k", value),)),))
    assert decode_table(encode_table((("k", value),))) == (("k", value),)


@pytest.mark.parametrize(
    "table",
    [
        (("k" * 256, FieldValue("V", None)),),
        (("ä" * 128, FieldValue("V", None)),),
    ],
)
def test_long_keys_cannot_be_written(table: FieldTable) -> None:
    with pytest.raises(ValueError):
        encode_table(table)


def nested(depth: int, kind: str) -> FieldTable:
    """A table with this many levels of nested tables or arrays."""
    value = FieldValue(kind, ())
    for _ in range(depth - 1):
        value = FieldValue(kind, (("k", value),) if kind == "F" else (value,))
    return (("k", value),)


@pytest.mark.parametrize("kind", ["A", "F"])
def test_128_levels_are_allowed(kind: str) -> None:
    table = nested(128, kind)
    assert decode_table(encode_table(table)) == table
    with pytest.raises(MalformedTable, match="nested too deep, 128 levels are allowed"):
        decode_table(encode_table(nested(129, kind)))


@pytest.mark.parametrize("kind", ["A", "F"])
def test_stored_tables_may_be_deeper(kind: str) -> None:
    octets = encode_table(nested(512, kind))
    assert encode_table(decode_table(octets, MAX_STORED_DEPTH)) == octets
    with pytest.raises(MalformedTable, match="512 levels"):
        decode_table(encode_table(nested(513, kind)), MAX_STORED_DEPTH)


@pytest.mark.parametrize("kind", ["A", "F"])
def test_depth_needs_no_stack(kind: str) -> None:
    """Whatever made them, nothing that is done with tables depends on the stack."""
    table = nested(3_000, kind)
    octets = encode_table(table)
    with deep_in_the_stack():
        assert encode_table(normalize(decode_table(octets, 3_000))) == octets


@contextmanager
def deep_in_the_stack() -> Iterator[None]:
    """Leave room for 40 frames."""
    limit, used = sys.getrecursionlimit(), len(inspect.stack())
    sys.setrecursionlimit(used + 40)
    try:
        yield
    finally:
        sys.setrecursionlimit(limit)
