from __future__ import annotations

import json
import math
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any
from unittest import mock

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from leveret.analytics.bodies import json_bodies
from leveret.analytics.bodies.json_bodies import JsonBodies, load_json
from leveret.analytics.bodies.json_values import infer_type
from leveret.analytics.bodies.payloads import BodyError, read_rows
from leveret.analytics.bodies.value_types import parse_type, type_ddl
from tests.unit.analytics.bodies.payloads import payloads_of, read

TEXTS = st.text(st.characters(codec="utf-8"), max_size=6)
FIELDS: dict[str, st.SearchStrategy[Any]] = {
    "id": st.integers(-(1 << 63), (1 << 63) - 1),
    "price": st.floats(allow_nan=False),
    "name": TEXTS,
    "paid": st.booleans(),
    "tags": st.lists(st.none() | TEXTS, max_size=3),
    "at": st.fixed_dictionaries({}, optional={"x": st.none() | st.integers(-5, 5), "y": TEXTS}),
}
KIND = parse_type(
    "id bigint, price double, name string, paid boolean, tags array<string>, at struct<x: bigint, y: string>"
)
#: All that JSON can say.
ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=10,
)
OBJECTS = st.fixed_dictionaries({}, optional={name: st.none() | each for name, each in FIELDS.items()})


def complete(value: dict[str, Any]) -> dict[str, Any]:
    """An object with null for each field that it lacks."""
    found = {each.name: value.get(each.name) for each in KIND}
    at = found["at"]
    return found | {"at": None if at is None else {"x": at.get("x"), "y": at.get("y")}}


@given(st.lists(OBJECTS, max_size=5), st.booleans())
def test_objects_come_back(values: list[dict[str, Any]], in_bulk: bool) -> None:
    bodies = [json.dumps(value).encode() for value in values]
    wanted = [(complete(value), None) for value in values]
    if not in_bulk:
        # One that is not as the others lets all be read one by one.
        bodies.append(b"[")
    assert read(JsonBodies(KIND), *bodies)[: len(values)] == wanted


@given(st.lists(ANY, max_size=5), ANY)
def test_what_a_type_was_inferred_from_fits_into_it(values: list[Any], other: Any) -> None:
    kind = infer_type(map(load_json, map(_dump, values)))
    assert parse_type(type_ddl(kind)) == kind
    found = read(JsonBodies(kind), *map(_dump, [*values, other]))
    assert len(found) == len(values) + 1
    tops = {type(each) for each in values if each is not None}
    if len(tops) == 1 or tops.isdisjoint((dict, list)):
        assert [reason for _, reason in found[:-1]] == [None] * len(values)


