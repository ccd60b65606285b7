"""Where the metadata of tables are in an archive; needs no library, so that they can be read without."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from leveret.analytics.archive.archive_files import ArchiveFiles

#: The directory of the tables, and the one of a table's metadata.
WAREHOUSE: Final = "iceberg"
METADATA: Final = "metadata"
#: The file with the number of the newest version, or a version shortly before it.
HINT: Final = "version-hint.text"
_VERSION: Final = re.compile(r"v(\d+)\.metadata\.json")


def table_path(name: Sequence[str]) -> str:
    """Return the path of a table in the archive.

    Args:
        name: Namespace and table.
    """
    return "/".join((WAREHOUSE, *name))


def version_path(name: Sequence[str], version: int) -> str:
    """Return the path in the archive of a version of a table's metadata."""
    return f"{table_path(name)}/{METADATA}/v{version}.metadata.json"


def versions_of(files: ArchiveFiles, name: Sequence[str]) -> list[int]:
    """Return the numbers of the versions of a table's metadata in ascending order; an empty list if there is no table.

    Raises:
        ArchiveError: The archive cannot be listed.
    """
    names = files.names(f"{table_path(name)}/{METADATA}")
    return sorted(int(found[1]) for name in names if (found := _VERSION.fullmatch(name)))
