"""`--formatter table`, the default: values separated by tabs, for `cut` and `awk`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from leveret.broker.management.cli.command import Outcome, ResultRows
from leveret.broker.management.cli.formatters.style import Style
from leveret.broker.management.cli.terms import Arguments, number, untyped
from leveret.broker.printable import escape_line, escape_multiline


def cell(value: Any) -> str:
    """Return the text of a cell on one line, with control characters escaped."""
    return escape_line(text_of(value))


def text_of(value: Any) -> str:
    """Return a value as text."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return number(value)
    if isinstance(value, Arguments):
        return untyped(value)
    if isinstance(value, tuple):
        return f"{{{','.join(text_of(each) for each in value)}}}"
    if isinstance(value, list):
        return f"[{', '.join(text_of(each) for each in value)}]"
    return f"[{', '.join(f'{{{key}, {text_of(each)}}}' for key, each in value.items())}]"


def rows(listing: ResultRows, style: Style) -> Iterator[str]:
    """Yield the lines of a listing. Without rows it is an empty line, unless it is streamed."""
    first = True
    for row in listing.rows:
        if first and style.headers and listing.headed:
            yield "\t".join(listing.columns)
        first = False
        yield "\t".join(cell(row.get(column)) for column in listing.columns)
    if first and not listing.streamed:
        yield ""
    if listing.footer:
        yield listing.footer


def outcome(result: Outcome, style: Style) -> Iterator[str]:
    """Yield the lines of a result that is not a listing."""
    if result.text:
        yield escape_multiline(result.text)
