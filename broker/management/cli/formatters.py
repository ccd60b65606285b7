"""Output formatters (`--formatter`): functions that convert results to lines."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple

from leveret.broker.management.cli.command import Outcome, ResultRows
from leveret.broker.management.cli.terms import Arguments, json_triples, table_entries, term, untyped
from leveret.broker.printable import escape_line, escape_multiline
from leveret.protocol.erlang_terms import format_atom, format_list, format_number, format_tuple, format_unicode

DEFAULT: Final = "table"
_BOLD: Final = "\x1b[1m"
_PLAIN: Final = "\x1b[0m"
# Longer Erlang terms are printed on several lines.
_LINE: Final = 80


class Style(NamedTuple):
    """Output style.

    Args:
        headers: whether the plain table starts with the column names.
        terminal: whether the output is a terminal, so that headers are bold.
    """

    headers: bool = True
    terminal: bool = False

    def bold(self, text: str) -> str:
        """Return a header text, bold on a terminal."""
        return f"{_BOLD}{text}{_PLAIN}" if self.terminal and text else text


class Formatter(NamedTuple):
    """One output format.

    Args:
        rows: yields the lines of a listing, without line ends.
        outcome: yields the lines of a result that is not a listing, without line ends.
        for_programs: whether only the result is printed, without a banner.
    """

    rows: Callable[[ResultRows, Style], Iterator[str]]
    outcome: Callable[[Outcome, Style], Iterator[str]]
    for_programs: bool = False


# -- table: values separated by tabs, for `cut` and `awk` ------------------------------------------------


def _table_cell(value: Any) -> str:
    """Return the text of a cell on one line, with control characters escaped."""
    return escape_line(_text(value))


def _text(value: Any) -> str:
    """Return a value as text."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return format_number(value)
    if isinstance(value, Arguments):
        return untyped(value)
    if isinstance(value, tuple):
        return f"{{{','.join(_text(each) for each in value)}}}"
    if isinstance(value, list):
        return f"[{', '.join(_text(each) for each in value)}]"
    return f"[{', '.join(f'{{{key}, {_text(each)}}}' for key, each in value.items())}]"


def _table_rows(listing: ResultRows, style: Style) -> Iterator[str]:
    """Yield the lines of a listing. Without rows it is an empty line, unless it is streamed."""
    first = True
    for row in listing.rows:
        if first and style.headers and listing.headed:
            yield "\t".join(listing.columns)
        first = False
        yield "\t".join(_table_cell(row.get(column)) for column in listing.columns)
    if first and not listing.streamed:
        yield ""
    if listing.footer:
        yield listing.footer


def _table_outcome(result: Outcome, style: Style) -> Iterator[str]:
    """Yield the lines of a result that is not a listing."""
    if result.text:
        yield escape_multiline(result.text)


# -- pretty_table: a table with borders ------------------------------------------------------------------


def _pretty_cell(value: Any) -> str:
    """Return the text of a cell. Argument tables show the types of their values."""
    if isinstance(value, Arguments):
        return "".join(table_entries(value))
    if isinstance(value, list):
        return ", ".join(_text(each) for each in value)
    if isinstance(value, dict):
        return "".join(f"{{{key},{_text(each)}}}" for key, each in value.items())
    return _text(value)


def width(text: str) -> int:
    """Return the width of a text in terminal columns."""
    if text.isascii():
        return len(text)
    return sum(_letter_width(letter) for letter in text)


def _letter_width(letter: str) -> int:
    if unicodedata.combining(letter) or unicodedata.category(letter) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(letter) in "WF" else 1


def _pretty_rows(listing: ResultRows, style: Style) -> Iterator[str]:
    """Yield the lines of a listing. Without rows it is a table with `[]`, unless it is streamed."""
    body = [[_block(_pretty_cell(row.get(column))) for column in listing.columns] for row in listing.rows]
    if body:
        yield from _boxed(listing.columns, body, style)
    elif not listing.streamed:
        yield from _boxed(("Output",), [[["[]"]]], style)
    if listing.footer:
        yield listing.footer


def _pretty_outcome(result: Outcome, style: Style) -> Iterator[str]:
    """Yield the lines of a result that is not a listing."""
    if result.text:
        yield from _boxed(("Output",), [[_block(result.text)]], style)


def _block(text: str) -> list[str]:
    # Control characters would move the cursor and break the borders.
    return [escape_multiline(line).expandtabs(4) for line in text.split("\n")] or [""]


