"""`leveret.scan`: the tables of a data directory as Arrow record batches, without Spark."""

from __future__ import annotations

import os
from collections.abc import Sequence

import pyarrow as pa

from leveret.storage.analytics.arrow_schema import arrow_schema
from leveret.storage.analytics.held_snapshots import hold
from leveret.storage.analytics.named_options import Time, chosen_columns, named_options
from leveret.storage.analytics.options import Options, parse_options
from leveret.storage.analytics.selection import Selection
from leveret.storage.analytics.table_plan import TablePlan, plan_table
from leveret.storage.analytics.table_reading import read_partitions


def scan(
    path: str | os.PathLike[str],
    table: str = "messages",
    *,
    columns: Sequence[str] | None = None,
    vhost: str | None = None,
    queue: str | None = None,
    as_of: Time | None = None,
    since: Time | None = None,
    until: Time | None = None,
    first_seq: int | None = None,
    last_seq: int | None = None,
    starting_offsets: Time | None = None,
    ending_offsets: Time | None = None,
    limit: int | None = None,
    mode: str = "permissive",
) -> pa.RecordBatchReader:
    """Read a table of a data directory as it is now. The broker may be running; nothing is consumed.

    A snapshot is taken at once. The files are read, one after the other, when the batches are asked for. The snapshot
    is removed when the last batch has been read, when the reader is closed, or when it is freed.

    Args:
        path: The data directory, or the URI of a copy.
        table: `messages`, `delayed`, `events`, `segments` or `queues`.
        columns: Names of the columns, in order; None for all. Only these are decoded: name them if you do not need the
            bodies.
        vhost: Virtual host: its name, or a pattern with `*`, `?` and `[…]`; None for all.
        queue: Name of the queue, or a pattern; None for all. A name must exist.
        as_of: Show the last moment up to this time, as far as the files still have it.
        since: Only messages and events of this time or later.
        until: Only messages and events of this time or earlier.
        first_seq: Only messages with this number or a higher one.
        last_seq: Only messages with this number or a lower one.
        starting_offsets: Only messages of a stream from an offset or a time on: `earliest`, a number, ISO 8601 or a
            datetime, or `@` and seconds since 1970.
        ending_offsets: Only messages before an offset or a time; `latest` for all.
        limit: Read at most this many rows.
        mode: `permissive` skips damaged records and logs a warning, `failfast` makes them an error.
    Raises:
        OptionError: An argument is wrong, or does not apply to the table.
        DataDirectoryError: The path is not a data directory, or a newer version wrote it.
        SnapshotError: No snapshot can be taken, or there is no such queue.
        AnalyticsError: Neither PyArrow nor fsspec can open the URI.
        DamagedRecordError: With `failfast`, data of that moment is damaged or gone. What is damaged inside of a file
            is found while reading: then the reader raises `pyarrow.ArrowInvalid`, which names file and byte.
    """
    given = named_options(
        path,
        table,
        vhost=vhost,
        queue=queue,
        as_of=as_of,
        since=since,
        until=until,
        first_seq=first_seq,
        last_seq=last_seq,
        starting_offsets=starting_offsets,
        ending_offsets=ending_offsets,
        limit=limit,
        mode=mode,
    )
    options = parse_options(given)
    chosen = chosen_columns(table, columns)
    plan = plan_table(options, Selection(limits=options.batch_limits))
    # As a stream, the reader frees its batches when it is closed, not only when it is freed itself.
    batches = _Batches(plan, options, chosen)
    return pa.RecordBatchReader.from_stream(pa.RecordBatchReader.from_batches(arrow_schema(table, chosen), batches))


class _Batches:
    """The record batches of a plan; removes its snapshot at the end.

    Args:
        plan: The plan.
        options: Options of the data source.
        columns: Names of the columns, in order.
    """

    def __init__(self, plan: TablePlan, options: Options, columns: Sequence[str]) -> None:
        self._batches = read_partitions(plan.partitions, options, columns)
        self._release = hold(self, plan.lease) if plan.lease is not None else lambda: None

    def __iter__(self) -> _Batches:
        return self

    def __next__(self) -> pa.RecordBatch:
        try:
            return next(self._batches)
        except BaseException:
            # The last batch has been read, or nothing more can be.
            self._release()
            raise
