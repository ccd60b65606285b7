"""What leveretctl prints: the formats of results (`--formatter`), values as Erlang terms, and the progress bar."""

from __future__ import annotations

import json
import sys
import time
import unicodedata
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import TracebackType
from typing import Any, Final, NamedTuple, TextIO

from leveret.broker.leveretctl.command import Result, ResultRows
from leveret.broker.printable import escape_line, escape_multiline
from leveret.protocol.erlang_terms import (
    format_atom,
    format_list,
    format_number,
    format_string,
    format_tuple,
    format_unicode,
)

_ARROW: Final = " -> "


class Arguments(dict[str, Any]):
    """AMQP table, such as the arguments of a queue or the properties of a client."""


class Identifier(str):
    """Identifier that takes the place of RabbitMQ's process identifier.

    It is opaque, has no spaces, and is accepted by close_connection.
    """

    __slots__ = ()


def connection_identifier(name: str) -> Identifier:
    """Return the identifier of a connection: `<127.0.0.1:39330->127.0.0.1:5672>`."""
    return Identifier(f"<{name.replace(_ARROW, '->')}>")


def channel_identifier(name: str) -> Identifier:
    """Return the identifier of a channel. Its name is the connection's name and a number in parentheses."""
    connection, _, number = name.rpartition(" (")
    return Identifier(f"<{connection.replace(_ARROW, '->')}.{number.rstrip(')')}>")


def queue_identifier(node: str, vhost: str, name: str) -> Identifier:
    """Return the identifier of a queue. It depends only on the node, the virtual host and the name."""
    return Identifier(f"<{node}.{zlib.crc32(vhost.encode())}.{zlib.crc32(name.encode())}.0>")


def connection_name(identifier: str) -> str | None:
    """Return the name of a connection from its identifier or name, None if the text is neither."""
    if identifier.startswith("<") and identifier.endswith(">"):
        return identifier[1:-1].replace("->", _ARROW)
    return identifier if _ARROW in identifier else None


def compact_json(value: Any) -> str:
    """Return JSON without whitespace and with sorted keys, as in lists of policies and limits."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=True)


def untyped(value: Any) -> str:
    """Return a value of an AMQP table without its type: `[{"x-max-length",7}]`.

    An empty string is `[]`, because an Erlang string is the list of its characters.
    """
    if value is None:
        return "undefined"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return format_number(value)
    if isinstance(value, dict):
        return format_list(format_tuple(format_string(key), untyped(each)) for key, each in value.items())
    if isinstance(value, list):
        return format_list(map(untyped, value))
    return format_string(str(value)) if value else "[]"


def type_name(value: Any) -> str:
    """Return the name of the AMQP type of a table value."""
    if value is None:
        return "void"
    for python, name in ((bool, "bool"), (int, "long"), (float, "double"), (dict, "table"), (list, "array")):
        if isinstance(value, python):
            return name
    return "longstr"


def typed(value: Any) -> str:
    """Return a value of an AMQP table with the types of nested values."""
    if isinstance(value, dict):
        return format_list(table_entries(value))
    if isinstance(value, list):
        return format_list(format_tuple(type_name(each), typed(each)) for each in value)
    if isinstance(value, str):
        return format_unicode(value)
    return untyped(value)


def table_entries(table: dict[str, Any]) -> list[str]:
    """Return the entries of an AMQP table as triples of name, type and value."""
    return [format_tuple(format_unicode(key), type_name(value), typed(value)) for key, value in table.items()]


def json_triples(value: Any) -> Any:
    """Return a value of an AMQP table in rabbitmqctl's JSON form: `[["x-max-length","long",7]]`."""
    if isinstance(value, dict):
        return [[key, type_name(each), json_triples(each)] for key, each in value.items()]
    if isinstance(value, list):
        return [[type_name(each), json_triples(each)] for each in value]
    return "undefined" if value is None else value


def term(value: Any) -> str:
    """Return a column's value as an Erlang term."""
    if value is None:
        return "''"
    if isinstance(value, Identifier):
        return str(value)
    if isinstance(value, Arguments):
        return typed(value)
    if isinstance(value, str):
        return format_unicode(value)
    if isinstance(value, tuple):
        return format_tuple(*map(term, value))
    if isinstance(value, list):
        return format_list(map(term, value))
    if isinstance(value, dict):
        return format_list(format_tuple(format_atom(key), term(each)) for key, each in value.items())
    return untyped(value)


DEFAULT: Final = "table"
_BOLD: Final = "\x1b[1m"
_PLAIN: Final = "\x1b[0m"
# Longer Erlang terms are printed on several lines.
_LINE: Final = 80


