"""Registry of the output formatters."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import Final, Protocol, cast

from leveret.broker.management.cli.command import Outcome, ResultRows
from leveret.broker.management.cli.formatters.style import Style

DEFAULT: Final = "table"
# Name -> module of this package, imported on first use.
FORMATTERS: Final = {
    "table": "table",
    "pretty_table": "pretty_table",
    "json": "json_rows",
    "csv": "csv_rows",
    "erlang": "erlang_terms",
}
# Formats for programs: only the result is printed.
WITHOUT_BANNER: Final = frozenset({"json", "csv"})


class Formatter(Protocol):
    """Interface of the formatter modules."""

    def rows(self, listing: ResultRows, style: Style) -> Iterator[str]:
        """Yield the lines of a listing, without line ends."""

    def outcome(self, result: Outcome, style: Style) -> Iterator[str]:
        """Yield the lines of a result that is not a listing, without line ends."""


def formatter(name: str) -> Formatter:
    """Return a formatter.

    Args:
        name: a key of FORMATTERS.
    """
    return cast(Formatter, importlib.import_module(f"leveret.broker.management.cli.formatters.{FORMATTERS[name]}"))
