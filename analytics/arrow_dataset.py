"""`leveret.dataset`: a table as an Arrow dataset, into which DuckDB and Polars push conditions and columns."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, Final

import pyarrow as pa
import pyarrow.dataset as ds
from pyarrow.fs import LocalFileSystem

from leveret.analytics.archive.sources import find_sources
from leveret.analytics.arrow_schema import arrow_schema
from leveret.analytics.bodies.body_options import reads_values, types_with_values
from leveret.analytics.bodies.query_format import format_of
from leveret.analytics.columns import TABLES
from leveret.analytics.dataset_parts import DatasetPart, live_parts
from leveret.analytics.errors import OptionError
from leveret.analytics.held_snapshots import hold
from leveret.analytics.named_options import locations_in, named_options, schema_text
from leveret.analytics.options import parse_options
from leveret.analytics.selection import Selection
from leveret.analytics.table_plan import plan_table
from leveret.storage.snapshots.lease import SnapshotLease

#: A column that is read where a query needs none, as to count the rows.
_CHEAP: Final = "seq"


def dataset(
    path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]], table: str = "messages", **options: Any
) -> LeveretDataset:
    """Return a table of a data directory or archive as it is now, as a dataset that can be queried again and again.

    DuckDB, Polars and PyArrow tell it the columns and conditions of a query: what a condition on virtual host, queue,
    number or time excludes is not opened, and only the columns that are needed are decoded. All queries show the moment
    of this call. The snapshot is kept until the dataset is closed or freed.

    Args:
        path: As leveret.scan() takes it.
        table: Name of the table.
        options: Those of leveret.scan() except `columns` and `limit`, which queries say.
    Raises:
        OptionError, DataDirectoryError, SnapshotError, AnalyticsError, ArchiveError, DamagedRecordError: As
            leveret.scan() does.
    """
    locations = locations_in(path)
    for name in ("columns", "limit"):
        if name in options:
            raise OptionError(f"a dataset has no {name}, because queries say it; leveret.scan() takes it")
    if "body_schema" in options:
        options["body_schema"] = schema_text(options["body_schema"])
    parsed = parse_options(named_options(locations[0], table, **options))
    sources = find_sources(locations)
    if sources is not None:
        # Data directories are read without what archives need.
        from leveret.analytics.archive.archive_dataset import archive_contents

        return LeveretDataset(*archive_contents(sources, parsed))
    columns = list(types_with_values(TABLES[table], parsed.bodies))
    form = format_of(parsed) if reads_values(columns) else None
    plan = plan_table(parsed, Selection(limits=parsed.batch_limits))
    leases = [] if plan.lease is None else [plan.lease]
    return LeveretDataset(arrow_schema(table, columns, form), live_parts(plan.partitions, parsed, form), leases)


class LeveretDataset(ds.Dataset):  # type: ignore[misc]
    """A table at one moment. It has no files of its own: what a query needs is made of the parts when it is run.

    Args:
        schema: The columns.
        parts: The parts.
        leases: Leases of the snapshots that they are read from.
    """

    def __init__(self, schema: pa.Schema, parts: Iterable[DatasetPart], leases: Sequence[SnapshotLease] = ()) -> None:
        self._columns = schema
        self._parts = list(parts)
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
        return ds.Scanner.from_batches(batches, schema=schema, columns=columns, filter=condition)

    def filter(self, expression: Any) -> LeveretDataset:
        """Return the dataset with a condition."""
        found = LeveretDataset(self._columns, self._parts)
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

    def _chosen(self, condition: Any) -> list[DatasetPart]:
        """Return the parts that can have rows which fulfil a condition."""
        if condition is None:
            return self._parts
        return [self._parts[int(each.path)] for each in self._catalog.get_fragments(filter=condition)]

    def _batches(self, parts: Sequence[DatasetPart], columns: Sequence[str], condition: Any) -> Iterator[Any]:
        for part in parts:
            yield from part.read(columns, condition)

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
