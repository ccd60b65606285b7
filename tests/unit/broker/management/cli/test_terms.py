"""Values in the notation of Erlang, and identifiers."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.broker.management.cli.terms import (
    Arguments,
    Identifier,
    channel_identifier,
    compact_json,
    connection_identifier,
    connection_name,
    json_triples,
    queue_identifier,
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


@pytest.mark.parametrize("name", ["127.0.0.1:39330 -> 127.0.0.1:5672", "[::1]:39330 -> [::1]:5672"])
def test_connection(name: str) -> None:
    identifier = connection_identifier(name)
    assert " " not in identifier
    assert connection_name(identifier) == name
    assert connection_name(name) == name
    assert channel_identifier(f"{name} (12)") == f"{identifier[:-1]}.12>"


def test_what_is_none() -> None:
    assert connection_name("nope") is None
    assert connection_name("") is None
    # One of RabbitMQ's is one of a connection that is not there.
    assert connection_name("<peer@localhost.1.2.0>") == "peer@localhost.1.2.0"


def test_queue() -> None:
    identifier = queue_identifier("n@h", "/", "q w\t")
    assert identifier.startswith("<n@h.")
    assert identifier == queue_identifier("n@h", "/", "q w\t")
    assert identifier != queue_identifier("n@h", "v", "q w\t")
    assert not set(identifier) & set(" \t\n")
