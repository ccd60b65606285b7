"""Reads the files of an archive."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from leveret.analytics.archive.archive_files import ArchiveFiles
from leveret.analytics.archive.layout import superseded_path
from leveret.analytics.archive.manifests import ArchivePart
from leveret.analytics.arrow_schema import schema_of
from leveret.analytics.bodies.body_format import BodyFormat
from leveret.analytics.columns import ARCHIVED_TABLES, TIME_COLUMNS
from leveret.analytics.errors import ArchiveError
from leveret.analytics.option_values import is_plain
from leveret.analytics.selection import RowLimits, Selection
from leveret.storage.readers.reader_file import matches, names_in


def read_file(
    files: ArchiveFiles,
    path: str,
    part: ArchivePart,
    table: str,
    columns: Sequence[str],
    choose: Callable[[list[int]], list[int]] | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yield the selected rows of a file of an archive.

    Args:
        choose: Chooses some of the row groups that can have selected rows; None for all.
    Raises:
        ArchiveError: The file cannot be read.
    """
    schema, conditions = schema_of(ARCHIVED_TABLES[table], columns), _columns_of_conditions(part, table)
    try:
        with open_data(files, path) as source, files.errors(path):
            file = pq.ParquetFile(source)
            groups = [
                number for number in range(file.num_row_groups) if _can_have(part, file.metadata.row_group(number))
            ]
            for group in groups if choose is None else choose(groups):
                chosen = _chosen(file.read_row_group(group, columns=conditions), part, table) if conditions else None
                if chosen is None or chosen.any():
                    rows = _rows(file, group, schema)
                    is_all = chosen is None or chosen.all()
                    yield from (rows if is_all else rows.filter(pa.array(chosen))).to_batches()
    except FileNotFoundError as error:
        raise ArchiveError(
            f"{files.full_path(path)} is gone: the archive was compacted or its retention has removed it after the "
            "query was planned; run the query again"
        ) from error


def read_whole(files: ArchiveFiles, path: str, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a file with the columns that its table has now.

    Raises:
        ArchiveError: The file cannot be read.
    """
    try:
        with open_data(files, path) as source, files.errors(path):
            file = pq.ParquetFile(source)
            for group in range(file.num_row_groups):
                yield from _rows(file, group, schema).to_batches()
    except FileNotFoundError as error:
        raise ArchiveError(f"{files.full_path(path)} is gone; restore it from a copy of the archive") from error


def _rows(file: pq.ParquetFile, group: int, schema: pa.Schema) -> pa.Table:
    """Return the rows of a row group with the columns of a schema: one that is newer than the file is null."""
    there = set(file.schema_arrow.names)
    found = file.read_row_group(group, columns=[name for name in schema.names if name in there])
    count = file.metadata.row_group(group).num_rows
    arrays = [
        conformed(found.column(field.name), field.type) if field.name in there else pa.nulls(count, field.type)
        for field in schema
    ]
    return pa.Table.from_arrays(arrays, schema=schema)


def conformed(values: Any, kind: pa.DataType) -> Any:
    """Return values as those of a wider type; what they lack is null."""
    return values if values.type == kind else pa.array(values.to_pylist(), kind)


def open_data(files: ArchiveFiles, path: str) -> Any:
    """Open a data file, also if it does not belong to the archive any more since a query has begun.

    Raises:
        FileNotFoundError: It does not exist.
        ArchiveError: It cannot be opened.
    """
    try:
        return files.open(path)
    except FileNotFoundError:
        return files.open(superseded_path(path))


def read_archived(
    part: ArchivePart,
    table: str,
    columns: Sequence[str],
    bodies: BodyFormat | None,
    choose: Callable[[list[int]], list[int]] | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yield the selected rows of files of an archive.

    Args:
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
    from leveret.analytics.bodies.payloads import stored_columns, with_values

    reader, stored = bodies.reader(), stored_columns(columns)
    for path in part.files:
        for batch in read_file(files, path, part, table, stored, choose):
            yield with_values(batch, columns, reader)


def _chosen(found: pa.Table, part: ArchivePart, table: str) -> Any:
    """Return for each row whether it is selected."""
    selection = part.selection
    chosen = np.ones(found.num_rows, np.bool_)
    for name, pattern in (("vhost", part.vhost), ("queue", part.queue)):
        if name not in found.column_names:
            continue
        allowed = selection.names.get(name)
        names = [
            value
            for value in pc.unique(found[name]).to_pylist()
            if value is not None and matches(value, pattern) and (allowed is None or value in allowed)
        ]
        chosen &= pc.is_in(found[name], value_set=pa.array(names, pa.string())).to_numpy()
    if selection.readable is not None:
        chosen &= _readable(found, selection)
    limits = selection.limits
    ranges = {"seq": (limits.first_seq, limits.last_seq)}
    ranges[TIME_COLUMNS[table]] = (limits.first_time, limits.last_time)
    for name, (first, last) in ranges.items():
        if name in found.column_names:
            values = found[name].cast(pa.int64()).to_numpy()
            chosen &= (values >= first) & (values <= last)
    return chosen


def _can_have(part: ArchivePart, group: Any) -> bool:
    """Return whether a row group can have rows of the queue, by its statistics."""
    exact = {
        name: names_in(wanted)
        for name, wanted in (("vhost", part.vhost), ("queue", part.queue))
        if wanted is not None and all(map(is_plain, names_in(wanted)))
    }
    columns = (group.column(at) for at in range(group.num_columns))
    known = {each.path_in_schema: each.statistics for each in columns if each.path_in_schema in exact}
    return all(
        found is None or not found.has_min_max or any(found.min <= each <= found.max for each in exact[name])
        for name, found in known.items()
    )


def _readable(found: pa.Table, selection: Selection) -> Any:
    """Return for each row whether it is of a queue that may be read."""
    vhosts, queues = (found[name].combine_chunks().dictionary_encode() for name in ("vhost", "queue"))
    # A row without a name has the index after the last one.
    names = [[*each.dictionary.to_pylist(), None] for each in (vhosts, queues)]
    indices = [
        pc.fill_null(each.indices, len(each.dictionary)).to_numpy(zero_copy_only=False).astype(np.int64)
        for each in (vhosts, queues)
    ]
    pairs, places = np.unique(indices[0] * len(names[1]) + indices[1], return_inverse=True)
    readable = [
        selection.may_read(names[0][pair // len(names[1])], names[1][pair % len(names[1])]) for pair in pairs.tolist()
    ]
    return np.array(readable, np.bool_)[places]


def _columns_of_conditions(part: ArchivePart, table: str) -> list[str]:
    """Return the names of the columns by which rows are selected."""
    limits, widest, names = part.selection.limits, RowLimits(), part.selection.names
    found = []
    is_restricted = part.selection.readable is not None
    if part.vhost is not None or "vhost" in names or is_restricted:
        found.append("vhost")
    if part.queue is not None or "queue" in names or is_restricted:
        found.append("queue")
    if table == "messages" and (limits.first_seq, limits.last_seq) != (widest.first_seq, widest.last_seq):
        found.append("seq")
    if (limits.first_time, limits.last_time) != (widest.first_time, widest.last_time):
        found.append(TIME_COLUMNS[table])
    return found
