"""Batch reader of the data source for archives, alone or together with live data directories."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from pyspark.sql.datasource import DataSourceReader, InputPartition

from leveret.analytics.archive.archive_plan import check_archive_options, plan_archive
from leveret.analytics.archive.archive_reading import read_parts
from leveret.analytics.archive.sources import Sources
from leveret.analytics.bodies.body_format import BodyFormat
from leveret.analytics.options import Options
from leveret.analytics.selection import Selection


class ArchiveReader(DataSourceReader):
    """Reads a table of an archive, and what live data directories have besides.

    Args:
        sources: What to read.
        options: Options of the data source.
        columns: Names of the columns, in order.
        session: Directory in which snapshots are recorded for the process that renews their leases; empty for none.
        bodies: How bodies are read; None if no column needs it.
    Raises:
        OptionError: An option does not apply to archives.
    """

    def __init__(
        self,
        sources: Sources,
        options: Options,
        columns: Sequence[str],
        session: str = "",
        bodies: BodyFormat | None = None,
    ) -> None:
        check_archive_options(options)
        self._sources = sources
        self._options = options
        self._columns = list(columns)
        self._session = session
        self._bodies = bodies
        self._selection = Selection(limits=options.batch_limits)

    def partitions(self) -> Sequence[InputPartition]:
        """Read the manifests, take snapshots, and divide both into tasks; see plan_archive()."""
        parts = plan_archive(self._sources, self._options, self._selection, self._session).parts
        # With a limit, one task reads no more files than it needs. Spark needs at least one partition.
        tasks = [[each] for each in parts] if self._options.limit is None else [parts]
        return [InputPartition(each) for each in tasks] or [InputPartition([])]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Yield the record batches of a partition."""
        return read_parts(partition.value, self._options, self._columns, self._bodies)
