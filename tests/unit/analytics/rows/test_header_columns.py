"""Headers are read in bulk as they are when each table is decoded alone."""

from __future__ import annotations

from typing import Any
from unittest import mock

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from leveret.analytics.rows import header_columns, header_fields
from leveret.analytics.rows.header_columns import HeaderColumns, decode_table, untyped
from leveret.analytics.rows.property_slices import Slices
from leveret.protocol.field_table import MAX_STORED_DEPTH
from tests.support import tables
from tests.unit.analytics.rows.shown_tables import as_json, as_text

NAMES = st.sampled_from([b"a", b"", b"traceparent", 'ü"\\\n'.encode(), b"\xff", b"\xfe", b"\xe2\x82", b"x-death"])
TEXTS = st.one_of(st.text(max_size=9).map(str.encode), st.sampled_from([b"", b"\xff\x00", b'say "\\"', b"\x1f"]))
SINGLE = st.one_of(
    st.tuples(st.sampled_from("Sx"), TEXTS),
    st.tuples(st.just("t"), st.integers(0, 255)),
    st.tuples(st.just("b"), st.integers(-128, 127)),
    st.tuples(st.just("B"), st.integers(0, 255)),
    st.tuples(st.just("s"), st.integers(-(2**15), 2**15 - 1)),
    st.tuples(st.just("u"), st.integers(0, 2**16 - 1)),
    st.tuples(st.just("I"), st.integers(-(2**31), 2**31 - 1)),
    st.tuples(st.just("i"), st.integers(0, 2**32 - 1)),
    st.tuples(st.just("l"), st.integers(-(2**63), 2**63 - 1)),
    st.tuples(st.sampled_from("LT"), st.integers(0, 2**64 - 1)),
    st.tuples(st.sampled_from("fd"), st.sampled_from([0.0, -0.0, -1.5, 0.1, 1e16, 1e-5, float("inf"), float("nan")])),
    st.tuples(st.just("D"), st.tuples(st.integers(0, 9), st.integers(0, 2**32 - 1))),
    st.tuples(st.just("V"), st.none()),
    # No type of AMQP, and a table that is cut off.
    st.tuples(st.sampled_from("zAF"), st.sampled_from([b"", b"\0\0\0\x02S\0"])).map(
        lambda each: ("?" + each[0], each[1])
    ),
)
VALUES = st.recursive(
    SINGLE,
    lambda inner: st.one_of(
        st.tuples(st.just("A"), st.lists(inner, max_size=3)),
        st.tuples(st.just("F"), st.lists(st.tuples(NAMES, inner), max_size=3)),
    ),
    max_leaves=6,
)
DEATHS = st.lists(
    st.tuples(
        st.just("F"),
        st.lists(
            st.one_of(
                st.tuples(st.just(b"count"), st.tuples(st.just("l"), st.integers(-1, 2**62))),
                st.tuples(st.just(b"reason"), st.tuples(st.just("S"), TEXTS)),
                st.tuples(st.just(b"time"), st.tuples(st.just("T"), st.sampled_from([0, 1_700_000_000, 2**60]))),
            ),
            max_size=3,
        ),
    ),
    max_size=2,
)
TABLES = st.lists(
    st.one_of(st.tuples(NAMES, VALUES), st.tuples(st.just(b"x-death"), st.tuples(st.just("A"), DEATHS))), max_size=4
)


def encoded_value(value: tuple[str, Any]) -> bytes:
    kind, inner = value
    if kind[0] == "?":
        return kind[1:].encode() + bytes(inner)
    if kind == "A":
        return b"A" + tables.longstr(b"".join(map(encoded_value, inner)))
    return b"F" + tables.longstr(encoded(inner)) if kind == "F" else tables.encode_value(kind, inner)


def encoded(fields: list[tuple[bytes, tuple[str, Any]]]) -> bytes:
    return b"".join(tables.shortstr(name) + encoded_value(value) for name, value in fields)


