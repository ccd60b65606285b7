"""The formatters, on rows and on a result that is not a listing; values as Erlang terms; the progress bar."""

from __future__ import annotations

import csv
import io
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.broker.leveretctl.command import Outcome, ResultRows
from leveret.broker.leveretctl.printing import (
    FORMATTERS,
    Arguments,
    Identifier,
    ProgressLine,
    Style,
    channel_identifier,
    connection_identifier,
    connection_name,
    json_triples,
    queue_identifier,
    render_bar,
    table_entries,
    term,
    type_name,
    typed,
    untyped,
    width,
)

COLUMNS = ("name", "count", "arguments", "tags", "nodes")
ROW = {
    "name": "a",
    "count": 1.0,
    "arguments": Arguments({"x-max-length": 7}),
    "tags": ["x", "y"],
    "nodes": {"n@h": "running"},
}


def shown(name: str, listing: ResultRows, look: Style = Style()) -> str:  # noqa: B008
    return "".join(f"{line}\n" for line in FORMATTERS[name].lines(listing, look))


def listing(*rows: dict[str, Any], **more: Any) -> ResultRows:
    return ResultRows(COLUMNS, rows, **more)


def test_table() -> None:
    assert shown("table", listing(ROW, {"name": None, "count": True})) == (
        'name\tcount\targuments\ttags\tnodes\na\t1.0\t[{"x-max-length",7}]\t[x, y]\t[{n@h, running}]\n\ttrue\t\t\t\n'
    )


def test_pretty_table() -> None:
    assert shown("pretty_table", listing(ROW, {"name": "two\nlines"})) == (
        "┌───────┬───────┬─────────────────────────────┬──────┬───────────────┐\n"
        "│ name  │ count │ arguments                   │ tags │ nodes         │\n"
        "├───────┼───────┼─────────────────────────────┼──────┼───────────────┤\n"
        '│ a     │ 1.0   │ {<<"x-max-length">>,long,7} │ x, y │ {n@h,running} │\n'
        "├───────┼───────┼─────────────────────────────┼──────┼───────────────┤\n"
        "│ two   │       │                             │      │               │\n"
        "│ lines │       │                             │      │               │\n"
        "└───────┴───────┴─────────────────────────────┴──────┴───────────────┘\n"
    )


def test_pretty_table_of_wide_letters() -> None:
    lines = shown("pretty_table", ResultRows(("n",), [{"n": "日本"}, {"n": "e\u0301"}, {"n": "жж"}])).splitlines()
    assert lines[3] == "│ 日本 │"
    assert {width(line) for line in lines} == {8}


def test_bold_headers_keep_the_widths() -> None:
    plain = shown("pretty_table", ResultRows(("name",), [{"name": "a"}]))
    bold = shown("pretty_table", ResultRows(("name",), [{"name": "a"}]), Style(terminal=True))
    assert bold.replace("\x1b[1m", "").replace("\x1b[0m", "") == plain
    assert "│ \x1b[1mname\x1b[0m │" in bold


def test_json() -> None:
    rows: list[dict[str, Any]] = [{"a": "ж", "b": None}, {"a": (0, 9, 1), "b": Arguments(n=1)}]
    assert shown("json", ResultRows(("a", "b"), rows)) == (
        '[\n{"a":"ж","b":""}\n,{"a":[0,9,1],"b":[["n","long",1]]}\n]\n'
    )


def test_json_of_what_is_no_list() -> None:
    assert shown("json", ResultRows(("a",), [{"a": 1}], json={"result": "ok"})) == '{"result":"ok"}\n'


def test_erlang() -> None:
    assert shown("erlang", ResultRows(("a",), [])) == "[]\n"
    rows = [{"name": "a", "messages": 0}, {"name": "b", "messages": 1}]
    assert shown("erlang", ResultRows(("name", "messages"), rows)) == (
        '[[{name,<<"a">>},{messages,0}],\n [{name,<<"b">>},{messages,1}]]\n'
    )
    wide = [{"name": "a" * 60, "apply-to": Identifier("<x.1>")}]
    assert shown("erlang", ResultRows(("name", "apply-to"), wide)) == (
        f"[[{{name,<<\"{'a' * 60}\">>}},\n  {{'apply-to',<x.1>}}]]\n"
    )


