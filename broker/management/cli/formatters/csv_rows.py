"""`--formatter csv`: all fields in quotes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from broker.management.cli.command import Outcome, Rows
from broker.management.cli.formatters.look import Look
from broker.management.cli.formatters.table import text_of


def record(fields: Sequence[str]) -> str:
    """Return one line; quotes within a field are doubled."""
    return ",".join('"' + field.replace('"', '""') + '"' for field in fields)


def rows(listing: Rows, look: Look) -> Iterator[str]:
    """Give the lines of a listing; nothing when it has no rows."""
    first = True
    for row in listing.rows:
        if first:
            yield record(listing.columns)
        first = False
        yield record([text_of(row.get(column)) for column in listing.columns])


def outcome(result: Outcome, look: Look) -> Iterator[str]:
    """Give the lines of what is no listing."""
    if result.text:
        yield record([result.text])
