"""Reads the parts of an archive, and of what live data directories have besides, in tasks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import pyarrow as pa

from leveret.analytics.archive.archive_files import ArchiveFiles
from leveret.analytics.archive.archive_part import ArchivePart
from leveret.analytics.archive.archive_plan import LivePart, Part
from leveret.analytics.archive.archived_columns import BROKER, with_broker
from leveret.analytics.archive.file_reading import read_file
from leveret.analytics.bodies.body_format import BodyFormat
from leveret.analytics.options import Options
from leveret.analytics.table_reading import read_partition


def read_parts(
    parts: Sequence[Part], options: Options, columns: Sequence[str], bodies: BodyFormat | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield the record batches of parts, up to the limit of the options; later files are not opened.

    Args:
        parts: The parts.
        options: Options of the data source.
        columns: Names of the columns, in order.
        bodies: How bodies are read; None if no column needs it.
    Raises:
        ArchiveError: A file of the archive cannot be read.
        DamagedRecordError: A record of a live data directory is damaged, and `fail_fast` is set.
        AnalyticsError: The snapshot of a data directory is gone.
    """
    left = options.limit
    for part in parts:
        if left == 0:
            return
        for batch in _read_part(part, options, columns, bodies):
            found = batch if left is None else batch.slice(0, left)
            yield found
            if left is not None:
                left -= found.num_rows
                if not left:
                    return


def _read_part(
    part: Part, options: Options, columns: Sequence[str], bodies: BodyFormat | None
) -> Iterator[pa.RecordBatch]:
    if isinstance(part, LivePart):
        # A table without columns would have no rows.
        live = [name for name in columns if name != BROKER] or ["queue_id"]
        for batch in read_partition(part.partition, options.table, live, options.fail_fast, bodies):
            yield with_broker(batch, part.broker, columns)
        return
    yield from read_archived(part, options.table, columns, bodies)


def read_archived(
    part: ArchivePart,
    table: str,
    columns: Sequence[str],
    bodies: BodyFormat | None,
    choose: Callable[[list[int]], list[int]] | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yield the selected rows of files of an archive.

    Args:
        part: The files.
        table: Name of the table.
        columns: Names of the columns, in order.
        bodies: How bodies are read; None if no column needs it.
        choose: See read_file().
    Raises:
        ArchiveError: A file cannot be read.
    """
    files = ArchiveFiles(part.url)
    if bodies is None:
        for path in part.files:
            yield from read_file(files, path, part, table, columns, choose)
        return
    # Imported late, since it takes long to load and few queries need it.
    from leveret.analytics.archive.archived_values import stored_columns, with_values

    reader, stored = bodies.reader(), stored_columns(columns)
    for path in part.files:
        for batch in read_file(files, path, part, table, stored, choose):
            yield with_values(batch, columns, reader)
