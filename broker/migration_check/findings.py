"""The rows of a report about moving here, and how they are put together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from enum import IntEnum
from typing import Any, NamedTuple


class Verdict(IntEnum):
    """How much of what a row is about works here; the worst comes first."""

    UNSUPPORTED = 0
    DIFFERS = 1
    FINE = 2

    def __str__(self) -> str:
        """Return the verdict as the report shows it."""
        return {self.UNSUPPORTED: "not supported", self.DIFFERS: "differs", self.FINE: "fine"}[self]


class Finding(NamedTuple):
    """What was found about one object.

    Args:
        area: Kind of object, such as `queues`.
        name: The object; with its virtual host in front if it is not in `/`.
        what: What it does here.
        advice: What to do, or where to read about it; empty if there is nothing to do.
    """

    verdict: Verdict
    area: str
    name: str
    what: str
    advice: str = ""


class Row(NamedTuple):
    """A row of the report: the same finding about some objects of a kind."""

    verdict: Verdict
    area: str
    names: list[str]
    what: str
    advice: str

    def to_json(self) -> dict[str, Any]:
        """Return the row for `--formatter json`."""
        return {**self._asdict(), "verdict": str(self.verdict), "count": len(self.names)}


def to_rows(findings: Iterable[Finding]) -> list[Row]:
    """Return findings as rows, the worst first; inside a verdict they keep their order."""
    names: dict[Finding, dict[str, None]] = {}
    for finding in findings:
        names.setdefault(finding._replace(name=""), {})[finding.name] = None
    rows = [Row(each.verdict, each.area, list(found), each.what, each.advice) for each, found in names.items()]
    return sorted(rows, key=lambda row: row.verdict)


def count_verdicts(rows: Iterable[Row]) -> dict[str, int]:
    """Return the number of rows by verdict."""
    counts = Counter(row.verdict for row in rows)
    return {str(verdict): counts[verdict] for verdict in Verdict}
