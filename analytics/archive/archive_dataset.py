"""The contents of `leveret.dataset` of an archive, alone or together with live data directories."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from leveret.analytics.archive.archive_files import ArchiveFiles
from leveret.analytics.archive.archive_part import ArchivePart
from leveret.analytics.archive.archive_plan import LivePart, check_archive_options, plan_archive
from leveret.analytics.archive.archive_reading import read_archived
from leveret.analytics.archive.archived_columns import BROKER, archived_schema, archived_types, with_broker
from leveret.analytics.archive.file_reading import open_data
from leveret.analytics.archive.layout import TIME_COLUMNS, parse_data_name
from leveret.analytics.archive.manifest import DataFile
from leveret.analytics.archive.sources import Sources
from leveret.analytics.bodies.body_format import BodyFormat
from leveret.analytics.bodies.body_options import reads_values, types_with_values
from leveret.analytics.bodies.query_format import format_of
from leveret.analytics.dataset_parts import DatasetPart, all_of, between, live_parts
from leveret.analytics.options import Options
from leveret.analytics.selection import Selection
from leveret.storage.snapshots.lease import SnapshotLease


def archive_contents(
    sources: Sources, options: Options
) -> tuple[pa.Schema, list[DatasetPart], Sequence[SnapshotLease]]:
    """Return the columns, the parts and the leases of a table; see leveret.dataset().

    Args:
        sources: What to read.
        options: Options of the data source.
    Raises:
        OptionError: An option does not apply to archives.
        AnalyticsError: This Python lacks the library for the format of bodies.
        DataDirectoryError, SnapshotError, ArchiveError: As plan_archive() does.
    """
    check_archive_options(options)
    columns = list(types_with_values(archived_types(options.table), options.bodies))
    form = format_of(options, sources=sources) if reads_values(columns) else None
    plan = plan_archive(sources, options, Selection(limits=options.batch_limits))
    parts: list[DatasetPart] = []
    for part in plan.parts:
        if isinstance(part, LivePart):
            parts += (_live(each, part.broker) for each in live_parts([part.partition], options, form))
        else:
            parts += (_archived(part, file, options, form) for file in part.data)
    return archived_schema(options.table, columns, form), parts, plan.leases


def _live(part: DatasetPart, broker: str) -> DatasetPart:
    def read(columns: Sequence[str], condition: Any) -> Iterator[pa.RecordBatch]:
        # A table without columns would have no rows.
        live = [name for name in columns if name != BROKER] or ["queue_id"]
        for batch in part.read(live, condition):
            yield with_broker(batch, broker, columns)

    return DatasetPart(all_of([part.known, pc.field(BROKER) == broker]), read)


def _archived(part: ArchivePart, file: DataFile, options: Options, bodies: BodyFormat | None) -> DatasetPart:
    known = [between(TIME_COLUMNS[file.table], file.first, file.last)]
    name = parse_data_name(file.path)
    if name is not None:
        known.append(pc.field(BROKER) == name.broker)
    # Arrow concludes something from ranges, but nothing from sets.
    for column, names in zip(("vhost", "queue"), zip(*file.queues or (), strict=True), strict=False):
        if None not in names:
            known += [pc.field(column) >= min(names), pc.field(column) <= max(names)]
    one = replace(part, files=[file.path], data=(file,))
    return DatasetPart(all_of(known), partial(_read_archived, one, options, bodies))


def _read_archived(
    part: ArchivePart, options: Options, bodies: BodyFormat | None, columns: Sequence[str], condition: Any
) -> Iterator[pa.RecordBatch]:
    form = bodies if reads_values(columns) else None
    choose = None if condition is None else partial(_groups, part, options.table, condition)
    return read_archived(part, options.table, columns, form, choose)


def _groups(part: ArchivePart, table: str, condition: Any, found: list[int]) -> list[int]:
    """Return those of some row groups that can have rows which fulfil a condition, by their statistics."""
    files, (path,) = ArchiveFiles(part.url), part.files
    schema = archived_schema(table, list(archived_types(table)))
    with open_data(files, path) as source, files.errors(path):
        fragment = ds.ParquetFileFormat().make_fragment(source)
        try:
            pieces = fragment.split_by_row_group(filter=condition, schema=schema)
        except pa.ArrowInvalid:
            # The condition is on what the body says.
            return found
        there = {group.id for piece in pieces for group in piece.row_groups}
    return [number for number in found if number in there]
