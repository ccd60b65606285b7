"""What of a query's conditions can be decided before anything is read: queue, number, time."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from pyspark.sql.datasource import EqualTo, Filter, GreaterThan, GreaterThanOrEqual, In, LessThan, LessThanOrEqual

from leveret.storage.analytics.options import microseconds
from leveret.storage.analytics.record_rows import RowLimits

#: Which column of a table is its time.
_TIMES: Final = {"messages": "enqueued_at", "events": "at"}
_NAMES: Final = ("vhost", "queue")


@dataclass(slots=True)
class Pruning:
    """Conditions that have been taken over from a query.

    Attributes:
        names: The values that a column may have, by name of the column; all if it is not there.
        limits: Numbers and times.
    """

    names: dict[str, frozenset[str]] = field(default_factory=dict)
    limits: RowLimits = field(default_factory=RowLimits)

    def wants(self, vhost: str, queue: str) -> bool:
        """Tell whether a queue may have rows."""
        return all(
            column not in self.names or value in self.names[column]
            for column, value in zip(_NAMES, (vhost, queue), strict=True)
        )

    def take_over(self, table: str, filters: Iterable[Filter]) -> list[Filter]:
        """Take over the conditions that can be seen to here; return the others."""
        return [each for each in filters if not self._take(table, each)]

    def _take(self, table: str, given: Filter) -> bool:
        column = ".".join(getattr(given, "attribute", ()))
        if column in _NAMES and isinstance(given, EqualTo | In):
            values = (given.value,) if isinstance(given, EqualTo) else given.value
            known = frozenset(value for value in values if isinstance(value, str))
            self.names[column] = known & self.names.get(column, known)
            return True
        if table == "messages" and column == "seq":
            return self._narrow("seq", given, _whole)
        if column and column == _TIMES.get(table):
            return self._narrow("time", given, _moment)
        return False

    def _narrow(self, part: str, given: Filter, convert: Any) -> bool:
        value = convert(getattr(given, "value", None))
        if value is None:
            return False
        first = last = None
        if isinstance(given, EqualTo):
            first = last = value
        elif isinstance(given, GreaterThan):
            first = value + 1
        elif isinstance(given, GreaterThanOrEqual):
            first = value
        elif isinstance(given, LessThan):
            last = value - 1
        elif isinstance(given, LessThanOrEqual):
            last = value
        else:
            return False
        limits = self.limits._asdict()
        changes: dict[str, int] = {}
        if first is not None:
            changes[f"first_{part}"] = max(first, limits[f"first_{part}"])
        if last is not None:
            changes[f"last_{part}"] = min(last, limits[f"last_{part}"])
        self.limits = self.limits._replace(**changes)
        return True


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _moment(value: Any) -> int | None:
    if not isinstance(value, datetime):
        return None
    # Without a zone it is a time of this machine, as everywhere in Spark.
    return microseconds(value if value.tzinfo is not None else value.astimezone())
