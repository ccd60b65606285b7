"""The formatters, on rows and on a result that is not a listing."""

from __future__ import annotations

import csv
import io
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.broker.management.cli.command import Outcome, ResultRows
from leveret.broker.management.cli.formatters import DEFAULT, FORMATTERS, Style, width
from leveret.broker.management.cli.terms import Arguments, Identifier

COLUMNS = ("name", "count", "arguments", "tags", "nodes")
ROW = {
    "name": "a",
    "count": 1.0,
    "arguments": Arguments({"x-max-length": 7}),
    "tags": ["x", "y"],
    "nodes": {"n@h": "running"},
}


def shown(name: str, listing: ResultRows, look: Style = Style()) -> str:  # noqa: B008
    return "".join(f"{line}\n" for line in FORMATTERS[name].rows(listing, look))


def listing(*rows: dict[str, Any], **more: Any) -> ResultRows:
    return ResultRows(COLUMNS, rows, **more)


def test_table() -> None:
    assert shown("table", listing(ROW, {"name": None, "count": True})) == (
        'name\tcount\targuments\ttags\tnodes\na\t1.0\t[{"x-max-length",7}]\t[x, y]\t[{n@h, running}]\n\ttrue\t\t\t\n'
    )


def test_table_without_headers() -> None:
    assert shown("table", ResultRows(("a",), [{"a": 1}]), Style(headers=False)) == "1\n"
    assert shown("table", ResultRows(("a",), [{"a": 1}], headed=False)) == "1\n"


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


def test_csv() -> None:
    assert shown("csv", ResultRows(("a", "b"), [{"a": 'x"y', "b": None}])) == '"a","b"\n"x""y",""\n'


def test_json() -> None:
    rows: list[dict[str, Any]] = [{"a": "ж", "b": None}, {"a": (0, 9, 1), "b": Arguments(n=1)}]
    assert shown("json", ResultRows(("a", "b"), rows)) == (
        '[\n{"a":"ж","b":""}\n,{"a":[0,9,1],"b":[["n","long",1]]}\n]\n'
    )


def test_json_of_what_is_no_list() -> None:
    assert shown("json", ResultRows(("a",), [{"a": 1}], json={"result": "ok"})) == '{"result":"ok"}\n'


def test_erlang() -> None:
    rows = [{"name": "a", "messages": 0}, {"name": "b", "messages": 1}]
    assert shown("erlang", ResultRows(("name", "messages"), rows)) == (
        '[[{name,<<"a">>},{messages,0}],\n [{name,<<"b">>},{messages,1}]]\n'
    )
    wide = [{"name": "a" * 60, "apply-to": Identifier("<x.1>")}]
    assert shown("erlang", ResultRows(("name", "apply-to"), wide)) == (
        f"[[{{name,<<\"{'a' * 60}\">>}},\n  {{'apply-to',<x.1>}}]]\n"
    )


@pytest.mark.parametrize(
    ("name", "streamed", "whole"),
    [
        ("table", "", "\n"),
        ("pretty_table", "", "┌────────┐\n│ Output │\n├────────┤\n│ []     │\n└────────┘\n"),
        ("json", "[\n]\n", "[]\n"),
        ("csv", "", ""),
        ("erlang", "[]\n", "[]\n"),
    ],
)
def test_nothing(name: str, streamed: str, whole: str) -> None:
    assert shown(name, ResultRows(("a",), [], streamed=True)) == streamed
    assert shown(name, ResultRows(("a",), [])) == whole


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
    found = FORMATTERS[name].outcome(Outcome("done", {"result": "ok"}), Style())
    assert "\n".join(found) == expected
    assert list(FORMATTERS[name].outcome(Outcome(), Style())) == []


def test_all_formatters_are_there() -> None:
    assert DEFAULT in FORMATTERS
    assert {name for name, each in FORMATTERS.items() if each.for_programs} == {"csv", "json"}


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
