"""`leveret.dataset`: a table as an Arrow dataset, into which DuckDB and Polars push conditions and columns."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial, reduce
from operator import and_
from typing import Any, Final, NamedTuple, Unpack

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from pyarrow.fs import LocalFileSystem

from leveret.analytics.archive.layout import parse_data_name
from leveret.analytics.archive.manifests import ArchivePart, DataFile
from leveret.analytics.arrow_schema import schema_of
from leveret.analytics.columns import BROKER, TIME_COLUMNS, types_of
from leveret.analytics.errors import OptionError
from leveret.analytics.options import ScanOptions, takes_options
from leveret.analytics.selection import Selection
from leveret.analytics.tables.partitions import (
    EventsPartition,
    LivePart,
    MessagesPartition,
    Part,
    Partition,
    QueuesPartition,
    SegmentPart,
    event_times,
)
from leveret.analytics.tables.query_snapshots import hold
from leveret.analytics.tables.table_query import TableQuery, query_of
from leveret.storage.snapshots.lease import SnapshotLease

#: A column that is read where a query needs none, as to count the rows.
_CHEAP: Final = "seq"
_TIME: Final = pa.timestamp("us", tz="UTC")
_SEQ_MAX: Final = (1 << 63) - 1


@takes_options(ScanOptions)
def dataset(
    path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    table: str = "messages",
    **options: Unpack[ScanOptions],
) -> LeveretDataset:
    """Return a table of a data directory or archive as it is now, as a dataset that can be queried again and again.

    DuckDB, Polars and PyArrow tell it the columns and conditions of a query: what a condition on virtual host, queue,
    number or time excludes is not opened, and only the columns that are needed are decoded. All queries show the moment
    of this call. The snapshot is kept until the dataset is closed or freed.

    Args:
        path: As leveret.scan() takes it.
        table: Name of the table.
        options: See ScanOptions.
    Raises:
        OptionError, DataDirectoryError, SnapshotError, AnalyticsError, ArchiveError, DamagedRecordError: As
            leveret.scan() does.
    """
    for name in ("columns", "limit"):
        if name in options:
            raise OptionError(f"a dataset has no {name}, because queries say it; leveret.scan() takes it")
    return dataset_of(query_of(path, table, options))


def dataset_of(query: TableQuery, selection: Selection | None = None, reads_ahead: bool = True) -> LeveretDataset:
    """Return what a query reads as a dataset; see dataset().

    Args:
        selection: The rows that it has; None for those of the query's options.
        reads_ahead: See LeveretDataset.
    """
    plan = query.plan(selection)
    parts = [DatasetPart(*piece) for part in plan.parts for piece in _pieces(part, query.options.table)]
    return LeveretDataset(query, parts, plan.leases, reads_ahead)


class DatasetPart(NamedTuple):
    """A part of a dataset.

    Attributes:
        known: An expression that is true of all its rows.
        part: The part of the table.
    """

    known: Any
    part: Part


class _DemandScanner:
    """What DuckDB needs of a scanner; it reads what is asked for."""

    def __init__(self, batches: Iterator[Any], schema: pa.Schema, columns: Sequence[str], condition: Any) -> None:
        self._batches = batches
        self._columns = columns
        self._condition = condition
        self.projected_schema = pa.schema([schema.field(name) for name in columns])

    def to_reader(self) -> pa.RecordBatchReader:
        """Return the rows."""
        return pa.RecordBatchReader.from_batches(self.projected_schema, self._chosen())

    def _chosen(self) -> Iterator[Any]:
        for batch in self._batches:
            found = batch if self._condition is None else batch.filter(self._condition)
            if found.num_rows:
                yield found.select(self._columns)


class LeveretDataset(ds.Dataset):  # type: ignore[misc]
    """A table at one moment. It has no files of its own: what a query needs is made of the parts when it is run.

    Args:
        leases: Leases of the snapshots that they are read from.
        reads_ahead: Whether scanners are PyArrow's, which read up to 1 GiB that nobody has asked for; otherwise they do
            what DuckDB needs.
    """

    def __init__(
        self,
        query: TableQuery,
        parts: Sequence[DatasetPart],
        leases: Sequence[SnapshotLease] = (),
        reads_ahead: bool = True,
    ) -> None:
        self._query = query
        self._reads_ahead = reads_ahead
        self._columns = query.schema
        self._parts = parts
        self._condition: Any = None
        #: Keeps the snapshots, if this is another dataset with a condition.
        self._whole: LeveretDataset | None = None
        self._releases: list[Callable[[], object]] = [hold(self, lease) for lease in leases]

    @property
    def schema(self) -> pa.Schema:
        """The columns."""
        return self._columns

    def scanner(
        self, columns: Sequence[str] | Mapping[str, Any] | None = None, filter: Any = None, **more: Any
    ) -> ds.Scanner:
        """Return what reads the rows that fulfil a condition; see pyarrow.dataset.Dataset.scanner().

        Args:
            columns: Names of the columns, or expressions by name; None for all.
            filter: The condition, an expression; None for all rows.
            more: What else PyArrow's takes; it changes nothing.
        """
        condition = _both(self._condition, filter)
        wanted = self._columns.names if columns is None else columns
        needed = set() if condition is None else self._fields_of(condition)
        for each in wanted.values() if isinstance(wanted, Mapping) else ():
            needed |= self._fields_of(each.is_null())
        needed |= set() if isinstance(wanted, Mapping) else set(wanted)
        names = [name for name in self._columns.names if name in needed]
        names = names or [_CHEAP if _CHEAP in self._columns.names else self._columns.names[0]]
        schema = pa.schema([self._columns.field(name) for name in names])
        batches = self._batches(self._chosen(condition), names, condition)
        columns = wanted if isinstance(wanted, Mapping) else list(wanted)
        if not (self._reads_ahead or isinstance(columns, Mapping)):
            return _DemandScanner(batches, schema, columns, condition)
        return ds.Scanner.from_batches(batches, schema=schema, columns=columns, filter=condition)

    def filter(self, expression: Any) -> LeveretDataset:
        """Return the dataset with a condition."""
        found = LeveretDataset(self._query, self._parts, reads_ahead=self._reads_ahead)
        found._condition, found._whole = _both(self._condition, expression), self
        return found

    def close(self) -> None:
        """Remove the snapshot; queries fail afterwards. Further calls do nothing."""
        for release in self._releases:
            release()

    def sort_by(self, sorting: Any, **options: Any) -> ds.InMemoryDataset:
        """Return the rows in an order; see pyarrow.dataset.Dataset.sort_by()."""
        return ds.InMemoryDataset(self.to_table().sort_by(sorting, **options))

    def join(self, right_dataset: Any, keys: Any, *more: Any, **options: Any) -> ds.InMemoryDataset:
        """Return a join with another dataset; see pyarrow.dataset.Dataset.join()."""
        return ds.InMemoryDataset(self.to_table()).join(right_dataset, keys, *more, **options)

    def join_asof(self, right_dataset: Any, *more: Any, **options: Any) -> ds.InMemoryDataset:
        """Return a join by time; see pyarrow.dataset.Dataset.join_asof()."""
        return ds.InMemoryDataset(self.to_table()).join_asof(right_dataset, *more, **options)

    def get_fragments(self, filter: Any = None) -> Iterator[ds.Fragment]:
        """Not supported: its parts are no files that PyArrow reads."""
        raise NotImplementedError("a dataset of leveret has no fragments; use scanner(), to_batches() or to_table()")

    def replace_schema(self, schema: Any) -> LeveretDataset:
        """Not supported: the columns are those of the table."""
        raise NotImplementedError("a dataset of leveret has the columns of its table; use scanner(columns=…)")

    @property
    def partition_expression(self) -> Any:
        """Not supported: what is known of rows is known of each part."""
        raise NotImplementedError("a dataset of leveret knows something of each of its parts, nothing of all of them")

    def __reduce__(self) -> Any:
        raise TypeError("a dataset of leveret belongs to its process; send to_table(), or make it where it is needed")

    @cached_property
    def _catalog(self) -> ds.FileSystemDataset:
        """A dataset of files that do not exist, of which Arrow says by conditions which ones are to be read."""
        form, system = ds.ParquetFileFormat(), LocalFileSystem()
        fragments = [
            form.make_fragment(str(number), system, partition_expression=part.known)
            for number, part in enumerate(self._parts)
        ]
        return ds.FileSystemDataset(fragments, self._columns, form, system)

    def _chosen(self, condition: Any) -> Sequence[DatasetPart]:
        """Return the parts that can have rows which fulfil a condition."""
        if condition is None:
            return self._parts
        return [self._parts[int(each.path)] for each in self._catalog.get_fragments(filter=condition)]

    def _batches(self, parts: Sequence[DatasetPart], columns: Sequence[str], condition: Any) -> Iterator[Any]:
        for _, part in parts:
            # Of the files of an archive, only the row groups that the condition leaves.
            choose = None
            if isinstance(part, ArchivePart) and condition is not None:
                choose = partial(_row_groups, part, self._query, condition)
            yield from self._query.read_part(part, columns, choose=choose)

    def _fields_of(self, expression: Any) -> set[str]:
        """Return the names of the columns that an expression with the value of a condition needs."""
        empty = self._columns.empty_table()
        # What is wrong with it is told here.
        empty.filter(expression)
        return {name for name in self._columns.names if not _works(empty.drop_columns([name]), expression)}


def _both(one: Any, other: Any) -> Any:
    return other if one is None else one if other is None else one & other


def _works(table: pa.Table, expression: Any) -> bool:
    try:
        table.filter(expression)
    except pa.ArrowInvalid:
        # It has no such column.
        return False
    return True


def _pieces(part: Part, table: str) -> Iterator[tuple[Any, Part]]:
    """Yield pieces of a part of a table, and what is known of each."""
    if isinstance(part, ArchivePart):
        for file in part.data:
            yield _known_of_file(file), replace(part, files=[file.path], data=(file,))
    elif isinstance(part, LivePart):
        for known, piece in _live_pieces(part.partition, table):
            yield known & (pc.field(BROKER) == part.broker), LivePart(piece, part.broker)
    else:
        yield from _live_pieces(part, table)


def _live_pieces(part: Partition, table: str) -> Iterator[tuple[Any, Partition]]:
    if isinstance(part, MessagesPartition):
        for each in part.parts:
            yield _known_of_segment(each, table), MessagesPartition(part.place, [each])
    elif isinstance(part, QueuesPartition):
        for queue in part.queues:
            known = [pc.field("vhost") == queue.vhost, pc.field("queue") == queue.name]
            yield _all_of([*known, pc.field("queue_id") == queue.qid]), QueuesPartition(part.place, [queue])
    elif isinstance(part, EventsPartition):
        times = event_times(part.view)
        yield _between("at", *times) & _between("event_at", *times), part
    else:
        yield pc.scalar(True), part


def _known_of_segment(part: SegmentPart, table: str) -> Any:
    view, label = part.view, part.label
    seq = pc.field("seq")
    known = [pc.field("vhost") == label.vhost, seq >= view.first_seq, seq <= min(view.last_seq, _SEQ_MAX)]
    if table == "delayed":
        known.append(pc.field("delayed_in") == label.queue)
    else:
        known += [pc.field("queue") == label.queue, pc.field("queue_id") == view.qid]
    if view.sealed:
        arrived = "published_at" if table == "delayed" else "enqueued_at"
        known.append(_between(arrived, view.min_arrived, view.max_arrived))
    return _all_of(known)


def _known_of_file(file: DataFile) -> Any:
    known = [_between(TIME_COLUMNS[file.table], file.first, file.last)]
    name = parse_data_name(file.path)
    if name is not None:
        known.append(pc.field(BROKER) == name.broker)
    # Arrow concludes something from ranges, but nothing from sets.
    for column, names in zip(("vhost", "queue"), zip(*file.queues or (), strict=True), strict=False):
        if None not in names:
            known += [pc.field(column) >= min(names), pc.field(column) <= max(names)]
    return _all_of(known)


def _all_of(known: Sequence[Any]) -> Any:
    """Return the expression that is true if all of some are."""
    return reduce(and_, known, pc.scalar(True))


def _between(column: str, first: int, last: int) -> Any:
    """Return the expression that a time is in a range of microseconds since 1970."""
    field = pc.field(column)
    return (field >= pa.scalar(first, _TIME)) & (field <= pa.scalar(last, _TIME))


def _row_groups(part: ArchivePart, query: TableQuery, condition: Any, found: list[int]) -> list[int]:
    """Return those of some row groups that can have rows which fulfil a condition, by their statistics."""
    # Data directories are read without what archives need.
    from leveret.analytics.archive.archive_files import ArchiveFiles
    from leveret.analytics.archive.file_reading import open_data

    files, (path,) = ArchiveFiles(part.url), part.files
    types = types_of(query.options.table, is_archived=True)
    with open_data(files, path) as source, files.errors(path):
        fragment = ds.ParquetFileFormat().make_fragment(source)
        try:
            pieces = fragment.split_by_row_group(filter=condition, schema=schema_of(types, list(types)))
        except pa.ArrowInvalid:
            # The condition is on what the body says.
            return found
        there = {group.id for piece in pieces for group in piece.row_groups}
    return [number for number in found if number in there]
