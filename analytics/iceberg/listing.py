"""What the tables are whose metadata are in an archive, as JSON: the broker runs this for its catalog.

It needs fsspec only, and prints by name of the table where its metadata are, the metadata, and whose rows it may have.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from leveret.analytics.archive.archive_files import ArchiveFiles
from leveret.analytics.archive.manifests import DataFile, read_manifests, store_ids
from leveret.analytics.arguments import URL_VARIABLE
from leveret.analytics.columns import OF_RULE, TIME_COLUMNS
from leveret.analytics.errors import AnalyticsError

#: The directory of the tables in an archive, and the one of a table's metadata.
_WAREHOUSE: Final = "iceberg"
METADATA: Final = "metadata"
#: The file with the number of the newest version, or a version shortly before it.
HINT: Final = "version-hint.text"
_VERSION: Final = re.compile(r"v(\d+)\.metadata\.json")


class Version(NamedTuple):
    """The newest version of a table.

    Attributes:
        location: URL of the file with its metadata.
        metadata: What the file has.
    """

    location: str
    metadata: dict[str, Any]


def table_path(name: Sequence[str]) -> str:
    """Return the path of a table in the archive.

    Args:
        name: Namespace and table.
    """
    return "/".join((_WAREHOUSE, *name))


def version_path(name: Sequence[str], version: int) -> str:
    """Return the path in the archive of a version of a table's metadata."""
    return f"{table_path(name)}/{METADATA}/v{version}.metadata.json"


def newest_version(files: ArchiveFiles, name: Sequence[str]) -> Version | None:
    """Return the newest version of a table; None if there is none.

    Raises:
        ArchiveError: The archive cannot be read.
    """
    while numbers := [
        int(found[1]) for each in files.names(f"{table_path(name)}/{METADATA}") if (found := _VERSION.fullmatch(each))
    ]:
        path = version_path(name, max(numbers))
        octets = files.read(path)
        # Otherwise newer ones have been written since, and this has been deleted.
        if octets is not None:
            return Version(files.location(path), json.loads(octets))
    return None


def main() -> int:
    """Print the tables of the archive that the environment names, in the namespace that the command line has.

    Returns:
        The exit status: 0 for success, 1 if the archive cannot be read.
    """
    try:
        json.dump(tables_in(ArchiveFiles(os.environ[URL_VARIABLE]), sys.argv[1]), sys.stdout)
    except AnalyticsError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


def tables_in(files: ArchiveFiles, namespace: str) -> dict[str, dict[str, Any]]:
    """Return the tables of an archive by name.

    Each is `location` and `metadata`, and `queues`, pairs of virtual host and queue, either of which may be null: all
    that its files have rows of; null if they are too many for the manifests to name them.

    Raises:
        ArchiveError: The archive cannot be read.
    """
    # The manifests are read last: no file of the metadata is newer.
    there = files.names(table_path((namespace,)))
    names = [*TIME_COLUMNS, *(name for name in there if name.startswith(OF_RULE))]
    found = {name: version for name in names if (version := newest_version(files, (namespace, name))) is not None}
    data = [each for store in store_ids(files) for each in read_manifests(files, store).files.values()]
    return {name: {**version._asdict(), "queues": _queues(data, name)} for name, version in found.items()}


def _queues(data: list[DataFile], table: str) -> list[tuple[str | None, str | None]] | None:
    found: set[tuple[str | None, str | None]] = set()
    for each in data:
        if each.table == table:
            if each.queues is None:
                return None
            found.update(each.queues)
    return sorted(found, key=str)


if __name__ == "__main__":
    sys.exit(main())
