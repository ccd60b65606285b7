"""Writes rows of tables to the Parquet files of one manifest, by date and bucket, with bounded memory."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from leveret.analytics.archive.archive_files import ArchiveFiles
from leveret.analytics.archive.buckets import Bucket, Buckets, has_queues
from leveret.analytics.archive.layout import DAY, data_path, date_of
from leveret.analytics.archive.manifests import DataFile
from leveret.analytics.arrow_schema import archived_schema
from leveret.analytics.columns import time_column

#: Virtual hosts and names of queues, which may be null.
_Queues: TypeAlias = set[tuple[str | None, str | None]]
#: Bytes of rows in memory that make a row group.
_GROUP_BYTES: Final = 16 << 20
#: Maximum bytes of rows that wait in memory for their row groups, of all files together.
_BUFFERED_MAX: Final = 64 << 20
#: Maximum number of files that are written at a time: each is of a date, and of a bucket.
_OPEN_MAX: Final = 8
_OPEN_MAX_BY_BUCKET: Final = 24
#: Size in bytes at which a file is full.
_FILE_BYTES: Final = 256 << 20
#: A file that is of more queues does not name them.
_QUEUES_MAX: Final = 100
#: What a file whose row groups are sorted says: whether all of it is.
SORTED: Final = "leveret.sorted"
#: What a file says whose rows were in smaller files before.
MERGED: Final = "leveret.merged"
#: Columns whose values are long or all different: neither a dictionary nor their extremes are of use.
_LONG: Final = frozenset({"body", "headers", "headers_json"})


class DataWriter:
    """Writes data files; no manifest names them yet.

    As a context manager it drops the files that are not finished, if the block fails.

    Args:
        number: Number of the manifest that will name the files.
        buckets: Puts the queues into buckets: each file has rows of one, and row groups are sorted by time. None for
            files with rows of all queues, one queue after the other.
        schemas: The schemas of tables with what bodies say, by name.
        merges: Whether the rows are in other files, which these replace.
    """

    def __init__(
        self,
        files: ArchiveFiles,
        broker: str,
        number: int,
        buckets: Buckets | None = None,
        schemas: Mapping[str, pa.Schema] | None = None,
        merges: bool = False,
    ) -> None:
        self._files = files
        self._broker = broker
        self._number = number
        self._buckets = buckets
        self._schemas = schemas or {}
        self._merges = merges
        self._open_max = _OPEN_MAX if buckets is None else _OPEN_MAX_BY_BUCKET
        #: The file that is being written, by table, date and bucket; the one that was written to last is the last.
        self._open: dict[tuple[str, str, Bucket | None], _OpenFile] = {}
        self._done: list[DataFile] = []

    def add(self, table: str, batch: pa.RecordBatch) -> None:
        """Add rows, with all columns of the archived table.

        Raises:
            ArchiveError: They could not be written.
        """
        for date, day in _by_date(batch, time_column(table)):
            for bucket, part in [(None, day)] if self._buckets is None else self._buckets.split(day):
                key = table, date, bucket
                file = self._open.pop(key, None) or self._make(table, date, bucket)
                self._open[key] = file
                file.add(part)
                if file.buffered >= _GROUP_BYTES:
                    file.write_group()
                    if file.written >= _FILE_BYTES:
                        self._finish(key)
        if sum(file.buffered for file in self._open.values()) > _BUFFERED_MAX:
            for file in self._open.values():
                file.write_group()

    def finish(self) -> list[DataFile]:
        """Write what is left; return all files, which are on disk.

        Raises:
            ArchiveError: They could not be written.
        """
        for key in list(self._open):
            self._finish(key)
        return self._done

    def __enter__(self) -> DataWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        for file in self._open.values():
            file.discard()
        self._open.clear()

    def _make(self, table: str, date: str, bucket: Bucket | None) -> _OpenFile:
        if len(self._open) >= self._open_max:
            self._finish(next(iter(self._open)))
        notes = {} if bucket is None or self._buckets is None else self._buckets.notes(bucket)
        if notes and self._merges:
            notes = {**notes, MERGED: "true"}
        path = data_path(table, date, self._broker, self._number)
        return _OpenFile(self._files, path, table, notes, self._schemas.get(table))

    def _finish(self, key: tuple[str, str, Bucket | None]) -> None:
        self._done.append(self._open[key].finish())
        del self._open[key]


class _OpenFile:
    """A Parquet file that is being written.

    Args:
        typed: The schema of a table with what bodies say; None for other tables.
        notes: What the file says of itself; then its row groups are sorted by time, and it says so if all of it is.
    """

    def __init__(
        self, files: ArchiveFiles, path: str, table: str, notes: Mapping[str, str], typed: pa.Schema | None
    ) -> None:
        self._files = files
        self._path = path
        self._sink = files.new_file(path)
        self._table = table
        self._time = time_column(table)
        self._notes = notes
        schema = archived_schema(table) if typed is None else typed
        columns = schema.names if typed is None else _leaf_columns(typed)
        short = [name for name in columns if name.partition(".")[0] not in _LONG]
        with files.errors(path, is_written=True):
            self._writer = pq.ParquetWriter(
                self._sink, schema, compression="zstd", use_dictionary=short, write_statistics=short
            )
        self._batches: list[pa.RecordBatch] = []
        self._rows = 0
        self._first: int | None = None
        self._last = 0
        #: The latest time of the row groups that have been written; None if they are not sorted.
        self._sorted_until: int | None = -(1 << 63)
        self._queues: _Queues | None = set()
        #: Bytes of the rows in memory.
        self.buffered = 0

    @property
    def written(self) -> int:
        """Bytes that have been written."""
        return int(self._sink.tell())

    def add(self, batch: pa.RecordBatch) -> None:
        """Add rows of its date."""
        self._batches.append(batch)
        self.buffered += batch.nbytes
        self._rows += batch.num_rows
        found = _microseconds(batch, self._time)
        first, last = int(found.min()), int(found.max())
        self._last = last if self._first is None else max(self._last, last)
        self._first = first if self._first is None else min(self._first, first)
        if self._queues is not None:
            self._queues |= _queues_of(batch)
            if len(self._queues) > _QUEUES_MAX:
                self._queues = None

    def write_group(self) -> None:
        """Write the rows that are in memory as a row group."""
        if self._batches:
            table = pa.Table.from_batches(self._batches)
            self._batches, self.buffered = [], 0
            if self._notes:
                table = self._sorted(table)
            with self._files.errors(self._path, is_written=True):
                self._writer.write_table(table, row_group_size=table.num_rows)

    def finish(self) -> DataFile:
        """Write the rest; return what a manifest says about the file."""
        assert self._first is not None, "an empty file was begun"
        self.write_group()
        with self._files.errors(self._path, is_written=True):
            if self._notes:
                self._writer.add_key_value_metadata(
                    {**self._notes, SORTED: str(self._sorted_until is not None).lower()}
                )
            self._writer.close()
        size = self.written
        self._files.finish(self._path, self._sink)
        queues = None if self._queues is None else tuple(sorted(self._queues, key=str))
        return DataFile(self._table, self._path, self._rows, size, self._first, self._last, queues)

    def _sorted(self, table: pa.Table) -> pa.Table:
        """Return the rows of a row group in the order of their times."""
        times = _microseconds(table, self._time)
        if (times[1:] < times[:-1]).any():
            # Rows of the same time stay in their order.
            order = np.argsort(times, kind="stable")
            table, times = table.take(pa.array(order)), times[order]
        is_later = self._sorted_until is not None and int(times[0]) >= self._sorted_until
        self._sorted_until = int(times[-1]) if is_later else None
        return table

    def discard(self) -> None:
        """Drop the file."""
        # Otherwise it writes when it is freed.
        self._writer.is_open = False
        self._files.discard(self._path, self._sink)


def _by_date(batch: pa.RecordBatch, column: str) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Yield the rows of each date."""
    days = _microseconds(batch, column) // DAY
    found = np.unique(days)
    for day in found.tolist():
        yield date_of(day * DAY), batch if len(found) == 1 else batch.filter(pa.array(days == day))


def _microseconds(batch: pa.RecordBatch | pa.Table, column: str) -> npt.NDArray[np.int64]:
    """Return a column of times in microseconds since 1970."""
    times: npt.NDArray[np.int64] = batch.column(column).cast(pa.int64()).to_numpy(zero_copy_only=False)
    return times


def _queues_of(batch: pa.RecordBatch) -> _Queues:
    """Return virtual host and name of the queues of rows."""
    if not has_queues(batch.schema.names):
        return {(vhost, None) for vhost in batch.column("vhost").unique().to_pylist()}
    names = pa.Table.from_batches([batch.select(["vhost", "queue"])]).group_by(["vhost", "queue"]).aggregate([])
    return set(zip(names["vhost"].to_pylist(), names["queue"].to_pylist(), strict=True))


def _leaf_columns(schema: pa.Schema) -> list[str]:
    """Return the paths of the columns that a Parquet file of a schema has, as options of its writer name them."""
    sink = io.BytesIO()
    pq.write_table(schema.empty_table(), sink)
    found = pq.ParquetFile(sink).schema
    return [found.column(number).path for number in range(len(found))]
