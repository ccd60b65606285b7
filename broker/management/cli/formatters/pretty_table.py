"""`--formatter pretty_table`: a table with borders."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Sequence
from typing import Any

from leveret.broker.management.cli.command import Outcome, ResultRows
from leveret.broker.management.cli.formatters.style import Style
from leveret.broker.management.cli.formatters.table import text_of
from leveret.broker.management.cli.terms import Arguments, table_entries
from leveret.broker.printable import escape_multiline

Block = list[str]


def cell(value: Any) -> str:
    """Return the text of a cell. Argument tables show the types of their values."""
    if isinstance(value, Arguments):
        return "".join(table_entries(value))
    if isinstance(value, list):
        return ", ".join(text_of(each) for each in value)
    if isinstance(value, dict):
        return "".join(f"{{{key},{text_of(each)}}}" for key, each in value.items())
    return text_of(value)


def width(text: str) -> int:
    """Return the width of a text in terminal columns."""
    if text.isascii():
        return len(text)
    return sum(_letter_width(letter) for letter in text)


def _letter_width(letter: str) -> int:
    if unicodedata.combining(letter) or unicodedata.category(letter) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(letter) in "WF" else 1


def rows(listing: ResultRows, style: Style) -> Iterator[str]:
    """Yield the lines of a listing. Without rows it is a table with `[]`, unless it is streamed."""
    body = [[_block(cell(row.get(column))) for column in listing.columns] for row in listing.rows]
    if body:
        yield from _boxed(listing.columns, body, style)
    elif not listing.streamed:
        yield from _boxed(("Output",), [[["[]"]]], style)
    if listing.footer:
        yield listing.footer


def outcome(result: Outcome, style: Style) -> Iterator[str]:
    """Yield the lines of a result that is not a listing."""
    if result.text:
        yield from _boxed(("Output",), [[_block(result.text)]], style)


def _block(text: str) -> Block:
    # Control characters would move the cursor and break the borders.
    return [escape_multiline(line).expandtabs(4) for line in text.split("\n")] or [""]


def _boxed(columns: Sequence[str], body: list[list[Block]], style: Style) -> Iterator[str]:
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


def _lines(row: list[Block], widths: list[int], style: Style) -> Iterator[str]:
    for index in range(max(len(block) for block in row)):
        texts = [block[index] if index < len(block) else "" for block in row]
        padded = (style.bold(text) + " " * (each - width(text)) for text, each in zip(texts, widths, strict=True))
        yield "│ " + " │ ".join(padded) + " │"