def _boxed(columns: Sequence[str], body: list[list[list[str]]], style: Style) -> Iterator[str]:
    widths = [
        max(width(column), *(width(line) for row in body for line in row[index]))
        for index, column in enumerate(columns)
    ]
    yield _rule(("┌", "┬", "┐"), widths)
    yield from _lines([[column] for column in columns], widths, style)
    for row in body:
        yield _rule(("├", "┼", "┤"), widths)
        yield from _lines(row, widths, Style())
    yield _rule(("└", "┴", "┘"), widths)


def _rule(corners: tuple[str, str, str], widths: list[int]) -> str:
    left, middle, right = corners
    return left + middle.join("─" * (each + 2) for each in widths) + right


def _lines(row: list[list[str]], widths: list[int], style: Style) -> Iterator[str]:
    for index in range(max(len(block) for block in row)):
        texts = [block[index] if index < len(block) else "" for block in row]
        padded = (style.bold(text) + " " * (each - width(text)) for text, each in zip(texts, widths, strict=True))
        yield "│ " + " │ ".join(padded) + " │"


# -- csv: comma-separated values, all quoted -------------------------------------------------------------


def _csv_record(fields: Sequence[str]) -> str:
    """Return one line. Quotes inside a field are doubled."""
    return ",".join('"' + field.replace('"', '""') + '"' for field in fields)


def _csv_rows(listing: ResultRows, style: Style) -> Iterator[str]:
    """Yield the lines of a listing; none if it has no rows."""
    first = True
    for row in listing.rows:
        if first:
            yield _csv_record(listing.columns)
        first = False
        yield _csv_record([_text(row.get(column)) for column in listing.columns])


def _csv_outcome(result: Outcome, style: Style) -> Iterator[str]:
    """Yield the lines of a result that is not a listing."""
    if result.text:
        yield _csv_record([result.text])


# -- json: an array with one object per line, commas at the line starts ----------------------------------


def to_json(value: Any) -> str:
    """Return JSON without whitespace."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _json_cell(value: Any) -> Any:
    """Return the JSON value of a cell. Missing values become empty strings."""
    if value is None:
        return ""
    return json_triples(value) if isinstance(value, Arguments) else value


def _json_rows(listing: ResultRows, style: Style) -> Iterator[str]:
    """Yield the lines of a listing."""
    if listing.json is not None:
        yield to_json(listing.json)
        return
    first = True
    for row in listing.rows:
        if first:
            yield "["
        line = to_json({column: _json_cell(row.get(column)) for column in listing.columns})
        yield line if first else f",{line}"
        first = False
    if not first:
        yield "]"
    elif listing.streamed:
        yield from ("[", "]")
    else:
        yield "[]"


def _json_outcome(result: Outcome, style: Style) -> Iterator[str]:
    """Yield the lines of a result that is not a listing."""
    if result.json is not None:
        yield to_json(result.json)


# -- erlang: terms for `file:consult/1` and similar readers ----------------------------------------------


def _erlang_rows(listing: ResultRows, style: Style) -> Iterator[str]:
    """Yield the lines of a listing: a list of property lists."""
    blocks = [_properties(listing.columns, row) for row in listing.rows]
    if not blocks:
        yield "[]"
        return
    for index, block in enumerate(blocks):
        opening = "[" if index == 0 else " "
        closing = "]" if index == len(blocks) - 1 else ","
        yield opening + block + closing


def _erlang_outcome(result: Outcome, style: Style) -> Iterator[str]:
    """Yield the lines of a result that is not a listing."""
    if result.text:
        yield format_unicode(result.text)


def _properties(columns: tuple[str, ...], row: dict[str, Any]) -> str:
    """Return a row as a property list. Line breaks in long ones may differ from Erlang's."""
    pairs = [format_tuple(format_atom(column), term(row.get(column))) for column in columns]
    line = format_list(pairs)
    return line if len(line) <= _LINE - 3 else "[" + ",\n  ".join(pairs) + "]"


FORMATTERS: Final = {
    "table": Formatter(_table_rows, _table_outcome),
    "pretty_table": Formatter(_pretty_rows, _pretty_outcome),
    "json": Formatter(_json_rows, _json_outcome, for_programs=True),
    "csv": Formatter(_csv_rows, _csv_outcome, for_programs=True),
    "erlang": Formatter(_erlang_rows, _erlang_outcome),
}
