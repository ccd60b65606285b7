"""Values in the notation of Erlang."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.broker.management.cli.terms import (
    Arguments,
    Identifier,
    atom,
    binary,
    compact_json,
    json_triples,
    number,
    quoted,
    table_entries,
    term,
    type_name,
    typed,
    untyped,
)

TABLE = {"n": 7, "s": "x", "b": True, "f": 1.5, "v": None, "l": [1, "a"], "t": {"k": 2}}


def test_untyped() -> None:
    assert untyped(TABLE) == '[{"n",7},{"s","x"},{"b",true},{"f",1.5},{"v",undefined},{"l",[1,"a"]},{"t",[{"k",2}]}]'
    assert untyped({}) == "[]"
    assert untyped({"e": ""}) == '[{"e",[]}]'


def test_typed() -> None:
    assert "".join(table_entries(TABLE)) == (
        '{<<"n">>,long,7}{<<"s">>,longstr,<<"x">>}{<<"b">>,bool,true}{<<"f">>,double,1.5}{<<"v">>,void,undefined}'
        '{<<"l">>,array,[{long,1},{longstr,<<"a">>}]}{<<"t">>,table,[{<<"k">>,long,2}]}'
    )


def test_triples() -> None:
    assert json_triples(TABLE) == [
        ["n", "long", 7],
        ["s", "longstr", "x"],
        ["b", "bool", True],
        ["f", "double", 1.5],
        ["v", "void", "undefined"],
        ["l", "array", [["long", 1], ["longstr", "a"]]],
        ["t", "table", [["k", "long", 2]]],
    ]


@pytest.mark.parametrize(
    ("value", "expected"),
    [(0, "0"), (-5, "-5"), (1.0, "1.0"), (0.1, "0.1"), (1e20, "1.0e20"), (1.5e300, "1.5e300"), (1e-7, "1.0e-7")],
)
def test_number(value: float, expected: str) -> None:
    assert number(value) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [("a", '"a"'), ('a"b', '"a\\"b"'), ("a\\b", '"a\\\\b"'), ("a\nb\t", '"a\\nb\\t"'), ("ж", '"ж"'), ("\x1b", '"\\e"')],
)
def test_quoted(text: str, expected: str) -> None:
    assert quoted(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"), [("abc", "abc"), ("a@b_1", "a@b_1"), ("Abc", "'Abc'"), ("a-b", "'a-b'"), ("", "''")]
)
def test_atom(text: str, expected: str) -> None:
    assert atom(text) == expected


def test_binary() -> None:
    assert (binary("é"), binary("ж"), binary("")) == ('<<"é"/utf8>>', '<<"ж"/utf8>>', "<<>>")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, "''"),
        ("x", '<<"x">>'),
        (Identifier("<a.1>"), "<a.1>"),
        (True, "true"),
        (5, "5"),
        ((0, 9, 1), "{0,9,1}"),
        (["a"], '[<<"a">>]'),
        ({"n@h": "x"}, '[{n@h,<<"x">>}]'),
        (Arguments(n=1), '[{<<"n">>,long,1}]'),
    ],
)
def test_term(value: Any, expected: str) -> None:
    assert term(value) == expected


def test_compact_json() -> None:
    assert compact_json({"b": [1, {"z": None, "a": "ж"}], "a": True}) == '{"a":true,"b":[1,{"a":"ж","z":null}]}'


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(VALUES)
def test_anything_that_json_holds_can_be_shown(value: Any) -> None:
    for text in (untyped(value), typed(value), term(value)):
        assert "\n" not in text
        assert text
    assert type_name(value) in ("void", "bool", "long", "double", "table", "array", "longstr")
    assert json.loads(json.dumps(json_triples(value))) == json_triples(value)


@given(st.text())
def test_quotes_cannot_be_left(text: str) -> None:
    inner = quoted(text)[1:-1]
    assert '"' not in inner.replace("\\\\", "").replace('\\"', "")
