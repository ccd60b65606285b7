"""One query of a table: which columns it has, how bodies are read, what its parts are, and the rows of these.

The same for Spark and for Arrow, for a data directory and for an archive with data directories.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from leveret.analytics.archive.layout import Sources, find_sources
from leveret.analytics.arrow_schema import schema_of
from leveret.analytics.bodies.body_format import BodyFormat, format_of_bodies
from leveret.analytics.bodies.value_types import schema_text, type_ddl
from leveret.analytics.columns import reads_values, types_of
from leveret.analytics.errors import AnalyticsError, OptionError
from leveret.analytics.options import Options, chosen_columns, locations_in, named_options, parse_options
from leveret.analytics.selection import Selection
from leveret.analytics.tables.body_rules import with_rule
from leveret.analytics.tables.partitions import Part, Plan
from leveret.analytics.tables.table_plan import plan_query
from leveret.analytics.tables.table_reading import read_part


@dataclass(frozen=True)
class TableQuery:
    """A query, which can be sent to workers.

    Attributes:
        options: Options of the data source.
        sources: The archive that is read, and data directories with it; None for a data directory alone.
        columns: Names of the columns, in order.
        bodies: How bodies are read; None if no column needs it.
    """

    options: Options
    sources: Sources | None
    columns: Sequence[str]
    bodies: BodyFormat | None = None

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema of its rows."""
        types = types_of(self.options.table, self.sources is not None)
        return schema_of(types, self.columns, None if self.bodies is None else self.bodies.kind)

    def plan(self, selection: Selection | None = None, session: str = "") -> Plan:
        """Take snapshots, and divide the table into parts; see plan_query().

        Args:
            selection: The rows to read; None for those of the options.
            session: Directory in which snapshots are recorded for the process that renews their leases; empty for none.
        """
        chosen = selection or Selection(limits=self.options.batch_limits)
        return plan_query(self.options, self.sources, chosen, session)

    def read(self, parts: Sequence[Part]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of parts, up to the limit of the options; later files are not opened."""
        left = self.options.limit
        for part in parts:
            if left == 0:
                return
            for batch in self.read_part(part, self.columns, left):
                if left is None:
                    yield batch
                    continue
                yield batch.slice(0, left)
                left -= min(left, batch.num_rows)
                if not left:
                    return

    def read_part(
        self,
        part: Part,
        columns: Sequence[str],
        limit: int | None = None,
        choose: Callable[[list[int]], list[int]] | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a part, with some of the columns; see table_reading.py."""
        bodies = self.bodies if reads_values(columns) else None
        return read_part(part, self.options.table, columns, self.options.fail_fast, bodies, limit, choose)


def make_query(
    options: Options, sources: Sources | None, columns: Sequence[str] | None = None, session: str = ""
) -> TableQuery:
    """Return the query for options.

    Args:
        options: Options of the data source.
        sources: The archive that is read, and data directories with it; None for a data directory alone.
        columns: Names of the columns, in order; None for all.
        session: Directory of the session; empty for none.
    Raises:
        OptionError: An option does not apply to archives, or the table has no such column.
        AnalyticsError, DataDirectoryError, SnapshotError, DamagedRecordError, ArchiveError: As format_of() does.
    """
    if sources is not None:
        options.for_archive()
    options = with_rule(options, sources)
    types = types_of(options.table, sources is not None, options.bodies is not None)
    chosen = chosen_columns(options.table, columns, types)
    return TableQuery(options, sources, chosen, format_of(options, session, sources) if reads_values(chosen) else None)


def query_of(
    path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    table: str,
    given: Mapping[str, Any],
    columns: Sequence[str] | None = None,
) -> TableQuery:
    """Return the query for arguments of a Python function; see make_query().

    Args:
        path: A data directory or an archive, or a list of one archive and of data directories.
    """
    locations = locations_in(path)
    options = parse_options(python_options(locations[0], table, given))
    return make_query(options, find_sources(locations), columns)


def python_options(path: str | os.PathLike[str], table: str, given: Mapping[str, Any]) -> dict[str, str]:
    """Return the options of the data source for arguments of a Python function; see named_options()."""
    schema = {"body_schema": schema_text(given["body_schema"])} if "body_schema" in given else {}
    return named_options(path, table, {**given, **schema})


def format_of(options: Options, session: str = "", sources: Sources | None = None) -> BodyFormat | None:
    """Return the format of a query's bodies; None if it does not read any.

    Raises:
        OptionError: The schema cannot be read, or is not one.
        AnalyticsError: This Python lacks the library for the format.
        AnalyticsError, DataDirectoryError, SnapshotError, DamagedRecordError, ArchiveError: As plan_query() does.
    """
    bodies = options.bodies
    if bodies is None:
        return None
    try:
        if bodies.form != "json" or bodies.schema or bodies.rule is not None:
            return format_of_bodies(bodies)
    except AnalyticsError as error:
        if bodies.rule is None:
            raise
        kind = OptionError if isinstance(error, OptionError) else AnalyticsError
        raise kind(f"rule '{bodies.rule.name}' for bodies: {error}") from error
    # Imported late, as what parses JSON takes long to load.
    from leveret.analytics.tables.sampling import inferred_type

    return BodyFormat("json", type_ddl(inferred_type(options, bodies.sample, session, sources)))
