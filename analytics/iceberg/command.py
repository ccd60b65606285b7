"""`leveret-analytics iceberg`: takes an archive over into tables of Iceberg, and repairs them."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from leveret.analytics.archive.archive_files import ArchiveFiles
from leveret.analytics.archive.manifests import microseconds_now, read_manifests, store_ids
from leveret.analytics.arguments import ICEBERG_PROGRAM, make_iceberg_parser
from leveret.analytics.errors import AnalyticsError, ArchiveError, missing_iceberg


def main(arguments: Sequence[str]) -> int:
    """Make tables the same as an archive.

    Args:
        arguments: Command-line arguments after `iceberg`.
    Returns:
        The exit status: 0 for success, 1 for failure, 2 for wrong arguments, 130 after SIGINT.
    """
    given = make_iceberg_parser().parse_args(arguments)
    try:
        _take_over(given.archive, given.iceberg, given.iceberg_namespace, given.repair)
    except AnalyticsError as error:
        sys.stderr.write(f"{ICEBERG_PROGRAM}: {error}\n")
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


def _take_over(archive: str, catalog: str, namespace: str, repairs: bool) -> None:
    try:
        # Help is there without it.
        from leveret.analytics.iceberg.tables import IcebergTables
    except ImportError as error:
        raise missing_iceberg(error) from error
    files = ArchiveFiles(archive)
    if not files.exists():
        raise ArchiveError(f"{files.shown} is not an archive; leveret-analytics archive makes one")
    states = [read_manifests(files, store) for store in store_ids(files)]
    brokers = {state.last.broker for state in states if state.last is not None} if repairs else ()
    tables = IcebergTables(catalog, namespace, files, microseconds_now)
    for state in states:
        if state.last is not None:
            changed = tables.follow(state, brokers)
            said = ", ".join(f"{count} files of {table}" for table, count in changed.items())
            sys.stderr.write(f"{ICEBERG_PROGRAM}: broker {state.last.broker}: {said} added or removed\n")
