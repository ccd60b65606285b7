"""Batch reader of the data source: plans a query and reads its partitions."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple
from uuid import uuid4

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from leveret.analytics.bodies.body_format import BodyFormat
from leveret.analytics.errors import AnalyticsError
from leveret.analytics.options import Options
from leveret.analytics.partitions import Partition
from leveret.analytics.pruning import Pruning
from leveret.analytics.table_plan import plan_table
from leveret.analytics.table_reading import read_partitions

#: Spark's number of the query that a task works for.
_EXECUTION: Final = "spark.sql.execution.id"


class TaskParts(NamedTuple):
    """What one task reads.

    Attributes:
        parts: The partitions, in order.
        marker: Path of a link that names the only query that may read them; empty if any query may.
    """

    parts: list[Partition]
    marker: str = ""


class LeveretReader(DataSourceReader):
    """Reads a table from a snapshot.

    Args:
        options: Options of the data source.
        columns: Names of the columns, in order.
        session: Directory in which the snapshot is recorded for the process that renews its lease; empty for none.
        bodies: How bodies are read; None if no column needs it.
    """

    def __init__(
        self, options: Options, columns: Sequence[str], session: str = "", bodies: BodyFormat | None = None
    ) -> None:
        self._options = options
        self._bodies = bodies
        self._columns = list(columns)
        self._session = session
        self._pruning = Pruning(limits=options.batch_limits)

    def partitions(self) -> Sequence[InputPartition]:
        """Take a snapshot and divide it into partitions; see plan_table()."""
        found = plan_table(self._options, self._pruning, self._session).partitions
        # With a limit, one task reads no more files than it needs. Spark needs at least one partition.
        tasks = [[each] for each in found] if self._options.limit is None else [found]
        return [InputPartition(TaskParts(each)) for each in tasks] or [InputPartition(TaskParts([]))]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Yield the record batches of a partition."""
        return read_partitions(partition.value.parts, self._options, self._columns, self._bodies)


class PushdownReader(LeveretReader):
    """Reads a table from a snapshot and skips data that the query's conditions exclude.

    Spark up to 4.3 keeps the partitions of a data frame's last query, for the next one too if that has no conditions.
    So the first query that reads them is noted, and others are refused: they would miss rows.
    """

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802
        """Apply the conditions on queue, sequence number and time; return the others."""
        return self._pruning.apply(self._options.table, filters)

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
    """Note the query that reads the partitions of a plan.

    Raises:
        AnalyticsError: It is not the first one, or it cannot be noted.
    """
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
