"""`leveret.scan`: a table as Arrow record batches."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Unpack

import pyarrow as pa

from leveret.analytics.options import ScanOptions, refuse_unknown, takes_options
from leveret.analytics.tables.query_snapshots import held_reader
from leveret.analytics.tables.table_query import query_of


@takes_options(ScanOptions)
def scan(
    path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    table: str = "messages",
    *,
    columns: Sequence[str] | None = None,
    **options: Unpack[ScanOptions],
) -> pa.RecordBatchReader:
    """Read a table of a data directory or archive as it is now. The broker may be running; nothing is consumed.

    A snapshot is taken at once. The files are read, one after the other, when the batches are asked for. The snapshot
    is removed when the last batch has been read, when the reader is closed, or when it is freed.

    Args:
        path: The data directory, or the URI of a copy; or an archive, or a list of one archive and of data directories
            that it may have been copied from, whose newest rows are added. An archive has the tables `messages` and
            `events`.
        table: `messages`, `delayed`, `events`, `audit`, `segments` or `queues`.
        columns: Names of the columns, in order; None for all. Only these are decoded: name them if you do not need the
            bodies.
        options: See ScanOptions.
    Raises:
        OptionError: An argument is wrong, or does not apply to the table.
        DataDirectoryError: The path is not a data directory, or a newer version wrote it.
        SnapshotError: No snapshot can be taken, or there is no such queue.
        AnalyticsError: Neither PyArrow nor fsspec can open the URI.
        ArchiveError: The archive cannot be read.
        DamagedRecordError: With `failfast`, data of that moment is damaged or gone. What is damaged inside of a file
            is found while reading: then the reader raises `pyarrow.ArrowInvalid`, which names file and byte.
    """
    refuse_unknown("scan", options, ScanOptions)
    query = query_of(path, table, options, columns)
    plan = query.plan()
    return held_reader(query.schema, query.read(plan.parts), plan.leases)
