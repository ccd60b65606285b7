"""Tables of Iceberg, and what they and the archive have."""

from __future__ import annotations

from collections import Counter
from typing import Any

from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

import leveret
from leveret.analytics.archive.archive_files import ArchiveFiles
from leveret.analytics.archiver import Archiver
from leveret.analytics.iceberg.catalogs import open_catalog
from leveret.analytics.iceberg.tables import IcebergTables
from tests.spark.directories import DirectoryBuilder
from tests.support.archived import archiver_options

#: The key of a message.
KEY = ("broker", "queue_id", "store_priority", "seq")


def archive_into(builder: DirectoryBuilder, files: ArchiveFiles, tables: IcebergTables | None, **changes: Any) -> None:
    """Copy what is there, and keep archive and tables up, as the archiver does."""
    archiver = Archiver(archiver_options(builder, **changes), files, tables)
    try:
        while not archiver.copy().is_all:
            pass
        archiver.follow()
        archiver.keep_up()
        archiver.follow()
    finally:
        archiver.close()


def tables_of(files: ArchiveFiles, catalog: str, clock: Any = lambda: 0) -> IcebergTables:
    """The tables of an archive in a catalog; snapshots do not expire unless the clock says so."""
    return IcebergTables(catalog, "leveret", files, clock)


def table_in(catalog: str, files: ArchiveFiles, name: str = "messages") -> Table:
    """A table as it is now."""
    return opened(catalog, files).load_table(("leveret", name))


def opened(catalog: str, files: ArchiveFiles) -> Catalog:
    """A catalog."""
    found = open_catalog(catalog, files)
    if isinstance(found, SqlCatalog):
        found.engine.dispose()
    return found


def keys_of_table(table: Table, **scan: Any) -> Counter[tuple[Any, ...]]:
    """How often a table has each message."""
    return _keys(table.scan(selected_fields=KEY, **scan).to_arrow())


def keys_of_archive(url: str) -> Counter[tuple[Any, ...]]:
    """How often an archive has each message."""
    return _keys(leveret.scan(url, columns=list(KEY)).read_all())


def _keys(rows: Any) -> Counter[tuple[Any, ...]]:
    return Counter(zip(*(rows[name].to_pylist() for name in KEY), strict=True))