def _dump(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode()


@given(st.lists(st.binary(max_size=12) | ANY.map(_dump) | OBJECTS.map(_dump), min_size=1, max_size=6))
@example([b'{"id":1}{"id":2}', b""])
@example([b'{"name":"}', b'{"id":1}'])
@example([b'{"at":{}', b'{"id":1}}'])
@example([b'{"price":1.7976931348623157e309}'])
@example([b'{"name":"\xff"}'])
@example([b'{"name":"\\ud800"}'])
@example([b'{"id":1,"id":2}'])
@example([b'\xef\xbb\xbf{"id":1}'])
def test_in_bulk_is_as_one_by_one(bodies: list[bytes]) -> None:
    reader = JsonBodies(KIND)
    payloads = payloads_of(*bodies)
    single = read_rows(reader._value, KIND, payloads, 0, payloads.octets)
    found = read(reader, *bodies)
    wanted = [(value, payloads.reasons.get(row)) for row, value in enumerate(single.to_pylist())]
    assert repr(found) == repr(wanted)


#: Types that Arrow reads, and texts of JSON that are values of these, nearly, or not at all.
TYPED = parse_type(
    "d decimal(5,2), f float, s smallint, t tinyint, at timestamp, n timestamp_ntz, day date, l array<decimal(3,1)>"
)
NUMBERS = st.sampled_from(
    [
        "0", "1", "-1", "1.5", "12.345", "12.34", "0.1", "1e2", "1e39", "1E-3", "-0.0", "127", "128", "32768",
        "999.99", "999.995", "99999", "3.4028235677973366e38", "NaN", "Infinity", "null",
    ]
)  # fmt: skip
OFTEN = [
    "2026-01-31", "2026-01-31T12:00:00Z", "2026-01-31 12:00:00.123456+01:00", "2026-01-31T12:00", "2026-01-31T12",
    "2026", "20260131", "2026-01-31T12:00:00.1234567", "0001-01-01T00:00:00+01:00", "0000-01-01",
    "9999-12-31T23:59:59-01:00", "9999-12-31", "2026-02-30", "2026-01-31T24:00:00", "2026-01-31T12:00:60Z",
    "2026-W05-6", " 2026-01-31", "2026-01-31 ", "1.5", "+1", "1_0", " 1", ".5", "1.", "1e2", "-0.004", "x", "", "NaN",
    "-2026-01-31", "12026-01-31", "2026-01-31T12:00:00+0130", "2026-01-31T12:00:00+01", "2026-01-31T12:00:00 Z",
    "1969-12-31", "1969-12",
]  # fmt: skip
TYPED_BODIES = st.dictionaries(
    st.sampled_from([each.name for each in TYPED]),
    st.one_of(NUMBERS, st.sampled_from(OFTEN).map(json.dumps), NUMBERS.map("[{}]".format)),
).map(lambda fields: ("{" + ",".join(f'"{name}":{text}' for name, text in fields.items()) + "}").encode())


@given(st.lists(TYPED_BODIES | st.sampled_from([b"", b"{}", b"[]", b'{"d":1}{}']), min_size=1, max_size=12))
def test_decimals_and_times_in_bulk_are_as_one_by_one(bodies: list[bytes]) -> None:
    reader = JsonBodies(TYPED)
    payloads = payloads_of(*bodies)
    single = read_rows(reader._value, TYPED, payloads, 0, payloads.octets)
    wanted = [(value, payloads.reasons.get(row)) for row, value in enumerate(single.to_pylist())]
    with mock.patch.multiple(json_bodies, _FEW=1, _PARTS=2):
        assert repr(read(reader, *bodies)) == repr(wanted)


def test_only_those_that_are_not_as_expected_are_read_one_by_one() -> None:
    bodies = [b'{"d":%d.25,"at":"2026-01-31T12:00:00Z"}' % (number % 100) for number in range(5000)]
    for number in range(0, 5000, 500):
        bodies[number + 7] = b"not JSON"
        bodies[number + 300] = b'{"d":"x"}'
    reader = JsonBodies(TYPED)
    with mock.patch.object(json_bodies, "load_json", wraps=load_json) as loaded:
        found = read(reader, *bodies)
    assert loaded.call_count < 200
    reasons = {row: reason for row, (_, reason) in enumerate(found) if reason is not None}
    assert list(reasons) == [row for row in range(5000) if row % 500 in (7, 300)]
    assert reasons[300] == 'd: "x" is not a decimal(5, 2)'
    assert found[4999] == ({**dict.fromkeys(found[0][0]), "d": Decimal("99.25"), "at": found[0][0]["at"]}, None)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"", "the body is empty"),
        (b" ", "the body is not JSON: Expecting value: line 1 column 2 (char 1)"),
        (b"{", "the body is not JSON: Expecting property name enclosed in double quotes: line 1 column 2 (char 1)"),
        (b'{"id":1} x', "the body is not JSON: Extra data: line 1 column 10 (char 9)"),
        (b'{"id": "\xe9"}', "the body is not UTF-8 at byte 8"),
        (b"42", "42 is not a JSON object"),
        (b'"x"', '"x" is not a JSON object'),
        (b"[" * 100_000, "the body is nested too deeply"),
        (b'{"id": 1e9999999999999999999}', "a number in the body has an exponent of too many digits"),
        (b'{"id": 1e-9999999999999999999}', "a number in the body has an exponent of too many digits"),
        (b"\x80\x04\x95", "the body is not UTF-8 at byte 0"),
    ],
)
def test_bodies_that_have_no_value(body: bytes, reason: str) -> None:
    assert read(JsonBodies(KIND), b'{"id":1}', body) == [(complete({"id": 1}), None), (None, reason)]


