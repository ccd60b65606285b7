"""What the Iceberg tables are: columns, partitions, sort order, properties; and what they say of files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.exceptions import ResolveError
from pyiceberg.io.pyarrow import (
    compute_statistics_plan,
    data_file_statistics_from_parquet_metadata,
    parquet_path_to_id_mapping,
)
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table, TableProperties
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.sorting import SortField, SortOrder
from pyiceberg.transforms import BucketTransform, DayTransform, IdentityTransform
from pyiceberg.typedef import Record
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    IcebergType,
    IntegerType,
    LongType,
    MapType,
    NestedField,
    StringType,
    TimestamptzType,
)

from leveret.analytics.archive import manifests
from leveret.analytics.archive.archive_files import ArchiveFiles
from leveret.analytics.archive.buckets import Bucket, Buckets, has_queues
from leveret.analytics.archive.data_writer import MERGED, SORTED
from leveret.analytics.archive.file_reading import open_data
from leveret.analytics.archive.layout import DAY
from leveret.analytics.arrow_schema import FIRST_COLUMNS, field_ids, later_columns
from leveret.analytics.bodies.value_types import parse_type
from leveret.analytics.columns import ARCHIVED_TABLES, BROKER, COLUMNS, TIME_COLUMNS, VALUE, VALUE_ERROR, layout_of
from leveret.analytics.errors import ArchiveError, ArchiveRefusedError

#: Number of buckets of queues.
_BUCKETS: Final = 8
_BUCKET: Final = "queue_bucket"
_QUEUE: Final = "queue"
#: The property of a table that says which archive it is of.
ARCHIVE: Final = "leveret.archive"
_PRIMITIVES: Final[Mapping[str, IcebergType]] = {
    "string": StringType(),
    "bigint": LongType(),
    "int": IntegerType(),
    "boolean": BooleanType(),
    "binary": BinaryType(),
    "timestamp": TimestamptzType(),
}
_PROPERTIES: Final = {
    TableProperties.FORMAT_VERSION: "2",
    # What is to be committed depends on what the table has, so a refused commit is never repeated as it was.
    TableProperties.COMMIT_NUM_RETRIES: "0",
    TableProperties.MANIFEST_MERGE_ENABLED: "true",
    TableProperties.METADATA_DELETE_AFTER_COMMIT_ENABLED: "true",
    TableProperties.METADATA_PREVIOUS_VERSIONS_MAX: "20",
    # The files have no statistics of them.
    **{
        f"{TableProperties.METRICS_MODE_COLUMN_CONF_PREFIX}.{name}": "none"
        for name in ("body", "headers.key", "headers.value", "headers_json")
    },
}


def queue_buckets() -> Buckets:
    """Return the buckets of queues, by Iceberg's hash."""
    return Buckets(_BUCKETS, BucketTransform(_BUCKETS).transform(StringType()))  # type: ignore[arg-type]


def new_table(name: str) -> dict[str, Any]:
    """Return the arguments with which a catalog makes a table; prepare() does the rest."""
    name = layout_of(name)
    numbers = field_ids(name)
    fields = [_field(name, column, numbers) for column in FIRST_COLUMNS[name]]
    time = TIME_COLUMNS[name]
    return {
        "schema": Schema(*fields),
        "partition_spec": PartitionSpec(PartitionField(numbers[time], 1000, DayTransform(), f"{time}_day")),
        "sort_order": SortOrder(SortField(numbers[time], IdentityTransform()), order_id=1),
        "properties": _PROPERTIES,
    }


