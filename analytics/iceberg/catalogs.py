"""Catalogs by name or URL, the one in an archive itself, and what is wrong with them in one line."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import fsspec
from fsspec import AbstractFileSystem
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.catalog.noop import NoopCatalog
from pyiceberg.exceptions import (
    CommitFailedException,
    ForbiddenError,
    NoSuchTableError,
    TableAlreadyExistsError,
    UnauthorizedError,
)
from pyiceberg.io.fsspec import FsspecFileIO
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import CommitTableResponse, Table
from pyiceberg.table.metadata import TableMetadata, TableMetadataUtil, new_table_metadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER, SortOrder
from pyiceberg.table.update import TableRequirement, TableUpdate, update_table_metadata
from pyiceberg.typedef import EMPTY_DICT, Identifier, Properties

from leveret.analytics.archive.archive_files import ArchiveFiles
from leveret.analytics.arguments import IN_ARCHIVE
from leveret.analytics.errors import ArchiveError
from leveret.analytics.iceberg.listing import HINT, METADATA, newest_version, table_path, version_path
from leveret.storage.url_secrets import mask_text, mask_url

#: The property of a catalog that says which class reads and writes the files, and ours.
_FILE_ACCESS: Final = {"py-io-impl": f"{__name__}.FileAccess"}
_FULL: Final = ("disk is full", "no space left", "quota")
_REFUSED: Final = ("access denied", "accessdenied", "not authorized", "permission denied", "readonly", "read-only")
_AWAY: Final = ("connection", "unable to open database", "timed out", "max retries", "unavailable", "could not connect")


def open_catalog(name: str, files: ArchiveFiles) -> Catalog:
    """Return a catalog.

    Args:
        name: `archive`, a URL, or a name in pyiceberg's configuration.
        files: The archive.
    Raises:
        ArchiveError: There is none of this name, or it cannot be opened.
    """
    if name == IN_ARCHIVE:
        return ArchiveCatalog(files)
    with catalog_errors(name):
        # What pyiceberg[sql-postgres] installs is not what SQLAlchemy takes by default since 2.1.
        uri = name.replace("postgresql://", "postgresql+psycopg2://", 1) if name.startswith("postgresql:") else name
        properties = {"uri": uri} if "://" in name else {}
        return load_catalog("leveret" if properties else name, **properties, **_FILE_ACCESS)


@contextmanager
def catalog_errors(name: str) -> Iterator[None]:
    """Make errors of a catalog in a block those of the archive, which say what to do.

    Raises:
        CommitFailedException, NoSuchTableError, TableAlreadyExistsError: As pyiceberg has raised it.
        ArchiveError: For all other exceptions.
    """
    try:
        yield
    except (ArchiveError, CommitFailedException, NoSuchTableError, TableAlreadyExistsError):
        raise
    except Exception as error:  # Each catalog has exceptions of its own.
        said = mask_text((str(error) or type(error).__name__).strip().splitlines()[0], name)
        what, remedy = _meaning(error, str(error).lower())
        raise ArchiveError(f"the Iceberg catalog {mask_url(name)} {what}: {said}; {remedy}") from error


def _meaning(error: Exception, said: str) -> tuple[str, str]:
    """Return what an error of a catalog is, and what to do."""
    if (isinstance(error, OSError) and error.errno == errno.ENOSPC) or any(word in said for word in _FULL):
        return "is full", "make room"
    if isinstance(error, ForbiddenError | UnauthorizedError | PermissionError) or any(
        word in said for word in _REFUSED
    ):
        return "refuses the archiver", "give it the right to make tables and to commit"
    if isinstance(error, ConnectionError | TimeoutError) or any(word in said for word in _AWAY):
        return "cannot be reached", "the archive goes on, and the tables follow when it is back"
    return "has an error", "see pyiceberg's documentation on its configuration"


class FileAccess(FsspecFileIO):
    """How pyiceberg reads and writes the files of a table: as the archive does, with the same settings and rights."""

    def _get_fs(self, scheme: str, hostname: str | None = None) -> AbstractFileSystem:
        # Other stores have no directories to make, or make them anyway.
        options = {"auto_mkdir": True} if scheme in ("", "file") else {}
        return fsspec.filesystem(scheme or "file", **options)


class ArchiveCatalog(NoopCatalog):
    """The tables whose metadata are in an archive, for those who have no catalog: their versions are numbered files.

    The layout is that of Hadoop tables, which Spark and others read as a warehouse. A version is a file that can be
    made once, so of two writers one is refused.

    Args:
        files: The archive.
    """

    def __init__(self, files: ArchiveFiles) -> None:
        super().__init__("archive", **_FILE_ACCESS)
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
        found = newest_version(self._files, name)
        if found is None:
            raise NoSuchTableError(f"there is no table {'.'.join(name)}")
        metadata, where = TableMetadataUtil.parse_obj(found.metadata), found.location
        return Table(name, metadata, where, self._load_file_io({}, where), self)

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
