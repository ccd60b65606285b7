"""A query on one of the tables: snapshot, partitions, and what each task reads."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final
from uuid import uuid4

from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from storage.analytics.data_files import open_files
from storage.analytics.options import Options
from storage.analytics.partitions import event_partitions, message_partitions, place_of, queue_partitions
from storage.analytics.pruning import Pruning
from storage.analytics.table_reading import read_partition
from storage.reader import DamagedRecordError
from storage.snapshot import Request, Snapshot, take_snapshot
from storage.snapshot_lease import TIMEOUT

_LOG: Final = logging.getLogger(__name__)


class LeveretReader(DataSourceReader):
    """Reads a table at one moment.

    Args:
        options: What is asked for.
        columns: Names of the columns, in order.
        session: A directory in which the snapshot is noted for whoever renews it; empty for none.
    """

    def __init__(self, options: Options, columns: Sequence[str], session: str = "") -> None:
        self._options = options
        self._columns = list(columns)
        self._session = session
        self._pruning = Pruning(limits=options.limits)

    def partitions(self) -> Sequence[InputPartition]:
        """Take a snapshot and divide it.

        Raises:
            DataDirectoryError: It is no data directory, or was written by a newer version.
            SnapshotError: No snapshot can be taken, or there is no such queue.
        """
        options, limits = self._options, self._pruning.limits
        snapshot = self._take()
        place = place_of(snapshot, options.path)
        found: list[InputPartition]
        if options.table == "messages":
            found = list(message_partitions(snapshot, place, limits, options.segments_per_partition))
        elif options.table == "events":
            found = list(event_partitions(snapshot, place, limits, self._wanted(snapshot)))
        else:
            found = list(queue_partitions(snapshot, place))
        if snapshot.lease is not None and not found:
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
        files, path = open_files(options.path)
        events = options.table == "events"
        request = Request(
            messages=not events,
            events=events,
            as_of=options.as_of,
            wanted=lambda vhost, name: options.wants(vhost, name) and self._pruning.wants(vhost, name),
            described=options.described if not self._pruning.names else None,
            purpose=f"analytics, table {options.table}",
            timeout=options.lease_seconds or TIMEOUT,
        )
        snapshot = take_snapshot(path, request, files)
        if snapshot.missing_segments or snapshot.damaged_events:
            self._complain(snapshot)
        if snapshot.lease is not None and self._session:
            with open(os.path.join(self._session, uuid4().hex), "w", encoding="utf-8") as file:
                file.write(snapshot.lease.path)
        return snapshot

    def _complain(self, snapshot: Snapshot) -> None:
        """Say what is not as it was.

        Raises:
            DamagedRecordError: That is not to be passed over.
        """
        text = (
            f"{self._options.path}: {snapshot.missing_segments} segment files of that moment are gone, and "
            f"{snapshot.damaged_events} events are damaged"
        )
        if self._options.fail_fast:
            snapshot.close()
            raise DamagedRecordError(text)
        _LOG.warning("%s", text)

    def _wanted(self, snapshot: Snapshot) -> frozenset[int] | None:
        """Numbers of the queues whose events are wanted; None if those of all are."""
        if self._options.vhost is None and self._options.queue is None and not self._pruning.names:
            return None
        return frozenset(queue.qid for queue in snapshot.queues)


class PushdownReader(LeveretReader):
    """Reads a table at one moment, and of it only what the conditions of the query leave."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802
        """Take over conditions on queue, number and time."""
        return self._pruning.take_over(self._options.table, filters)
