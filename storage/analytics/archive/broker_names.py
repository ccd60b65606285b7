"""Names that an archive has for the brokers of data directories."""

from __future__ import annotations

from collections.abc import Sequence

from leveret.storage.analytics.archive.archive_files import ArchiveFiles
from leveret.storage.analytics.archive.manifest_log import read_manifests, store_ids
from leveret.storage.analytics.data_files import LocalFiles, open_files
from leveret.storage.directory.directory_format import read_format


def broker_names(archive: str, directories: Sequence[str]) -> dict[str, str | None]:
    """Return the names of brokers by data directory; None for one that the archive has nothing of.

    Args:
        archive: Path or URL of the archive.
        directories: Paths or URIs of data directories.
    Raises:
        ArchiveError: The archive cannot be read.
        DataDirectoryError: The file FORMAT of a data directory is damaged.
        AnalyticsError: Neither PyArrow nor fsspec can open a URI.
    """
    files = ArchiveFiles(archive)
    known = set(store_ids(files))
    names: dict[str, str | None] = {}
    for directory in directories:
        remote, path = open_files(directory)
        found = read_format(remote or LocalFiles(), path)
        store = "" if found is None else found.store_id.hex()
        last = read_manifests(files, store).last if store in known else None
        names[directory] = None if last is None else last.broker
    return names
