from __future__ import annotations

import io
import json
from datetime import UTC, date, datetime, time
from typing import Any
from uuid import UUID

import fastavro
import pytest
from fastavro.schema import fingerprint, to_parsing_canonical_form
from hypothesis import given
from hypothesis import strategies as st

from leveret.analytics.bodies.avro_bodies import AvroBodies
from leveret.analytics.bodies.value_types import type_ddl
from leveret.analytics.errors import OptionError
from tests.unit.analytics.bodies.payloads import read

ORDER = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "note", "type": ["null", "string"]},
        {"name": "lines", "type": {"type": "array", "items": {"type": "record", "name": "Line", "fields": [
            {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 8, "scale": 2}},
            {"name": "count", "type": ["int", "long"]},
        ]}}},
        {"name": "first", "type": ["null", "Line"]},
        {"name": "tags", "type": {"type": "map", "values": ["null", "double"]}},
        {"name": "size", "type": {"type": "enum", "name": "Size", "symbols": ["S", "L"]}},
        {"name": "key", "type": {"type": "fixed", "name": "Key", "size": 2}},
    ],
}  # fmt: skip


def encoded(schema: Any, value: Any) -> bytes:
    target = io.BytesIO()
    fastavro.schemaless_writer(target, fastavro.parse_schema(schema), value)
    return target.getvalue()


def reader(schema: Any) -> AvroBodies:
    return AvroBodies(json.dumps(schema))


LINES = st.fixed_dictionaries(
    {"price": st.decimals(-999999, 999999, places=2), "count": st.integers(-(1 << 63), (1 << 63) - 1)}
)
ORDERS = st.fixed_dictionaries(
    {
        "id": st.integers(-(1 << 63), (1 << 63) - 1),
        "note": st.none() | st.text(st.characters(codec="utf-8")),
        "lines": st.lists(LINES, max_size=3),
        "first": st.none() | LINES,
        "tags": st.dictionaries(
            st.text(st.characters(codec="utf-8")), st.none() | st.floats(allow_nan=False), max_size=2
        ),
        "size": st.sampled_from("SL"),
        "key": st.binary(min_size=2, max_size=2),
    }
)


@given(st.lists(ORDERS, max_size=3))
def test_records_come_back(orders: list[dict[str, Any]]) -> None:
    found = read(reader(ORDER), *(encoded(ORDER, each) for each in orders))
    assert found == [(each | {"tags": list(each["tags"].items())}, None) for each in orders]


@given(st.binary(max_size=60))
def test_any_bytes_are_read_or_have_a_reason(octets: bytes) -> None:
    ((value, reason),) = read(reader(ORDER), octets)
    assert (value is None) == (reason is not None)


def test_types() -> None:
    assert type_ddl(reader(ORDER).kind) == (
        "struct<`id`: bigint, `note`: string, `lines`: array<struct<`price`: decimal(8, 2), `count`: bigint>>, "
        "`first`: struct<`price`: decimal(8, 2), `count`: bigint>, `tags`: map<string, double>, `size`: string, "
        "`key`: binary>"
    )