def prepare(table: Table, name: str, archive: str, where: str, values: str | None = None) -> None:
    """Bring a table up to date: columns that have come later, buckets of queues, names of columns in older files.

    Args:
        values: Of a table with what bodies say, the type of the values in DDL; None for other tables.
        archive: URL of the archive that the table is of, without passwords.
        where: The table's name for error texts.
    Raises:
        ArchiveRefusedError: It is not a table of this archive.
    """
    found = table.properties.get(ARCHIVE)
    is_new = found is None and table.current_snapshot() is None
    if found != archive and not is_new:
        whose = "somebody else has made it" if found is None else f"it is of the archive {found}"
        raise ArchiveRefusedError(
            f"table {where} is not of the archive {archive}: {whose}; name another namespace with --iceberg-namespace, "
            "or drop the table"
        )
    name = layout_of(name)
    wanted = {ARCHIVE: archive, TableProperties.COMMIT_NUM_RETRIES: "0"}
    missing = [column for column in later_columns(name) if column not in table.schema().column_names]
    needs_bucket = has_queues(ARCHIVED_TABLES[name]) and all(field.name != _BUCKET for field in table.spec().fields)
    if missing or needs_bucket or any(table.properties.get(key) != value for key, value in wanted.items()):
        numbers = field_ids(name)
        with table.transaction() as change:
            mapping = table.schema().name_mapping.model_dump_json()
            change.set_properties({TableProperties.DEFAULT_NAME_MAPPING: mapping, **wanted})
            for column in missing:
                field = _field(name, column, numbers)
                with change.update_schema() as update:
                    update.add_column(column, field.field_type, field.doc)
            if needs_bucket:
                with change.update_spec() as spec:
                    add_bucket(spec)
    if values is not None:
        _add_values(table, values, where)
    _check_numbers(table, name, where)


def _add_values(table: Table, values: str, where: str) -> None:
    """Let a table have values of a type, and know them by their names.

    Raises:
        ArchiveRefusedError: It has values of another type, as of a broker of another archive.
    """
    columns = pa.schema([(VALUE, parse_type(values)), (VALUE_ERROR, pa.string())])
    with table.transaction() as change:
        try:
            with change.update_schema() as update:
                update.union_by_name(columns)
        except (ValueError, ResolveError) as error:
            raise ArchiveRefusedError(
                f"table {where} cannot have values of the type {values}: {error}; give the rule another name, or drop "
                "the table, it is made again from the archive"
            ) from error
        mapping = change.table_metadata.schema().name_mapping.model_dump_json()
        if change.table_metadata.properties.get(TableProperties.DEFAULT_NAME_MAPPING) != mapping:
            change.set_properties({TableProperties.DEFAULT_NAME_MAPPING: mapping})


def add_bucket(spec: Any) -> None:
    """Add the bucket of the queue to the partitions, in an update of them."""
    spec.add_field(_QUEUE, BucketTransform(_BUCKETS), _BUCKET)


def remove_bucket(spec: Any) -> None:
    """Remove it, for files that have rows of several buckets."""
    spec.remove_field(_BUCKET)


def _check_numbers(table: Table, name: str, where: str) -> None:
    """Check that the columns have the numbers that they have in the files."""
    there = {path: table.schema().find_field(path).field_id for path in table.schema().column_names}
    wrong = [path for path, number in field_ids(name).items() if there.get(path) != number]
    if wrong:
        raise ArchiveRefusedError(
            f"table {where} does not know the columns by the numbers that the files have ({', '.join(wrong[:5])}): "
            "somebody else has changed it; drop the table, it is made again from the archive"
        )


def _field(table: str, column: str, numbers: Mapping[str, int]) -> NestedField:
    kind = ARCHIVED_TABLES[table][column]
    doc = "Name of the broker in the archive" if column == BROKER else COLUMNS[table][column].meaning
    found = _PRIMITIVES.get(kind) or MapType(
        numbers[f"{column}.key"], StringType(), numbers[f"{column}.value"], StringType(), False
    )
    # A column that is newer than a file is null in it.
    return NestedField(numbers[column], column, found, required=False, doc=doc)


class TableFile(NamedTuple):
    """A file for a table.

    Attributes:
        file: What the table says of it.
        is_merged: Whether its rows were in smaller files before.
    """

    file: DataFile
    is_merged: bool


def table_file(
    files: ArchiveFiles, file: manifests.DataFile, metadata: TableMetadata, bucket: Bucket | None
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