@pytest.mark.parametrize(
    ("kind", "value", "wanted", "reason"),
    [
        ("bigint", "9223372036854775807", 9223372036854775807, None),
        ("bigint", "9223372036854775808", None, "v: 9223372036854775808 is not a bigint"),
        ("bigint", "1e3", 1000, None),
        ("bigint", "1e999999999", None, "v: 1E+999999999 is not a bigint"),
        ("bigint", "1.5", None, "v: 1.5 is not a bigint"),
        ("bigint", "true", None, "v: true is not a bigint"),
        ("bigint", "NaN", None, "v: NaN is not a bigint"),
        ("bigint", "[1]", None, "v: [1] is not a bigint"),
        ("tinyint", "128", None, "v: 128 is not a tinyint"),
        ("tinyint", "-128", -128, None),
        ("double", "1e400", None, "v: 1E+400 is not a double"),
        ("double", "9" * 400, None, f"v: {'9' * 40}… is not a double"),
        ("double", "Infinity", math.inf, None),
        ("float", "0.5", 0.5, None),
        ("float", "-Infinity", -math.inf, None),
        ("float", "1e39", None, "v: 1E+39 is not a float"),
        ("string", "1.10", "1.10", None),
        ("string", "9" * 5000, "9" * 5000, None),
        ("string", '{"a": [1.50, null, "é", false]}', '{"a":[1.50,null,"é",false]}', None),
        ("string", '"\\ud83d"', "\ufffd", None),
        ("boolean", "0", None, "v: 0 is not a boolean"),
        ("decimal(5,2)", "123.456", Decimal("123.46"), None),
        ("decimal(5,2)", '"1.1"', Decimal("1.10"), None),
        ("decimal(5,2)", "1234.5", None, "v: 1234.5 is not a decimal(5, 2)"),
        ("decimal(5,2)", "NaN", None, "v: NaN is not a decimal(5, 2)"),
        ("binary", '"AAE="', b"\x00\x01", None),
        ("binary", "7", None, "v: 7 is not a text in base64"),
        ("date", '"2026-01-31"', date(2026, 1, 31), None),
        ("date", '"soon"', None, 'v: "soon" is not a date'),
        ("timestamp", '"2026-01-31T12:00:00+02:00"', datetime(2026, 1, 31, 10, tzinfo=UTC), None),
        ("timestamp", "0.5", datetime(1970, 1, 1, 0, 0, 0, 500000, tzinfo=UTC), None),
        ("timestamp", "1e17", None, "v: 1E+17 is not a timestamp"),
        ("timestamp_ntz", '"2026-01-31"', datetime(2026, 1, 31), None),
        ("array<bigint>", '[1, "x", null, 2]', [1, None, None, 2], 'v[1]: "x" is not a bigint'),
        ("array<bigint>", "{}", None, "v: {} is not a JSON array"),
        ("map<string, bigint>", '{"a": 1, "b": []}', [("a", 1), ("b", None)], "v.b: [] is not a bigint"),
        ("map<string, bigint>", "[]", None, "v: [] is not a JSON object"),
        ("map<date, string>", '{"x": "y"}', [], 'v.x: "x" is not a date'),
        ("struct<a: bigint, b: string>", '[1, "x"]', None, 'v: [1,"x"] is not a JSON object'),
    ],
)
def test_values(kind: str, value: str, wanted: Any, reason: str | None) -> None:
    body = f'{{"v": {value}}}'.encode()
    assert read(JsonBodies(parse_type(f"v {kind}")), body) == [({"v": wanted}, reason)]


def test_what_does_not_fit_is_null_and_the_rest_is_there() -> None:
    body = b'{"id": "x", "price": "y", "tags": [1, {"b":2}], "at": {"x": 0.5, "y": null}, "more": 1}'
    value = {
        "id": None,
        "price": None,
        "name": None,
        "paid": None,
        "tags": ["1", '{"b":2}'],
        "at": {"x": None, "y": None},
    }
    assert read(JsonBodies(KIND), body) == [(value, 'id: "x" is not a bigint (and 2 more)')]


def test_an_array_is_a_struct_if_it_has_as_many_places() -> None:
    reader = JsonBodies(parse_type("args array<bigint>, kwargs map<string, string>"))
    assert read(reader, b'[[1], {"a": 2}]', b"[[1]]", b'{"args": [2]}') == [
        ({"args": [1], "kwargs": [("a", "2")]}, None),
        (None, "[[1]] is not a JSON object"),
        ({"args": [2], "kwargs": None}, None),
    ]
    assert read(JsonBodies(parse_type("id bigint")), b"[1]") == [(None, "[1] is not a JSON object")]


def test_character_encodings() -> None:
    assert load_json('{"a":"é"}'.encode("latin-1"), "latin-1") == {"a": "é"}
    assert load_json('{"a":"é"}'.encode("utf-16"), "utf-16") == {"a": "é"}
    with pytest.raises(BodyError, match="the body is not ascii at byte 6"):
        load_json('{"a":"é"}'.encode(), "ascii")


def test_a_thousand_bodies_and_one_that_is_damaged() -> None:
    bodies = [b'{"id":%d}' % number for number in range(2500)]
    bodies[1500] = b'{"id":'
    found = read(JsonBodies(parse_type("id bigint")), *bodies)
    assert [row for row, (_, reason) in enumerate(found) if reason is not None] == [1500]
    assert [value and value["id"] for value, _ in found] == [None if n == 1500 else n for n in range(2500)]


@pytest.mark.parametrize("depth", range(100, 1100, 100))
@pytest.mark.parametrize("more", ["", "\\u0041"])
def test_every_depth_is_a_value_or_a_reason(depth: int, more: str) -> None:
    body = f'{{"v": {"[" * depth}1{"]" * depth}, "w": "{more}"}}'.encode()
    ((value, reason),) = read(JsonBodies(parse_type("v string, w string")), body)
    assert (value is None) == (reason == "the body is nested too deeply")
    assert value is None or value["v"] == "[" * depth + "1" + "]" * depth


def test_a_top_that_is_no_struct() -> None:
    assert read(JsonBodies(pa.list_(pa.int64())), b"[1,2]", b"{}") == [([1, 2], None), (None, "{} is not a JSON array")]
    assert read(JsonBodies(pa.string()), b'"x"', b"1.0", b"null") == [("x", None), ("1.0", None), (None, None)]