@pytest.mark.parametrize("name", ["table", "pretty_table"])
def test_a_footer_is_for_people(name: str) -> None:
    assert shown(name, ResultRows(("a",), [], streamed=True, footer="That is all.")) == "That is all.\n"
    assert "That is all." not in shown("csv", ResultRows(("a",), [], streamed=True, footer="That is all."))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("table", "done"),
        ("csv", '"done"'),
        ("json", '{"result":"ok"}'),
        ("erlang", '<<"done">>'),
        ("pretty_table", "┌────────┐\n│ Output │\n├────────┤\n│ done   │\n└────────┘"),
    ],
)
def test_outcome(name: str, expected: str) -> None:
    found = FORMATTERS[name].lines(Outcome("done", {"result": "ok"}), Style())
    assert "\n".join(found) == expected
    assert list(FORMATTERS[name].lines(Outcome(), Style())) == []


TEXTS = st.text(st.characters(exclude_categories=["Cs"]))
TABLES = st.lists(st.fixed_dictionaries({"a": TEXTS | st.integers() | st.booleans(), "b": TEXTS}), min_size=1)


@given(TABLES)
def test_json_can_be_read_back(rows: list[dict[str, Any]]) -> None:
    assert json.loads(shown("json", ResultRows(("a", "b"), rows))) == rows


@given(TABLES)
def test_csv_can_be_read_back(rows: list[dict[str, Any]]) -> None:
    text = shown("csv", ResultRows(("a", "b"), rows))
    read = list(csv.DictReader(io.StringIO(text, newline=""), strict=True))
    assert [row["b"] for row in read] == [row["b"] for row in rows]


@given(TABLES)
def test_boxes_are_straight(rows: list[dict[str, Any]]) -> None:
    lines = shown("pretty_table", ResultRows(("a", "b"), rows)).removesuffix("\n").split("\n")
    assert len({width(line) for line in lines}) == 1
    assert all(line[0] in "┌│├└" and line[-1] in "┐│┤┘" for line in lines)


@pytest.mark.parametrize("name", ["table", "pretty_table"])
def test_names_cannot_move_the_cursor(name: str) -> None:
    text = shown(name, listing({**ROW, "name": "a\x1b[2Jb\u202ec"}))
    assert r"a\x1b[2Jb\u202ec" in text
    assert text.replace("\n", "").replace("\t", "").isprintable()


def test_names_cannot_forge_rows() -> None:
    assert len(shown("table", listing({**ROW, "name": "a\nb\tc"})).splitlines()) == 2


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


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def test_on_a_terminal() -> None:
    stream = Terminal()
    with ProgressLine("Moving", 10, stream=stream) as progress:
        assert progress.visible
    assert stream.getvalue() == f"\r\x1b[K{render_bar('Moving', 0, 10)}\r\x1b[K"


def test_elsewhere_and_when_silent() -> None:
    for stream, silent in ((io.StringIO(), False), (Terminal(), True)):
        with ProgressLine("Moving", 10, stream=stream, silent=silent) as progress:
            progress.update(5)
            assert not progress.visible
        assert stream.getvalue() == ""


def test_it_is_removed_also_after_a_failure() -> None:
    stream = Terminal()
    with pytest.raises(KeyError), ProgressLine("Moving", 10, stream=stream):
        raise KeyError
    assert stream.getvalue().endswith("\r\x1b[K")


def test_it_paints_seldom() -> None:
    stream = Terminal()
    with ProgressLine("Moving", 10_000, stream=stream) as progress:
        for done in range(10_000):
            progress.update(done)
    assert stream.getvalue().count("Moving") < 100


@pytest.mark.parametrize(
    ("done", "total", "expected"),
    [
        (0, 4, f"x [{'.' * 30}]   0% 0/4"),
        (1, 4, f"x [{'#' * 7}{'.' * 23}]  25% 1/4"),
        (4, 4, f"x [{'#' * 30}] 100% 4/4"),
        (6, 4, f"x [{'#' * 30}] 100% 6/6"),
        (0, 0, f"x [{'#' * 30}] 100% 0/0"),
    ],
)
def test_bar(done: int, total: int, expected: str) -> None:
    assert render_bar("x", done, total) == expected
