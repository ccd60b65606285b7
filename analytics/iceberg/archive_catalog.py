"""A catalog in an archive, for those who have none: versions of the tables' metadata as numbered files.

The layout is that of Hadoop tables, which Spark and others read as a warehouse. A version is a file that can be made
once, so of two writers one is refused.
"""

from __future__ import annotations

import json

from pyiceberg.catalog.noop import NoopCatalog
from pyiceberg.exceptions import CommitFailedException, NoSuchTableError, TableAlreadyExistsError
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import CommitTableResponse, Table
from pyiceberg.table.metadata import TableMetadata, TableMetadataUtil, new_table_metadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER, SortOrder
from pyiceberg.table.update import TableRequirement, TableUpdate, update_table_metadata
from pyiceberg.typedef import EMPTY_DICT, Identifier, Properties

from leveret.analytics.archive.archive_files import ArchiveFiles
from leveret.analytics.iceberg.file_access import FILE_ACCESS
from leveret.analytics.iceberg.warehouse import HINT, METADATA, table_path, version_path, versions_of


class ArchiveCatalog(NoopCatalog):
    """The tables whose metadata are in an archive.

    Args:
        files: The archive.
    """

    def __init__(self, files: ArchiveFiles) -> None:
        super().__init__("archive", **{"py-io-impl": FILE_ACCESS})
        self._files = files

    def create_namespace_if_not_exists(self, namespace: str | Identifier, properties: Properties = EMPTY_DICT) -> None:
        """Nothing has to be done: a namespace is a directory."""

    def create_table(
        self,
        identifier: str | Identifier,
        schema: Schema,
        location: str | None = None,
        partition_spec: PartitionSpec = UNPARTITIONED_PARTITION_SPEC,
        sort_order: SortOrder = UNSORTED_SORT_ORDER,
        properties: Properties = EMPTY_DICT,
    ) -> Table:
        """Make a table; see Catalog.create_table."""
        name = self.identifier_to_tuple(identifier)
        at = self._files.location(table_path(name))
        metadata = new_table_metadata(schema, partition_spec, sort_order, at, properties)
        try:
            self._write(name, 1, metadata)
        except FileExistsError:
            raise TableAlreadyExistsError(f"table {'.'.join(name)} exists") from None
        return self.load_table(name)

    def load_table(self, identifier: str | Identifier) -> Table:
        """Return a table; see Catalog.load_table."""
        name = self.identifier_to_tuple(identifier)
        while versions := versions_of(self._files, name):
            path = version_path(name, versions[-1])
            octets = self._files.read(path)
            # Otherwise newer ones have been written since, and this has been deleted.
            if octets is not None:
                metadata = TableMetadataUtil.parse_obj(json.loads(octets))
                where = self._files.location(path)
                return Table(name, metadata, where, self._load_file_io({}, where), self)
        raise NoSuchTableError(f"there is no table {'.'.join(name)}")

    def commit_table(
        self, table: Table, requirements: tuple[TableRequirement, ...], updates: tuple[TableUpdate, ...]
    ) -> CommitTableResponse:
        """Write the next version of a table; see Catalog.commit_table."""
        name = table.name()
        current = self.load_table(name)
        for requirement in requirements:
            requirement.validate(current.metadata)
        metadata = update_table_metadata(current.metadata, updates, False, current.metadata_location)
        version = _version(current.metadata_location) + 1
        try:
            self._write(name, version, metadata)
        except FileExistsError:
            raise CommitFailedException(f"version {version} of table {'.'.join(name)} exists") from None
        where = self._files.location(version_path(name, version))
        return CommitTableResponse.model_validate({"metadata-location": where, "metadata": metadata})

    def _write(self, name: Identifier, version: int, metadata: TableMetadata) -> None:
        self._files.create(version_path(name, version), metadata.model_dump_json(exclude_none=True).encode())
        self._files.replace(f"{table_path(name)}/{METADATA}/{HINT}", str(version).encode())


def _version(location: str) -> int:
    return int(location.rpartition("/v")[2].partition(".")[0])
