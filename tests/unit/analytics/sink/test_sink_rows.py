"""What messages the sink makes of rows: read with the codec of the broker, and with pamqp."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pamqp.header
import pyarrow as pa
import pytest

from leveret.analytics.errors import AnalyticsError
from leveret.analytics.rows.header_columns import decode_table
from leveret.analytics.sink.connection import Encoded
from leveret.analytics.sink.published_rows import RowEncoder, row_layout
from leveret.protocol.field_table import FieldTable, FieldValue, encode_table, longstr
from leveret.protocol.properties import Properties
from tests.unit.analytics.rows.shown_tables import as_json

STRINGS = pa.map_(pa.string(), pa.string())


def encoded(types: dict[str, str], columns: dict[str, pa.Array], routing_key: str | None = None) -> list[Any]:
    layout = row_layout(types, routing_key)
    return [*RowEncoder(layout).messages(pa.RecordBatch.from_pydict(columns))]


def one(types: dict[str, str], **values: Any) -> Encoded:
    columns = {name: value if isinstance(value, pa.Array) else pa.array([value]) for name, value in values.items()}
    (message,) = encoded({"body": "string", **types}, {"body": pa.array(["x"]), **columns})
    assert isinstance(message, Encoded), message
    return message


def headers(message: Encoded) -> FieldTable:
    return Properties(message.header).headers()


def invalid(types: dict[str, str], **values: Any) -> str:
    columns = {name: value if isinstance(value, pa.Array) else pa.array([value]) for name, value in values.items()}
    (found,) = encoded({"body": "string", **types}, {"body": pa.array(["x"]), **columns})
    assert isinstance(found, ValueError), found
    return str(found)


def test_bodies() -> None:
    texts = encoded({"body": "string"}, {"body": pa.array(["ä", ""])})
    assert [message.body for message in texts] == ["ä".encode(), b""]
    octets = encoded({"body": "binary"}, {"body": pa.array([b"\xff\0", b""], pa.binary())})
    assert [message.body for message in octets] == [b"\xff\0", b""]
    assert int.from_bytes(octets[0].header[4:12], "big") == 2


@pytest.mark.parametrize("kind", ["string", "binary"])
def test_a_body_that_is_null_is_no_message(kind: str) -> None:
    """It mostly comes from a body that did not parse; as an empty message it would replace that."""
    (found,) = encoded({"body": kind}, {"body": pa.array([None], pa.string() if kind == "string" else pa.binary())})
    assert str(found) == "body is NULL; an empty message has the body ''"


def test_all_properties() -> None:
    texts = ("content_type", "content_encoding", "correlation_id", "reply_to", "expiration", "message_id", "type")
    others = ("user_id", "app_id", "cluster_id")
    types = dict.fromkeys((*texts, *others), "string") | {"delivery_mode": "int", "priority": "int"}
    types |= {"timestamp": "timestamp"}
    at = datetime(2026, 1, 31, 12, 0, 0, 999_999, tzinfo=UTC)
    values: dict[str, Any] = {name: f"{name} ä" for name in (*texts, *others)} | {"expiration": "60000"}
    message = one(types, **values, delivery_mode=1, priority=255, timestamp=at)
    read = pamqp.header.ContentHeader()
    read.unmarshal(message.header)
    properties = dict(read.properties)
    properties["type"] = properties.pop("message_type")
    assert {name: properties[name] for name in values} == values
    assert (properties["delivery_mode"], properties["priority"]) == (1, 255)
    assert properties["timestamp"] == at.replace(microsecond=0)


def test_absent_properties_are_left_out() -> None:
    types = {"message_id": "string", "priority": "int", "delivery_mode": "int", "timestamp": "timestamp"}
    message = one(
        types,
        message_id=pa.array([None], pa.string()),
        priority=pa.array([None], pa.int32()),
        delivery_mode=pa.array([None], pa.int32()),
        timestamp=pa.array([None], pa.timestamp("us", "UTC")),
    )
    assert Properties(message.header).flags == 0


@pytest.mark.parametrize(("persistent", "mode"), [(None, 2), (True, 2), (False, 1)])
def test_messages_are_persistent_unless_it_is_said(persistent: bool | None, mode: int) -> None:
    message = one({"persistent": "boolean"}, persistent=pa.array([persistent], pa.bool_()))
    assert Properties(message.header).as_dict() == {"delivery_mode": mode}
    assert Properties(one({}).header).as_dict() == {"delivery_mode": 2}


def test_routing_keys() -> None:
    columns = {"body": pa.array(["x", "y"]), "routing_key": pa.array(["k", None])}
    types = {"body": "string", "routing_key": "string"}
    assert [message.routing_key for message in encoded(types, columns)] == [b"\x01k", b"\x00"]
    assert [message.routing_key for message in encoded(types, columns, "all")] == [b"\x03all", b"\x03all"]
    assert one({}).routing_key == b"\x00"


def test_headers_of_a_map() -> None:
    table = [("a", "1"), ("x-death", '[{"count": 1}]'), ("n", None)]
    message = one({"headers": "map<string,string>"}, headers=pa.array([table], STRINGS))
    assert headers(message) == (("a", longstr("1")), ("n", FieldValue("V", None)))
    numbers = one({"headers": "map<string,bigint>"}, headers=pa.array([[("n", 5)]], pa.map_(pa.string(), pa.int64())))
    assert headers(numbers) == (("n", FieldValue("l", 5)),)


@pytest.mark.parametrize("column", ["headers", "headers_json"])
def test_a_repaired_message_is_no_dead_letter(column: str) -> None:
    """The headers that dead-lettering has added are left out, unless they are to be kept; a map cannot keep x-death."""
    names = ["a", "x-death", "x-first-death-queue", "x-first-death-reason", "x-first-death-exchange"]
    names += ["x-last-death-queue", "x-last-death-reason", "x-last-death-exchange"]
    given = dict.fromkeys(names, "v")
    value = pa.array([[*given.items()]], STRINGS) if column == "headers" else pa.array([json.dumps(given)])
    types = {"body": "string", column: "map<string,string>" if column == "headers" else "string"}
    batch = pa.RecordBatch.from_pydict({"body": pa.array(["x"]), column: value})
    for keeps, expected in ((False, ["a"]), (True, names if column == "headers_json" else [names[0], *names[2:]])):
        (message,) = RowEncoder(row_layout(types, None, keeps)).messages(batch)
        assert isinstance(message, Encoded)
        assert [name for name, _ in headers(message)] == expected


def test_headers_of_a_struct() -> None:
    values = {
        "t": True, "l": -1, "d": 1.5, "x": b"\xff", "D": Decimal("1.50"), "T": datetime(1970, 1, 2, tzinfo=UTC),
        "A": ["a", None], "F": {"inner": 1}, "last": datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
    }  # fmt: skip
    message = one({"headers": "struct<…>"}, headers=pa.array([values]))
    assert headers(message) == (
        ("t", FieldValue("t", True)),
        ("l", FieldValue("l", -1)),
        ("d", FieldValue("d", 1.5)),
        ("x", FieldValue("x", b"\xff")),
        ("D", longstr("1.50")),
        ("T", FieldValue("T", 86_400)),
        ("A", FieldValue("A", (longstr("a"), FieldValue("V", None)))),
        ("F", FieldValue("F", (("inner", FieldValue("l", 1)),))),
        ("last", FieldValue("T", 253_402_300_799)),
    )


TYPED = (
    ("t", FieldValue("t", False)),
    ("b", FieldValue("b", -128)),
    ("B", FieldValue("B", 255)),
    ("s", FieldValue("s", -32_768)),
    ("u", FieldValue("u", 65_535)),
    ("I", FieldValue("I", -(1 << 31))),
    ("i", FieldValue("i", (1 << 32) - 1)),
    ("l", FieldValue("l", (1 << 63) - 1)),
    ("f", FieldValue("f", 0.5)),
    ("d", FieldValue("d", 0.1)),
    ("D", FieldValue("D", (2, 150))),
    ("negative", FieldValue("D", (1, 0xFFFFFFF1))),
    ("S", longstr("ä")),
    ("x", FieldValue("x", b"\xff")),
    ("T", FieldValue("T", 1_700_000_000)),
    ("A", FieldValue("A", (FieldValue("I", 1), FieldValue("F", (("k", FieldValue("s", 2)),))))),
    ("F", FieldValue("F", (("type", longstr("a")), ("value", longstr("b"))))),
    ("V", FieldValue("V", None)),
)


def test_typed_headers_come_back_as_they_were() -> None:
    """What the table `messages` shows as headers_json makes the same headers again."""
    shown = decode_table(encode_table(TYPED))
    assert shown is not None
    assert headers(one({"headers_json": "string"}, headers_json=as_json(shown))) == TYPED


def test_plain_json() -> None:
    text = json.dumps({"a": "b", "n": 1, "f": 1.5, "list": [True, None], "type": "x"})
    assert headers(one({"headers_json": "string"}, headers_json=text)) == (
        ("a", longstr("b")),
        ("n", FieldValue("l", 1)),
        ("f", FieldValue("d", 1.5)),
        ("list", FieldValue("A", (FieldValue("t", True), FieldValue("V", None)))),
        ("type", longstr("x")),
    )


def test_the_row_key_is_the_value_by_which_duplicates_are_dropped() -> None:
    types = {"queue_id": "bigint", "store_priority": "int", "seq": "bigint", "headers": "map<string,string>"}
    before = pa.array([[("x-deduplication-header", "of the publisher"), ("a", "b")]], STRINGS)
    message = one(types, queue_id=7, store_priority=0, seq=12, headers=before)
    assert headers(message) == (("a", longstr("b")), ("x-deduplication-header", longstr("7.0.12")))


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [("string", "k", longstr("k")), ("bigint", 5, FieldValue("l", 5)), ("binary", b"\xff", longstr(b"\xff"))],
)
def test_a_key_of_ones_own(kind: str, value: Any, expected: FieldValue) -> None:
    key = {"queue_id": "bigint", "store_priority": "int", "seq": "bigint", "key": kind}
    message = one(key, queue_id=7, store_priority=0, seq=12, key=value)
    assert headers(message) == (("x-deduplication-header", expected),)


def test_without_a_key() -> None:
    assert headers(one({"key": "string"}, key=pa.array([None], pa.string()))) == ()
    assert headers(one({"seq": "bigint"}, seq=1)) == ()


def test_where_a_message_was_is_not_published() -> None:
    types = {"queue": "string", "exchange": "string", "enqueued_at": "timestamp", "dead_letter_count": "bigint"}
    message = one(types, queue="q", exchange="x", enqueued_at=datetime(2026, 1, 1, tzinfo=UTC), dead_letter_count=3)
    assert (Properties(message.header).as_dict(), message.routing_key) == ({"delivery_mode": 2}, b"\x00")


@pytest.mark.parametrize(
    ("types", "values", "expected"),
    [
        ({"routing_key": "string"}, {"routing_key": "k" * 256}, "routing_key has 256 bytes, 255 are allowed"),
        ({"message_id": "string"}, {"message_id": "ä" * 128}, "message_id has 256 bytes, 255 are allowed"),
        ({"priority": "int"}, {"priority": 256}, "priority is 256, allowed is 0 to 255"),
        ({"delivery_mode": "int"}, {"delivery_mode": 0}, "delivery_mode is 0, allowed is 1 or 2"),
        ({"timestamp": "bigint"}, {"timestamp": -1}, "timestamp is 1 s before 1970"),
        ({"timestamp": "bigint"}, {"timestamp": -(10**17)}, f"timestamp is {10**17} s before 1970"),
        (
            {"expiration": "string"},
            {"expiration": "soon"},
            "expiration is 'soon', allowed are milliseconds from 0 to 315360000000",
        ),
        (
            {"expiration": "string"},
            {"expiration": "315360000001"},
            "expiration is '315360000001', allowed are milliseconds from 0 to 315360000000",
        ),
        ({"headers_json": "string"}, {"headers_json": "[1]"}, "headers_json is not a JSON object"),
        ({"headers_json": "string"}, {"headers_json": "{"}, "headers_json is not a JSON object"),
        ({"headers_json": "string"}, {"headers_json": '{"a": NaN}'}, "a header has the type double and the value nan"),
        (
            {"headers_json": "string"},
            {"headers_json": json.dumps({"a": 1 << 63})},
            f"a header has the type int64 and the value {1 << 63}",
        ),
        (
            {"headers_json": "string"},
            {"headers_json": '{"a": {"type": "int8", "value": 128}}'},
            "a header has the type int8 and the value 128",
        ),
        (
            {"headers_json": "string"},
            {"headers_json": '{"a": {"type": "colour", "value": 1}}'},
            "a header has the type colour and the value 1",
        ),
        (
            {"headers_json": "string"},
            {"headers_json": '{"a": {"type": "decimal", "value": "99999999999"}}'},
            "a header has the type decimal and the value 99999999999, which has too many digits",
        ),
        (
            {"headers_json": "string"},
            {"headers_json": '{"a": {"type": "decimal", "value": "much"}}'},
            "a header has the type decimal and the value much",
        ),
        (
            {"headers_json": "string"},
            {"headers_json": '{"a": {"type": "decimal", "value": "1E+2"}}'},
            "a header has the type decimal and the value 1E+2",
        ),
        (
            {"headers_json": "string"},
            {"headers_json": '{"a": {"type": "binary", "value": "="}}'},
            "a header has the type binary and the value =, which is not base64",
        ),
        ({"headers_json": "string"}, {"headers_json": "[" * 5000}, "headers_json is not a JSON object"),
        (
            {"headers_json": "string"},
            {"headers_json": '{"a":' + "[" * 100 + "]" * 100 + "}"},
            "headers are nested deeper than 64 levels",
        ),
    ],
)
def test_rows_that_are_no_messages(types: dict[str, str], values: dict[str, Any], expected: str) -> None:
    assert invalid(types, **values) == expected


def test_the_others_of_a_batch_are_messages() -> None:
    found = encoded(
        {"body": "string", "priority": "int"}, {"body": pa.array([*"abc"]), "priority": pa.array([1, 300, 2])}
    )
    assert [isinstance(each, Encoded) for each in found] == [True, False, True]


@pytest.mark.parametrize(
    ("types", "expected"),
    [
        ({}, "the sink needs a column body"),
        ({"body": "bigint"}, "column body is bigint, the sink takes binary or string"),
        ({"body": "string", "value": "string"}, "does not publish column value, which is for reading bodies"),
        ({"body": "string", "value_error": "string"}, "does not publish column value_error, which is for reading"),
        ({"body": "string", "corelation_id": "string"}, "does not know column corelation_id; it publishes body,"),
        ({"body": "string", "priority": "string"}, "column priority is string, the sink takes bigint or int or"),
        ({"body": "string", "headers": "map<string,string>", "headers_json": "string"}, "drop one of the columns"),
        ({"body": "string", "headers": "array<string>"}, "column headers is array<string>, the sink takes map or"),
    ],
)
def test_columns_that_are_refused(types: dict[str, str], expected: str) -> None:
    with pytest.raises(AnalyticsError, match=expected):
        row_layout(types, None)
