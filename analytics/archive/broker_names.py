"""Names of the brokers of data directories: those of the archive, and others for directories that it has nothing of."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from leveret.analytics.archive.archive_files import ArchiveFiles
from leveret.analytics.archive.manifest_log import read_manifests, store_ids
from leveret.analytics.data_files import LocalFiles, local_path, open_files
from leveret.storage.directory.archive_note import read_note
from leveret.storage.directory.directory_format import read_format
from leveret.storage.url_secrets import mask_url


def broker_names(archive: str, directories: Sequence[str]) -> dict[str, str]:
    """Return the names of brokers by data directory; see names_of().

    Args:
        archive: Path or URL of the archive.
        directories: Paths or URIs of all data directories that are read with it.
    Raises:
        ArchiveError: The archive cannot be read.
        DataDirectoryError: The file FORMAT of a data directory is damaged.
        AnalyticsError: Neither PyArrow nor fsspec can open a URI.
    """
    files = ArchiveFiles(archive)
    known = {
        store: last.broker for store in store_ids(files) if (last := read_manifests(files, store).last) is not None
    }
    stores = {}
    for directory in directories:
        remote, path = open_files(directory)
        found = read_format(remote or LocalFiles(), path)
        stores[directory] = "" if found is None else found.store_id.hex()
    return names_of(known, stores)


def names_of(known: Mapping[str, str], stores: Mapping[str, str]) -> dict[str, str]:
    """Return the names of brokers by data directory.

    The archive has one, or else the data directory notes that of another archive. Or else the broker is called like the
    directory: by as much of its path, from its end, as no other one of them has.

    Args:
        known: Names that the archive has, by IDs of data directories in hexadecimal digits.
        stores: These IDs by paths or URIs of the data directories that are read with it; empty if one has none.
    """
    names = {directory: known[store] for directory, store in stores.items() if store in known}
    left = {directory: list(_candidates(directory)) for directory in stores if directory not in names}
    offered = Counter(each for candidates in left.values() for each in dict.fromkeys(candidates))
    taken = {*known.values()}
    for directory, candidates in left.items():
        # The last one is the whole path.
        free = (each for each in candidates if offered[each] == 1 and each not in taken)
        names[directory] = next(free, candidates[-1])
    return names


def _candidates(directory: str) -> Iterator[str]:
    """Yield names for the broker of a data directory, the best first."""
    remote, path = open_files(directory)
    note = read_note(remote or LocalFiles(), path)
    if note is not None:
        yield note.broker
    whole = mask_url(local_path(directory)).rstrip("/")
    parts = whole.split("/")
    for count in range(1, len(parts)):
        if parts[-count]:
            yield "/".join(parts[-count:])
    yield whole
