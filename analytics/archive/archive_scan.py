"""`leveret.scan` of an archive, alone or together with live data directories."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from leveret.analytics.archive.archive_plan import check_archive_options, plan_archive
from leveret.analytics.archive.archive_reading import read_parts
from leveret.analytics.archive.archived_columns import archived_schema, archived_types
from leveret.analytics.archive.sources import Sources
from leveret.analytics.bodies.body_options import reads_values, types_with_values
from leveret.analytics.bodies.query_format import format_of
from leveret.analytics.held_snapshots import held_reader
from leveret.analytics.named_options import chosen_columns
from leveret.analytics.options import Options
from leveret.analytics.selection import Selection


def scan_archive(sources: Sources, options: Options, columns: Sequence[str] | None) -> pa.RecordBatchReader:
    """Read a table of an archive, and what live data directories have besides; see leveret.scan().

    Args:
        sources: What to read.
        options: Options of the data source.
        columns: Names of the columns, in order; None for all.
    Raises:
        OptionError: An option does not apply to archives, or the table has no such column.
        AnalyticsError: This Python lacks the library for the format of bodies.
        DataDirectoryError, SnapshotError, ArchiveError: As plan_archive() does.
    """
    check_archive_options(options)
    types = types_with_values(archived_types(options.table), options.bodies)
    chosen = chosen_columns(options.table, columns, types)
    form = format_of(options, sources=sources) if reads_values(chosen) else None
    plan = plan_archive(sources, options, Selection(limits=options.batch_limits))
    batches = read_parts(plan.parts, options, chosen, form)
    return held_reader(archived_schema(options.table, chosen, form), batches, plan.leases)
