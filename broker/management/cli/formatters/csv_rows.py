"""`--formatter csv`: comma-separated values, all quoted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from leveret.broker.management.cli.command import Outcome, ResultRows
from leveret.broker.management.cli.formatters.style import Style
from leveret.broker.management.cli.formatters.table import text_of


def record(fields: Sequence[str]) -> str:
    """Return one line. Quotes inside a field are doubled."""
    return ",".join('"' + field.replace('"', '""') + '"' for field in fields)


def rows(listing: ResultRows, style: Style) -> Iterator[str]:
    """Yield the lines of a listing; none if it has no rows."""
    first = True
    for row in listing.rows:
        if first:
            yield record(listing.columns)
        first = False
        yield record([text_of(row.get(column)) for column in listing.columns])


def outcome(result: Outcome, style: Style) -> Iterator[str]:
    """Yield the lines of a result that is not a listing."""
    if result.text:
        yield record([result.text])
