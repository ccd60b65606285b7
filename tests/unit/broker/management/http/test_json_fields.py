from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from aiohttp import web

from leveret.broker.management.http.json_fields import (
    check_length,
    read_arguments,
    read_flag,
    read_integer,
    read_text,
    require_keys,
)
from leveret.protocol.field_table import FieldValue, longstr


def reason(call: Callable[[], object]) -> Any:
    with pytest.raises(web.HTTPBadRequest) as caught:
        call()
    assert caught.value.text is not None
    document = json.loads(caught.value.text)
    assert document["error"] == "bad_request"
    return document["reason"]


def test_missing_keys() -> None:
    require_keys({"a": None, "b": 1}, "a", "b")
    assert reason(lambda: require_keys({}, "a", "b")) == "[{key_missing,a},{key_missing,b}]"


def test_many_missing_keys_take_several_lines() -> None:
    keys = ("routing_key", "properties", "payload", "payload_encoding")
    text = reason(lambda: require_keys({}, *keys))
    assert text.split("\n") == [
        "[{key_missing,routing_key},",
        " {key_missing,properties},",
        " {key_missing,payload},",
        " {key_missing,payload_encoding}]",
    ]


@pytest.mark.parametrize(
    ("document", "expected"),
    [({}, False), ({"f": True}, True), ({"f": False}, False), ({"f": "true"}, True), ({"f": "false"}, False)],
)
def test_flags(document: dict[str, Any], expected: bool) -> None:
    assert read_flag(document, "f") is expected


@pytest.mark.parametrize("value", [None, 1, 0, "yes", "True", [], {}])
def test_invalid_flags(value: object) -> None:
    assert reason(lambda: read_flag({"f": value}, "f")) == ["not_boolean", value]


@pytest.mark.parametrize(("value", "expected"), [(5, 5), ("5", 5), ("-1", -1), (1.9, 1)])
def test_integers(value: object, expected: int) -> None:
    assert read_integer(value) == expected


@pytest.mark.parametrize("value", [None, True, "x", "", "1.5", []])
def test_invalid_integers(value: object) -> None:
    assert reason(lambda: read_integer(value)) == ["not_integer", value]


def test_texts() -> None:
    assert read_text({"k": "v"}, "k") == "v"
    assert reason(lambda: read_text({"k": 5}, "k")) == ["not_string", "k"]
    assert reason(lambda: read_text({}, "k")) == ["not_string", "k"]


@pytest.mark.parametrize("document", [{}, {"arguments": {}}, {"arguments": []}, {"arguments": None}])
def test_no_arguments(document: dict[str, Any]) -> None:
    assert read_arguments(document) == ()


def test_arguments() -> None:
    assert read_arguments({"arguments": {"a": 1, "b": ["x"]}}) == (
        ("a", FieldValue("l", 1)),
        ("b", FieldValue("A", (longstr("x"),))),
    )


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ("x", "arguments must be an object"),
        ([1], "arguments must be an object"),
        ({"a": None}, "null_not_allowed"),
        ({"a": [{"b": None}]}, "null_not_allowed"),
        ({"a": 1 << 63}, "the integer 9223372036854775808 is out of range"),
        ({"a": [-(1 << 63) - 1]}, "the integer -9223372036854775809 is out of range"),
        ({"k" * 256: 1}, f"the key '{'k' * 32}…' is too long"),
    ],
)
def test_invalid_arguments(arguments: object, expected: str) -> None:
    assert reason(lambda: read_arguments({"arguments": arguments})) == expected


def test_names_have_at_most_255_bytes() -> None:
    assert check_length("ä" * 127) == "ä" * 127
    assert reason(lambda: check_length("ä" * 128, "queue")) == "queue should be less than 255 bytes, actually was 256\n"
