"""A query on one of the tables: snapshot, partitions, and what each task reads."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from leveret.storage.analytics.moments import shared, take
from leveret.storage.analytics.options import Options
from leveret.storage.analytics.partitions import event_partitions, message_partitions, place_of, queue_partitions
from leveret.storage.analytics.pruning import Pruning
from leveret.storage.analytics.table_reading import read_partition
from leveret.storage.snapshots.snapshot import Snapshot


class LeveretReader(DataSourceReader):
    """Reads a table at one moment.

    Args:
        options: What is asked for.
        columns: Names of the columns, in order.
        session: A directory in which the snapshot is noted for the process that renews it; empty for none.
    """

    def __init__(self, options: Options, columns: Sequence[str], session: str = "") -> None:
        self._options = options
        self._columns = list(columns)
        self._session = session
        self._pruning = Pruning(limits=options.limits)

    def partitions(self) -> Sequence[InputPartition]:
        """Take a snapshot and divide it.

        Raises:
            DataDirectoryError: It is not a data directory, or was written by a newer version.
            SnapshotError: No snapshot can be taken, or there is no such queue.
        """
        options, limits = self._options, self._pruning.limits
        snapshot = self._take()
        place = place_of(snapshot, options.path, self._session)
        found: list[InputPartition]
        if options.table == "messages":
            found = list(message_partitions(snapshot, place, limits, options.segments_per_partition))
        elif options.table == "events":
            found = list(event_partitions(snapshot, place, limits, self._wanted(snapshot)))
        else:
            found = list(queue_partitions(snapshot, place))
        if not found and not options.snapshot:
            snapshot.close()
        # Spark asks for one partition at least.
        return found or [InputPartition(None)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Record batches of a partition."""
        if type(partition) is InputPartition:
            return iter(())
        return read_partition(partition, self._options.table, self._columns, self._options.fail_fast)

    def _take(self) -> Snapshot:
        options = self._options
        described = options.described if not self._pruning.names else None
        if options.snapshot:
            return shared(options, self._wants, described, self._session)
        events = options.table == "events"
        return take(options, self._wants, described, not events, events, self._session)

    def _wanted(self, snapshot: Snapshot) -> frozenset[int] | None:
        """Numbers of the queues whose events are wanted; None if those of all are."""
        if self._options.vhost is None and self._options.queue is None and not self._pruning.names:
            return None
        return frozenset(qid for qid, name in snapshot.names.items() if self._wants(name.vhost, name.name))

    def _wants(self, vhost: str, queue: str) -> bool:
        return self._options.wants(vhost, queue) and self._pruning.wants(vhost, queue)


class PushdownReader(LeveretReader):
    """Reads a table at one moment, and of it only what the conditions of the query leave."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802
        """Take over conditions on queue, number and time."""
        return self._pruning.take_over(self._options.table, filters)
