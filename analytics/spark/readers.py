"""The readers of `spark.read`: plan a query, with the conditions that Spark passes on, and read its parts in tasks."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, NamedTuple
from uuid import uuid4

from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceReader,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    LessThan,
    LessThanOrEqual,
)

from leveret.analytics.errors import AnalyticsError
from leveret.analytics.selection import Selection
from leveret.analytics.tables.table_query import TableQuery
from leveret.analytics.times import microseconds

#: Time columns of each table.
_TIMES: Final = {"messages": ("enqueued_at",), "events": ("at", "event_at"), "audit": ("at", "event_at")}
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


#: Spark's number of the query that a task works for.
_EXECUTION: Final = "spark.sql.execution.id"


class TaskParts(NamedTuple):
    """What one task reads.

    Attributes:
        parts: The parts of the table, in order.
        marker: Path of a link that names the only query that may read them; empty if any query may.
    """

    parts: list[Any]
    marker: str = ""


class LeveretReader(DataSourceReader):
    """Reads a table of a data directory or archive.

    Args:
        session: Directory in which snapshots are recorded for the process that renews their leases; empty for none.
    """

    def __init__(self, query: TableQuery, session: str = "") -> None:
        self._query = query
        self._session = session
        self._pruning = Pruning(limits=query.options.batch_limits)

    def partitions(self) -> Sequence[InputPartition]:
        """Take snapshots and divide the table into parts; see plan_query()."""
        parts = self._query.plan(self._pruning, self._session).parts
        # With a limit, one task reads no more files than it needs. Spark needs at least one partition.
        tasks = [[each] for each in parts] if self._query.options.limit is None else [parts]
        return [InputPartition(TaskParts(each)) for each in tasks] or [InputPartition(TaskParts([]))]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Yield the record batches of a partition."""
        return self._query.read(partition.value.parts)


class PushdownReader(LeveretReader):
    """Reads a table from a snapshot and skips data that the query's conditions exclude.

    Spark up to 4.3 keeps the partitions of a data frame's last query, for the next one too if that has no conditions.
    So the first query that reads them is noted, and others are refused: they would miss rows.
    """

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802
        """Apply the conditions on queue, sequence number and time; return the others."""
        return self._pruning.apply(self._query.options.table, filters)

    def partitions(self) -> Sequence[InputPartition]:
        """Take a snapshot and divide it into partitions, for one query."""
        name = f"USED-{uuid4().hex}"
        planned = super().partitions()
        for each in planned:
            parts = each.value.parts
            directory = parts[0].place.damage_dir if parts else self._session
            each.value = TaskParts(parts, f"{directory}/{name}")
        return planned

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Yield the record batches of a partition.

        Raises:
            AnalyticsError: Another query has read the partitions.
        """
        _claim(partition.value)
        return super().read(partition)


def _claim(task: TaskParts) -> None:
    """Note the query that reads the partitions of a plan."""
    context = TaskContext.get()
    query = f"query-{(context.getLocalProperty(_EXECUTION) if context is not None else None) or 'none'}"
    remedy = "load it again for each query, or leave out the option pushdown"
    try:
        # A link is made in one step, with its contents.
        os.symlink(query, task.marker)
    except FileExistsError:
        if os.readlink(task.marker) != query:
            raise AnalyticsError(
                f"this data frame was loaded with pushdown=true and has been read before, with conditions that Spark "
                f"does not forget; {remedy}"
            ) from None
    except OSError as error:
        if not any(each.place.lease for each in task.parts):
            raise AnalyticsError(f"the data frame's first query cannot be noted ({error}); {remedy}") from error
        # The snapshot is gone, which reading reports.
