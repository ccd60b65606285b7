"""The readers of `spark.read`, with the conditions that Spark passes on, and of `spark.readStream`."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Any, Final, NamedTuple
from uuid import uuid4

from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceReader,
    DataSourceStreamReader,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    LessThan,
    LessThanOrEqual,
)
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from leveret.analytics.errors import AnalyticsError
from leveret.analytics.selection import RowLimits, Selection
from leveret.analytics.streaming.event_stream import EventStream
from leveret.analytics.streaming.message_stream import MessageStream
from leveret.analytics.tables.table_query import TableQuery
from leveret.analytics.times import microseconds

#: Time columns of each table.
_TIMES: Final = {"messages": ("enqueued_at",), "events": ("at", "event_at"), "audit": ("at", "event_at")}
_NAMES: Final = ("vhost", "queue")
#: How far the first and the last value are from that of a condition; None for no limit.
_LIMITS: Final[dict[type[Filter], tuple[int | None, int | None]]] = {
    EqualTo: (0, 0),
    GreaterThan: (1, None),
    GreaterThanOrEqual: (0, None),
    LessThan: (None, -1),
    LessThanOrEqual: (None, 0),
}


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
        value, limits = convert(getattr(condition, "value", None)), _LIMITS.get(type(condition))
        if value is None or limits is None:
            return False
        first, last = limits
        found = self.limits._asdict()
        if first is not None:
            found[f"first_{part}"] = max(value + first, found[f"first_{part}"])
        if last is not None:
            found[f"last_{part}"] = min(value + last, found[f"last_{part}"])
        self.limits = RowLimits(**found)
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


class LeveretStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads new rows of a table, each once, also after restarts from a checkpoint.

    Raises:
        OptionError: The table cannot be streamed, or an option does not apply to streams.
    """

    def __init__(self, query: TableQuery) -> None:
        self._query = query
        self._options = query.options.for_stream()

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """Return the start offset of a new query."""
        return self._stream.first()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Return the limit of a batch."""
        return ReadMaxRows(self._options.max_records) if self._options.max_records else ReadAllAvailable()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Return the end offset of the next batch."""
        return self._stream.advance(start, limit.max_rows if isinstance(limit, ReadMaxRows) else 0)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Limit the query to the rows that exist now."""
        self._stream.stop_at_latest()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Return the partitions of a batch."""
        return [InputPartition(each) for each in self._stream.partitions(start, end)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Yield the record batches of a partition."""
        return self._query.read_part(partition.value, self._query.columns)

    def commit(self, end: dict[str, Any]) -> None:
        """Release the resources of a batch that is stored."""
        self._stream.commit(end)

    def stop(self) -> None:
        """Release all resources at the end of the query."""
        self._stream.stop()

    @cached_property
    def _stream(self) -> MessageStream | EventStream:
        return MessageStream(self._options) if self._options.table == "messages" else EventStream(self._options)