@given(st.lists(st.tuples(TABLES, st.integers(0, 3), st.booleans()), max_size=6))
def test_in_bulk_as_one_by_one(rows: list[tuple[list[Any], int, bool]]) -> None:
    octets, starts, ends, present = b"file", [], [], []
    for fields, cut, is_present in rows:
        table = encoded(fields)
        table = table[: len(table) - (cut if cut > 1 else 0)]
        starts.append(len(octets))
        octets += table if is_present else b""
        ends.append(len(octets))
        present.append(is_present)
        octets += b"\xff"
    slices = Slices(np.array(starts, np.int64), np.array(ends, np.int64), np.array(present, np.bool_))
    found = HeaderColumns(octets, slices)
    decoded = [
        decode_table(octets[start:end]) if there else None
        for start, end, there in zip(starts, ends, present, strict=True)
    ]
    maps = found.column("headers")
    maps.validate(full=True)
    assert maps.to_pylist() == [
        None if table is None else [(name, as_text(value)) for name, value in table.items()] for table in decoded
    ]
    assert found.column("headers_json").to_pylist() == [None if table is None else as_json(table) for table in decoded]
    deaths = [
        [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []
        for value in (
            None if table is None or "x-death" not in table else untyped(table["x-death"]) for table in decoded
        )
    ]
    reasons = [each[0].get("reason") if each else None for each in deaths]
    assert found.column("dead_letter_reason").to_pylist() == [
        reason if isinstance(reason, str) else None for reason in reasons
    ]
    counts = found.column("dead_letter_count").to_pylist()
    assert [count > 0 for count in counts] == [any(each.get("count", 1) > 0 for each in row) for row in deaths]


def columns_of(fields: list[bytes]) -> HeaderColumns:
    ends = np.cumsum([len(each) for each in fields])
    slices = Slices(np.concatenate(([0], ends[:-1])), ends, np.ones(len(fields), np.bool_))
    return HeaderColumns(b"".join(fields), slices)


def test_nothing_is_decoded_one_by_one() -> None:
    fields = [
        encoded(
            [
                (b"traceparent", ("S", b"00-%d" % n)),
                (b"n-%d" % n, ("d", n / 2)),
                (b"flag", ("t", 1)),
                (b"order", ("F", [(b"n", ("l", n)), (b"parts", ("A", [("S", b"a"), ("f", n / 4)]))])),
            ]
        )
        for n in range(5000)
    ]
    with mock.patch.object(header_columns, "decode_table", None), mock.patch.object(header_fields, "json", None):
        found = columns_of(fields)
        texts = dict(found.column("headers")[4999].as_py())
        typed = found.column("headers_json")[7].as_py()
    assert texts == {
        "traceparent": "00-4999",
        "n-4999": "2499.5",
        "flag": "true",
        "order": '{"n": 4999, "parts": ["a", 1249.75]}',
    }
    assert typed.startswith(
        '{"traceparent": {"type": "longstr", "value": "00-7"}, "n-7": {"type": "double", "value": 3.5}'
    )


def test_names_of_many_tables_may_be_repeated() -> None:
    """More of them than there are bits for."""
    fields = [encoded([(b"n-%d" % (n % 40), ("l", n)), (b"a", ("l", 1)), (b"a", ("l", 2))]) for n in range(100)]
    assert columns_of(fields).column("headers").to_pylist() == [
        [(f"n-{n % 40}", str(n)), ("a", "1")] for n in range(100)
    ]


def test_as_deep_as_a_table_may_be() -> None:
    def nested(kind: str, depth: int) -> bytes:
        value = b"V"
        for _ in range(depth):
            value = kind.encode() + tables.longstr(value if kind == "A" else b"\0" + value)
        return b"\1a" + value

    fields = [nested(kind, depth) for kind in "AF" for depth in (MAX_STORED_DEPTH, MAX_STORED_DEPTH + 1)]
    columns = columns_of(
        [*fields, encoded([(b"x-death", ("V", None))]), nested("A", 400).replace(b"\1a", b"\7x-death", 1)]
    )
    found = columns.column("headers").to_pylist()
    assert columns.column("dead_letter_count").to_pylist() == [0] * 6
    assert [row is None for row in found] == [False, True, False, True, False, False]
    assert found[0] == [("a", "[" * MAX_STORED_DEPTH + "null" + "]" * MAX_STORED_DEPTH)]