@pytest.mark.parametrize(
    ("schema", "value", "wanted", "ddl"),
    [
        ({"type": "int", "logicalType": "date"}, date(2026, 1, 31), ..., "date"),
        ({"type": "long", "logicalType": "timestamp-millis"}, datetime(2026, 1, 31, tzinfo=UTC), ..., "timestamp"),
        ({"type": "long", "logicalType": "timestamp-micros"}, datetime(1, 1, 1, 1, 2, 3, 4, UTC), ..., "timestamp"),
        ({"type": "long", "logicalType": "local-timestamp-micros"}, datetime(2026, 1, 31, 1, 2), ..., "timestamp_ntz"),
        ({"type": "int", "logicalType": "time-millis"}, time(1, 0, 0, 5000), 3_600_005, "int"),
        ({"type": "long", "logicalType": "time-micros"}, time(1, 0, 0, 5), 3_600_000_005, "bigint"),
        ({"type": "string", "logicalType": "uuid"}, UUID(int=5), str(UUID(int=5)), "string"),
        ({"type": "long", "logicalType": "of-ours"}, 5, ..., "bigint"),
        ("null", None, ..., "string"),
        (["null"], None, ..., "string"),
        (["null", "boolean"], True, ..., "boolean"),
        (["float", "double"], 0.5, ..., "double"),
        (["string", "bytes"], b"x", {"member0": None, "member1": b"x"}, "struct<`member0`: string, `member1`: binary>"),
        (["null", "string", {"type": "int", "logicalType": "date"}], date(2026, 1, 31),
         {"member0": None, "member1": date(2026, 1, 31)}, "struct<`member0`: string, `member1`: date>"),
        (["long", {"type": "enum", "name": "E", "symbols": ["A"]}], "A", {"member0": None, "member1": "A"},
         "struct<`member0`: bigint, `member1`: string>"),
        ([{"type": "array", "items": "int"}, {"type": "map", "values": "int"}], {"a": 1},
         {"member0": None, "member1": [("a", 1)]}, "struct<`member0`: array<int>, `member1`: map<string, int>>"),
        ({"type": "record", "name": "Empty", "fields": []}, {}, "{}", "string"),
    ],
)  # fmt: skip
def test_values(schema: Any, value: Any, wanted: Any, ddl: str) -> None:
    bodies = reader(schema)
    assert type_ddl(bodies.kind) == ddl
    assert read(bodies, encoded(schema, value)) == [(value if wanted is ... else wanted, None)]


def test_other_forms() -> None:
    schema = {"type": "record", "name": "R", "fields": [{"name": "a", "type": "long"}]}
    plain = encoded(schema, {"a": 5})
    mark = bytes.fromhex(fingerprint(to_parsing_canonical_form(fastavro.parse_schema(schema)), "CRC-64-AVRO"))
    older = {"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}, {"name": "b", "type": "int"}]}
    files = []
    for count in (1, 2):
        target = io.BytesIO()
        fastavro.writer(target, older, [{"a": 6, "b": 1}] * count)
        files.append(target.getvalue())
    assert read(
        reader(schema), plain, b"\xc3\x01" + mark + plain, *files, plain + b"x", b"\xc3\x01" + bytes(8) + plain
    ) == [
        ({"a": 5}, None),
        ({"a": 5}, None),
        ({"a": 6}, None),
        (None, "the body is an Avro file with 2 values, not with one"),
        (None, "the body is not Avro of this schema: 1 bytes are left at its end"),
        (None, "the body is not Avro of this schema: 9 bytes are left at its end"),
    ]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "Expecting property name"),
        ('{"type": "record", "fields": []}', "name"),
        ('{"type": "nothing"}', "nothing"),
        ("5", ""),
        ('{"type": "record", "name": "R", "fields": [{"name": "r", "type": ["null", "R"]}]}', "R contains itself, for"),
    ],
)
def test_schemas_that_are_none(text: str, reason: str) -> None:
    with pytest.raises(OptionError, match=rf"the schema of bodies is not an Avro schema: .*{reason}"):
        AvroBodies(text)


def test_what_is_wrong_with_bodies_of_a_schema_registry_and_of_other_schemas() -> None:
    schema = {"type": "record", "name": "R", "fields": [{"name": "note", "type": "string"}]}
    body = encoded(schema, {"note": "long enough to be text"})
    hint = "; it may begin with the five bytes of a schema registry (schema 258), which only a rule reads"
    for prefixed in (b"\0\0\0\1\2" + body, b"\0\0\0\1\2" + body + b"\xff"):
        ((value, reason),) = read(reader(schema), prefixed)
        assert (value, reason is not None and reason.endswith(hint)) == (None, True)
    newer = {**schema, "fields": [*schema["fields"], {"name": "size", "type": "long"}]}
    ((value, reason),) = read(reader(newer), body)
    assert (value, reason) == (
        None,
        "the body is not Avro of this schema: it ends too early, or was written with another version of the schema",
    )
