from __future__ import annotations

import json
from datetime import UTC, datetime
from decimal import Decimal

import pamqp.encode
from hypothesis import given
from hypothesis import strategies as st

from leveret.analytics.rows.header_columns import decode_table, untyped
from tests.unit.analytics.rows.shown_tables import as_json, as_text


def encoded(table: dict[str, object]) -> bytes:
    return pamqp.encode.field_table(table)[4:]  # type: ignore[arg-type]


def test_every_type() -> None:
    table = decode_table(
        encoded(
            {
                "text": "ü",
                "octets": bytearray(b"\xff"),
                "true": True,
                "none": None,
                "small": 1,
                "large": 2**40,
                "real": 0.5,
                "decimal": Decimal("1.25"),
                "time": datetime(2026, 1, 1, tzinfo=UTC),
                "list": [1, "a", {"x": False}],
            }
        )
    )
    assert table is not None
    assert {name: untyped(value) for name, value in table.items()} == {
        "text": "ü",
        "octets": "/w==",
        "true": True,
        "none": None,
        "small": 1,
        "large": 2**40,
        "real": 0.5,
        "decimal": "1.25",
        "time": 1767225600,
        "list": [1, "a", {"x": False}],
    }
    assert [as_text(table[name]) for name in ("text", "true", "none", "list")] == [
        "ü",
        "true",
        None,
        '[1, "a", {"x": false}]',
    ]
    typed = json.loads(as_json(table))
    assert typed["large"] == {"type": "int64", "value": 2**40}
    assert typed["list"]["value"][2] == {"type": "table", "value": {"x": {"type": "bool", "value": False}}}


def test_types_that_others_send() -> None:
    octets = (
        b"\x01aS\x00\x00\x00\x02\xff\xfe" + b"\x01bB\xff" + b"\x01cx\x00\x00\x00\x01\x00" + b"\x01ai\x00\x00\x00\x05"
    )
    table = decode_table(octets)
    assert table is not None
    assert {name: tuple(value) for name, value in table.items()} == {
        "a": ("binary", "//4="),
        "b": ("uint8", 255),
        "c": ("binary", "AA=="),
    }


@given(st.binary(max_size=60))
def test_whatever_it_is_nothing_is_raised(octets: bytes) -> None:
    table = decode_table(octets)
    if table is not None:
        json.loads(as_json(table))


@given(st.data())
def test_what_is_cut_is_malformed(data: st.DataObject) -> None:
    octets = encoded({"text": "abc", "list": [1, {"x": "y"}]})
    cut = data.draw(st.integers(1, len(octets) - 1))
    found = decode_table(octets[:cut])
    assert found is None or len(found) == 1


def test_decimals_keep_all_their_digits() -> None:
    def shown(scale: int, unscaled: int) -> str | None:
        table = decode_table(b"\x01dD" + bytes([scale]) + unscaled.to_bytes(4, "big"))
        assert table is not None
        return as_text(table["d"])

    assert shown(2, 110) == "1.10"
    assert shown(0, 7) == "7"
    assert shown(9, (1 << 31) - 1) == "2.147483647"
    assert shown(3, (1 << 32) - 1) == "-0.001"
    # A float has none of these digits.
    assert shown(40, 123456789) == "0." + "0" * 31 + "123456789"
    assert shown(255, 1) == "0." + "0" * 254 + "1"
