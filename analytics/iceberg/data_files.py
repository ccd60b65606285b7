"""What a table says of a Parquet file of the archive: its partition and statistics."""

from __future__ import annotations

from typing import NamedTuple

import pyarrow.parquet as pq
from pyiceberg.io.pyarrow import (
    compute_statistics_plan,
    data_file_statistics_from_parquet_metadata,
    parquet_path_to_id_mapping,
)
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.typedef import Record

from leveret.analytics.archive import manifest
from leveret.analytics.archive.archive_files import ArchiveFiles
from leveret.analytics.archive.buckets import Bucket, has_queues
from leveret.analytics.archive.data_writer import MERGED, SORTED
from leveret.analytics.archive.file_reading import open_data
from leveret.analytics.archive.layout import DAY
from leveret.analytics.columns import ARCHIVED_TABLES, layout_of
from leveret.analytics.errors import ArchiveError


class TableFile(NamedTuple):
    """A file for a table.

    Attributes:
        file: What the table says of it.
        is_merged: Whether its rows were in smaller files before.
    """

    file: DataFile
    is_merged: bool


def table_file(
    files: ArchiveFiles, file: manifest.DataFile, metadata: TableMetadata, bucket: Bucket | None
) -> TableFile:
    """Return a file for a table.

    Args:
        metadata: That of the table; its default partitions are those of the file.
        bucket: The bucket of its queues; None if they are of several.
    Raises:
        ArchiveError: The file cannot be read.
    """
    try:
        with files.errors(file.path), open_data(files, file.path) as source:
            footer = pq.read_metadata(source)
    except FileNotFoundError as error:
        raise ArchiveError(f"{files.shown}/{file.path} is missing; restore it from a copy of the archive") from error
    schema = metadata.schema()
    statistics = data_file_statistics_from_parquet_metadata(
        footer, compute_statistics_plan(schema, metadata.properties), parquet_path_to_id_mapping(schema)
    )
    day = file.first // DAY
    is_of_queues = has_queues(ARCHIVED_TABLES[layout_of(file.table)])
    notes = footer.metadata or {}
    is_sorted = notes.get(SORTED.encode()) == b"true"
    made = DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=files.location(file.path),
        file_format=FileFormat.PARQUET,
        partition=Record(day) if bucket is None or not is_of_queues else Record(day, bucket.number),
        file_size_in_bytes=file.bytes,
        sort_order_id=metadata.default_sort_order_id if is_sorted else 0,
        spec_id=metadata.default_spec_id,
        equality_ids=None,
        key_metadata=None,
        **statistics.to_serialized_dict(),
    )
    return TableFile(made, notes.get(MERGED.encode()) == b"true")
