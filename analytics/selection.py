"""Which rows a query reads: conditions that are decided before any file is opened."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from leveret.analytics.rows.record_rows import RowLimits

_NAMES: Final = ("vhost", "queue")


@dataclass(slots=True)
class Selection:
    """Conditions that restrict what is read.

    Attributes:
        names: Allowed values of the columns `vhost` and `queue`; a column without a condition is missing.
        limits: Limits on sequence numbers and times.
    """

    names: dict[str, frozenset[str]] = field(default_factory=dict)
    limits: RowLimits = field(default_factory=RowLimits)

    def wants(self, vhost: str, queue: str) -> bool:
        """Return whether a queue can have rows."""
        return all(
            column not in self.names or value in self.names[column]
            for column, value in zip(_NAMES, (vhost, queue), strict=True)
        )
