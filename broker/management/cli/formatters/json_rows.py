"""`--formatter json`: an array with one object a line, commas leading."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from leveret.broker.management.cli.command import Outcome, ResultRows
from leveret.broker.management.cli.formatters.style import Style
from leveret.broker.management.cli.terms import Arguments, triples


def encoded(value: Any) -> str:
    """Return JSON without white space."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def cell(value: Any) -> Any:
    """Return a value as JSON has it; what is missing is an empty string."""
    if value is None:
        return ""
    return triples(value) if isinstance(value, Arguments) else value


def rows(listing: ResultRows, style: Style) -> Iterator[str]:
    """Give the lines of a listing."""
    if listing.json is not None:
        yield encoded(listing.json)
        return
    first = True
    for row in listing.rows:
        if first:
            yield "["
        line = encoded({column: cell(row.get(column)) for column in listing.columns})
        yield line if first else f",{line}"
        first = False
    if not first:
        yield "]"
    elif listing.streamed:
        yield from ("[", "]")
    else:
        yield "[]"


def outcome(result: Outcome, style: Style) -> Iterator[str]:
    """Give the lines of a result that is not a listing."""
    if result.json is not None:
        yield encoded(result.json)
