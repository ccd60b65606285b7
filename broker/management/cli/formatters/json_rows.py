"""`--formatter json`: an array with one object per line, commas at the line starts."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from leveret.broker.management.cli.command import Outcome, ResultRows
from leveret.broker.management.cli.formatters.style import Style
from leveret.broker.management.cli.terms import Arguments, json_triples


def encoded(value: Any) -> str:
    """Return JSON without whitespace."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def cell(value: Any) -> Any:
    """Return the JSON value of a cell. Missing values become empty strings."""
    if value is None:
        return ""
    return json_triples(value) if isinstance(value, Arguments) else value


def rows(listing: ResultRows, style: Style) -> Iterator[str]:
    """Yield the lines of a listing."""
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
    """Yield the lines of a result that is not a listing."""
    if result.json is not None:
        yield encoded(result.json)