class Style(NamedTuple):
    """Whether the plain table starts with the column names, and whether headers are bold, as on a terminal."""

    headers: bool = True
    terminal: bool = False

    def bold(self, text: str) -> str:
        """Return a header text, bold on a terminal."""
        return f"{_BOLD}{text}{_PLAIN}" if self.terminal and text else text


class Formatter(NamedTuple):
    """One output format.

    Args:
        rows: yields the lines of a listing, without line ends.
        text: returns the lines of the text of a result that is not a listing; None for one that prints its JSON.
        for_programs: whether only the result is printed, without a banner.
    """

    rows: Callable[[ResultRows, Style], Iterator[str]]
    text: Callable[[str, Style], Iterable[str]] | None
    for_programs: bool = False

    def lines(self, result: Result, style: Style) -> Iterable[str]:
        """Return the lines of a result."""
        if isinstance(result, ResultRows):
            return self.rows(result, style)
        if self.text is None:
            return [] if result.json is None else [to_json(result.json)]
        return self.text(result.text, style) if result.text else []


# -- table: values separated by tabs, for `cut` and `awk` ------------------------------------------------


def _text(value: Any) -> str:
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
        yield "\t".join(escape_line(_text(row.get(column))) for column in listing.columns)
    if first and not listing.streamed:
        yield ""
    if listing.footer:
        yield listing.footer


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
    return ",".join('"' + field.replace('"', '""') + '"' for field in fields)


def _csv_rows(listing: ResultRows, style: Style) -> Iterator[str]:
    first = True
    for row in listing.rows:
        if first:
            yield _csv_record(listing.columns)
        first = False
        yield _csv_record([_text(row.get(column)) for column in listing.columns])


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


# -- erlang: terms for `file:consult/1` and similar readers ----------------------------------------------


def _erlang_rows(listing: ResultRows, style: Style) -> Iterator[str]:
    yield "[" + ",\n ".join(_properties(listing.columns, row) for row in listing.rows) + "]"


def _properties(columns: tuple[str, ...], row: dict[str, Any]) -> str:
    """Return a row as a property list. Line breaks in long ones may differ from Erlang's."""
    pairs = [format_tuple(format_atom(column), term(row.get(column))) for column in columns]
    line = format_list(pairs)
    return line if len(line) <= _LINE - 3 else "[" + ",\n  ".join(pairs) + "]"


FORMATTERS: Final = {
    "table": Formatter(_table_rows, lambda text, style: [escape_multiline(text)]),
    "pretty_table": Formatter(_pretty_rows, lambda text, style: _boxed(("Output",), [[_block(text)]], style)),
    "json": Formatter(_json_rows, None, for_programs=True),
    "csv": Formatter(_csv_rows, lambda text, style: [_csv_record([text])], for_programs=True),
    "erlang": Formatter(_erlang_rows, lambda text, style: [format_unicode(text)]),
}


# -- progress on standard error, on a terminal only ------------------------------------------------------

#: Width of the bar in characters.
_WIDTH: Final = 30
#: Minimum time between two updates, in seconds.
_INTERVAL: Final = 0.1
#: Returns to the start of the line and clears it.
_CLEAR: Final = "\r\x1b[K"


class ProgressLine:
    """Progress bar, as a context manager that removes the bar at its end; shown only if the stream is a terminal."""

    def __init__(self, label: str, total: int, *, silent: bool = False, stream: TextIO | None = None) -> None:
        self._label = label
        self.total = total
        self._stream = sys.stderr if stream is None else stream
        self._visible = not silent and self._stream.isatty()
        self._drawn_at = -_INTERVAL

    def __enter__(self) -> ProgressLine:
        self.update(0)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._visible:
            self._stream.write(_CLEAR)
            self._stream.flush()

    @property
    def visible(self) -> bool:
        """Whether the bar is shown."""
        return self._visible

    def update(self, done: int, note: str = "") -> None:
        """Show the amount of work done, and a note after the bar. Redraws at most ten times a second."""
        now = time.monotonic()
        if not self._visible or now - self._drawn_at < _INTERVAL:
            return
        self._drawn_at = now
        self._stream.write(_CLEAR + render_bar(self._label, done, self.total) + (note and f" {note}"))
        self._stream.flush()


def render_bar(label: str, done: int, total: int) -> str:
    """Return the bar as text; more may be done than the total."""
    share = min(1.0, done / total) if total else 1.0
    filled = int(share * _WIDTH)
    return f"{label} [{'#' * filled}{'.' * (_WIDTH - filled)}] {share:4.0%} {done}/{max(done, total)}"
