from __future__ import annotations

import json
from collections.abc import Callable, Generator
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from leveret.broker.core import json_values
from leveret.broker.core.json_values import (
    check_nesting,
    parse_json,
    parse_json_in_steps,
    table_from_json,
    table_to_json,
)
from leveret.protocol.field_table import FieldValue, longstr


def nested(depth: int, in_lists: bool) -> dict[str, Any]:
    """Arguments with this many levels of nested objects or lists."""
    value: Any = 1
    for _ in range(depth):
        value = [value] if in_lists else {"k": value}
    return {"k": value}


@pytest.mark.parametrize("in_lists", [True, False])
def test_128_levels_are_allowed(in_lists: bool) -> None:
    arguments = nested(128, in_lists)
    assert table_to_json(table_from_json(arguments)) == arguments
    with pytest.raises(ValueError, match="nested too deep, 128 levels are allowed"):
        table_from_json(nested(129, in_lists))


def test_json_gets_the_types_that_rabbitmq_gives_it() -> None:
    arguments = {"b": True, "i": 1, "f": 1.5, "s": "ä", "o": {"i": 2}, "a": [1, "x", None], "n": None}
    assert table_from_json(arguments) == (
        ("b", FieldValue("t", True)),
        ("i", FieldValue("l", 1)),
        ("f", FieldValue("d", 1.5)),
        ("s", longstr("ä")),
        ("o", FieldValue("F", (("i", FieldValue("l", 2)),))),
        ("a", FieldValue("A", (FieldValue("l", 1), longstr("x"), FieldValue("V", None)))),
        ("n", FieldValue("V", None)),
    )


def test_a_level_is_one_whatever_is_in_it() -> None:
    check_nesting([[], {}, {"a": [{}, 1, None, "x"] * 100}] * 100)
    check_nesting("x")


def test_a_table_is_shown_without_a_deep_stack() -> None:
    value = FieldValue("I", 1)
    for _ in range(3_000):
        value = FieldValue("A", (FieldValue("F", (("k", value),)),))
    shown = table_to_json((("k", value),))["k"]
    for _ in range(3_000):
        shown = shown[0]["k"]
    assert shown == 1


def read(octets: bytes) -> tuple[Any, int]:
    """The value, and how many steps it took."""
    steps: Generator[None, None, Any] = parse_json_in_steps(octets)
    count = 0
    while True:
        try:
            next(steps)
        except StopIteration as stopped:
            return stopped.value, count
        count += 1


@pytest.fixture(autouse=True)
def small_window(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything is long here."""
    monkeypatch.setattr(json_values, "_SHORT", 0)
    monkeypatch.setattr(json_values, "_WINDOW", 8)


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=30,
)


@given(values, st.sampled_from([None, 1]), st.booleans())
@example(1000000.0, None, True)
@example(1.2345e34, None, True)
@example(1.23456e34, None, True)
def test_reads_what_was_written(value: Any, indent: int | None, ascii_only: bool) -> None:
    octets = f" {json.dumps(value, indent=indent, ensure_ascii=ascii_only)}\n".encode("utf-8", "surrogatepass")
    assert read(octets)[0] == value


@given(st.text(alphabet='[]{},:"\\ 0123456789.eE+-truefalsnd\n', max_size=60))
def test_takes_and_refuses_what_the_other_reader_does(text: str) -> None:
    try:
        expected = parse_json(text.encode())
    except ValueError:
        with pytest.raises(ValueError):
            read(text.encode())
    else:
        assert read(text.encode())[0] == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[1,2,3,4,5,6,7,8,]",
        '{"a":1,"bbbbbbbb":2,}',
        '{"aaaaaaaaaaaa" 1}',
        "{aaaaaaaaaaaaaa:1}",
        "[1,2,3,4,5,6,7,8}",
        "[1,2,3,4,5,6,7,8",
        "[1,2,3,4,5,6,7,8] 9",
        "[1,1,1,1,1,1,NaN]",
        "[1,1,1,1,1,1e999999999]",
        "[" * 100_000,
        "[" * 100_000 + "]" * 100_000,
        '{"a":' * 100_000 + "1" + "}" * 100_000,
    ],
    ids=lambda text: text[:20],
)
def test_refuses(text: str) -> None:
    with pytest.raises(ValueError):
        read(text.encode())


def test_space_does_not_matter() -> None:
    space = b" " * 100
    assert read(b"[" + space + b"]")[0] == []
    assert read(b"{" + space + b"}" + space)[0] == {}
    assert read(space + b'{"a"' + space + b":" + space + b"[1" + space + b",2]" + space + b"}")[0] == {"a": [1, 2]}


@pytest.mark.parametrize("reader", [lambda octets: read(octets)[0], parse_json], ids=["long", "short"])
def test_halves_of_characters(reader: Callable[[bytes], Any]) -> None:
    assert reader(b'["\\ud83d\\ude00 and more"]') == ["\U0001f600 and more"]
    assert reader(b'["' + b"\\ud800" * 3 + b'", "\xff", "\\uDEAD"]') == ["\ufffd" * 3, "\ufffd", "\ufffd"]
    assert reader(b'{"\\ud800aaaaaaaa":1, "b":"\\udc00"}') == {"\ufffdaaaaaaaa": 1, "b": "\ufffd"}


def test_a_long_text_takes_many_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    value = {"queues": [{"name": f"q{number}", "arguments": {}} for number in range(5000)]}
    assert read(json.dumps(value).encode())[0] == value
    assert read(json.dumps(value).encode())[1] > 50
    assert read(b"{}") == ({}, 0)
