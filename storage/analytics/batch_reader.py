"""Batch reader of the data source: takes a snapshot, divides it into partitions and reads them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from leveret.storage.analytics.options import Options
from leveret.storage.analytics.partitions import event_partitions, locate_snapshot, message_partitions, queue_partitions
from leveret.storage.analytics.pruning import Pruning
from leveret.storage.analytics.query_snapshots import load_shared_snapshot, take_query_snapshot
from leveret.storage.analytics.table_reading import read_partition
from leveret.storage.snapshots.snapshot import Snapshot


class LeveretReader(DataSourceReader):
    """Reads a table from a snapshot.

    Args:
        options: Options of the data source.
        columns: Names of the columns, in order.
        session: Directory in which the snapshot is recorded for the process that renews its lease; empty for none.
    """

    def __init__(self, options: Options, columns: Sequence[str], session: str = "") -> None:
        self._options = options
        self._columns = list(columns)
        self._session = session
        self._pruning = Pruning(limits=options.limits)

    def partitions(self) -> Sequence[InputPartition]:
        """Take a snapshot and divide it into partitions.

        Raises:
            DataDirectoryError: The path is not a data directory, or a newer version wrote it.
            SnapshotError: No snapshot can be taken, or the queue does not exist.
        """
        options, limits = self._options, self._pruning.limits
        snapshot = self._take()
        location = locate_snapshot(snapshot, options.path, self._session)
        found: list[InputPartition]
        if options.table in ("messages", "delayed"):
            found = list(message_partitions(snapshot, location, limits, options.segments_per_partition))
        elif options.table == "events":
            found = list(event_partitions(snapshot, location, limits, self._wanted(snapshot)))
        else:
            found = list(queue_partitions(snapshot, location))
        if not found and not options.snapshot:
            snapshot.close()
        # Spark needs at least one partition.
        return found or [InputPartition(None)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Yield the record batches of a partition."""
        if type(partition) is InputPartition:
            return iter(())
        return read_partition(partition, self._options.table, self._columns, self._options.fail_fast)

    def _take(self) -> Snapshot:
        options = self._options
        described = options.described if not self._pruning.names else None
        if options.snapshot:
            return load_shared_snapshot(options, self._wants, described, self._session)
        events = options.table == "events"
        return take_query_snapshot(options, self._wants, described, not events, events, self._session)

    def _wanted(self, snapshot: Snapshot) -> frozenset[int] | None:
        """Return the ids of the queues whose events are selected; None for all queues."""
        if self._options.vhost is None and self._options.queue is None and not self._pruning.names:
            return None
        names_queue = self._options.queue is not None or "queue" in self._pruning.names
        return frozenset(
            qid
            for qid, name in snapshot.names.items()
            if self._wants(name.vhost, name.name) and not (names_queue and name.kind != "queue")
        )

    def _wants(self, vhost: str, queue: str) -> bool:
        return self._options.wants(vhost, queue) and self._pruning.wants(vhost, queue)


class PushdownReader(LeveretReader):
    """Reads a table from a snapshot and skips data that the query's conditions exclude."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802
        """Apply the conditions on queue, sequence number and time; return the others."""
        return self._pruning.apply(self._options.table, filters)
