"""What the tables are whose metadata are in an archive, as JSON: the broker runs this for its catalog.

It needs fsspec only, and prints by name of the table where its metadata are, the metadata, and whose rows it may have.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from leveret.analytics.archive.archive_files import ArchiveFiles
from leveret.analytics.archive.manifest import DataFile
from leveret.analytics.archive.manifest_log import read_manifests, store_ids
from leveret.analytics.arguments import URL_VARIABLE
from leveret.analytics.columns import OF_RULE, TIME_COLUMNS
from leveret.analytics.errors import AnalyticsError
from leveret.analytics.iceberg.warehouse import table_path, version_path, versions_of


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
    found = {name: table for name in names if (table := _newest(files, (namespace, name))) is not None}
    data = [each for store in store_ids(files) for each in read_manifests(files, store).files.values()]
    return {name: {**table, "queues": _queues(data, name)} for name, table in found.items()}


def _newest(files: ArchiveFiles, name: tuple[str, str]) -> dict[str, Any] | None:
    """Return the newest version of a table; None if there is none."""
    while versions := versions_of(files, name):
        path = version_path(name, versions[-1])
        octets = files.read(path)
        # Otherwise newer ones have been written since, and this has been deleted.
        if octets is not None:
            return {"location": files.location(path), "metadata": json.loads(octets)}
    return None


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
