"""`--formatter erlang`: Erlang terms, for `file:consult/1` and similar readers.

Terms up to 80 columns are printed as Erlang prints them. Line breaks in longer terms may differ.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from leveret.broker.management.cli.command import Outcome, ResultRows
from leveret.broker.management.cli.formatters.style import Style
from leveret.broker.management.cli.terms import atom, binary, term

_LINE: Final = 80


def rows(listing: ResultRows, style: Style) -> Iterator[str]:
    """Yield the lines of a listing: a list of property lists."""
    blocks = [_properties(listing.columns, row) for row in listing.rows]
    if not blocks:
        yield "[]"
        return
    for index, block in enumerate(blocks):
        opening = "[" if index == 0 else " "
        closing = "]" if index == len(blocks) - 1 else ","
        yield opening + block + closing


def outcome(result: Outcome, style: Style) -> Iterator[str]:
    """Yield the lines of a result that is not a listing."""
    if result.text:
        yield binary(result.text)


def _properties(columns: tuple[str, ...], row: dict[str, Any]) -> str:
    pairs = [f"{{{atom(column)},{term(row.get(column))}}}" for column in columns]
    line = f"[{','.join(pairs)}]"
    return line if len(line) <= _LINE - 3 else "[" + ",\n  ".join(pairs) + "]"
