"""Turns the conditions of a Spark query on queue, sequence number and time into a selection."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from pyspark.sql.datasource import EqualTo, Filter, GreaterThan, GreaterThanOrEqual, In, LessThan, LessThanOrEqual

from leveret.analytics.selection import Selection
from leveret.analytics.times import microseconds

#: Time columns of each table.
_TIMES: Final = {"messages": ("enqueued_at",), "events": ("at", "event_at")}
_NAMES: Final = ("vhost", "queue")


@dataclass(slots=True)
class Pruning(Selection):
    """Conditions that Spark passes on."""

    def apply(self, table: str, filters: Iterable[Filter]) -> list[Filter]:
        """Apply the supported conditions; return the others."""
        return [each for each in filters if not self._apply_one(table, each)]

    def _apply_one(self, table: str, condition: Filter) -> bool:
        column = ".".join(getattr(condition, "attribute", ()))
        if column in _NAMES and isinstance(condition, EqualTo | In):
            values = (condition.value,) if isinstance(condition, EqualTo) else condition.value
            known = frozenset(value for value in values if isinstance(value, str))
            self.names[column] = known & self.names.get(column, known)
            return True
        if table == "messages" and column == "seq":
            return self._narrow("seq", condition, _integer)
        if column in _TIMES.get(table, ()):
            return self._narrow("time", condition, _time)
        return False

    def _narrow(self, part: str, condition: Filter, convert: Any) -> bool:
        value = convert(getattr(condition, "value", None))
        if value is None:
            return False
        first = last = None
        if isinstance(condition, EqualTo):
            first = last = value
        elif isinstance(condition, GreaterThan):
            first = value + 1
        elif isinstance(condition, GreaterThanOrEqual):
            first = value
        elif isinstance(condition, LessThan):
            last = value - 1
        elif isinstance(condition, LessThanOrEqual):
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


def _integer(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _time(value: Any) -> int | None:
    if not isinstance(value, datetime):
        return None
    # Spark passes times without a zone in the machine's local time.
    return microseconds(value if value.tzinfo is not None else value.astimezone())
