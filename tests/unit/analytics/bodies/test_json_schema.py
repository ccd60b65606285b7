from __future__ import annotations

import json
from typing import Any

import pytest

from leveret.analytics.bodies.json_schema import type_of_schema
from leveret.analytics.errors import OptionError


def ddl(schema: Any) -> str:
    return type_of_schema(json.dumps(schema)).ddl


@pytest.mark.parametrize(
    ("schema", "kind"),
    [
        ({"type": "integer"}, "bigint"),
        ({"type": "number"}, "double"),
        ({"type": "string"}, "string"),
        ({"type": "string", "format": "date-time"}, "timestamp"),
        ({"type": "string", "format": "date"}, "date"),
        ({"type": "string", "format": "email"}, "string"),
        ({"type": ["string", "null"], "format": "date"}, "date"),
        ({"type": ["integer", "number"]}, "double"),
        ({"type": ["integer", "string"]}, "string"),
        ({"enum": [1, 2, None]}, "bigint"),
        ({"const": "x"}, "string"),
        ({"enum": [{"a": 1}]}, "string"),
        ({}, "string"),
        ({"type": "null"}, "string"),
        ({"type": "object"}, "string"),
        ({"type": "object", "additionalProperties": {"type": "integer"}}, "map<string, bigint>"),
        ({"type": "array"}, "array<string>"),
        ({"type": "array", "items": [{"type": "integer"}]}, "array<string>"),
        ({"type": "array", "items": {"type": "boolean"}}, "array<boolean>"),
        ({"properties": {"a b": {"type": "integer"}}}, "struct<`a b`: bigint>"),
        ({"anyOf": [{"type": "null"}, {"type": "integer"}]}, "bigint"),
        ({"oneOf": [{"type": "string"}, {"type": "integer"}]}, "string"),
        ({"oneOf": [{"type": "null"}]}, "string"),
        (
            {"allOf": [{"properties": {"a": {"type": "integer"}}}, {"properties": {"b": {"type": "string"}}}]},
            "struct<`a`: bigint, `b`: string>",
        ),
        (
            {"type": "object", "properties": {"b": {}}, "allOf": [{"properties": {"a": {"type": "integer"}}}]},
            "struct<`a`: bigint, `b`: string>",
        ),
        (
            {
                "$defs": {"a/b": {"properties": {"n": {"type": "number"}}}},
                "type": "object",
                "properties": {
                    "x": {"$ref": "#/$defs/a~1b"},
                    "y": {"type": "array", "items": {"$ref": "#/$defs/a~1b"}},
                },
            },
            "struct<`x`: struct<`n`: double>, `y`: array<struct<`n`: double>>>",
        ),
    ],
)
def test_types(schema: Any, kind: str) -> None:
    assert ddl(schema) == kind


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        ([], "is no object"),
        ({"type": "integr"}, 'the schema has the type "integr"'),
        ({"type": 1}, "the schema has the type 1"),
        ({"properties": []}, "'properties' of the schema is no object"),
        ({"properties": {"a": 1}}, "'a' of the schema is no object"),
        ({"properties": {"a": {"$ref": "#/x"}}}, "has no #/x, to which 'a' of the schema refers"),
        ({"$ref": "other.json"}, "refers to another schema at the schema (other.json)"),
        ({"$ref": "#"}, "refers to itself"),
        ({"$defs": {"n": {"properties": {"next": {"$ref": "#/$defs/n"}}}}, "$ref": "#/$defs/n"}, "refers to itself"),
        ({"anyOf": []}, "'anyOf' of the schema is no list"),
    ],
)
def test_what_is_wrong_is_told(schema: Any, reason: str) -> None:
    with pytest.raises(OptionError) as refused:
        ddl(schema)
    assert reason in str(refused.value)


def test_deep_schemas_are_refused() -> None:
    text = '{"items":' * 300 + "{}" + "}" * 300
    with pytest.raises(OptionError, match="nested too deeply"):
        type_of_schema(text.replace('"items"', '"type":"array","items"'))
    with pytest.raises(OptionError, match="not a JSON schema"):
        type_of_schema("{" * 100_000)
