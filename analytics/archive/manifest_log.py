"""Names of the brokers of data directories: those of the archive, and others for directories that it has nothing of."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final
from uuid import uuid4

from leveret.analytics.archive.archive_files import ArchiveFiles
from leveret.analytics.archive.layout import MANIFESTS, is_store_id, manifest_path, parse_manifest_name
from leveret.analytics.archive.manifest import (
    COMPLETE_STEP,
    BrokerFiles,
    DataFile,
    Manifest,
    pack_manifest,
    unpack_manifest,
)
from leveret.analytics.data_files import LocalFiles, local_path, open_files
from leveret.analytics.errors import ArchiveError, ArchiveRefusedError
from leveret.storage.directory.archive_note import read_note
from leveret.storage.directory.directory_format import read_format
from leveret.storage.url_secrets import mask_url

#: How often reading is tried when manifests disappear meanwhile, because newer ones have made them superfluous.
_TRIES: Final = 5


def microseconds_now() -> int:
    """Return the time in microseconds since 1970."""
    return time.time_ns() // 1000


class ManifestLog:
    """Appends the manifests of one data directory.

    Args:
        store_id: ID of the data directory, in hexadecimal digits.
        clock: Returns the time in microseconds since 1970.

    Attributes:
        store_id: See the argument.
        state: What the manifests say.
    """

    def __init__(
        self, files: ArchiveFiles, store_id: str, broker: str, clock: Callable[[], int] = microseconds_now
    ) -> None:
        self._files = files
        self.store_id = store_id
        self._broker = broker
        self._clock = clock
        self._writer = uuid4().hex
        self.state = read_manifests(files, store_id)

    def append(
        self, position: Mapping[str, Any], added: Sequence[DataFile] = (), removed: Sequence[str] = ()
    ) -> Manifest:
        """Append a manifest: what it says is valid when this returns.

        Args:
            removed: Paths of files that do not belong to the archive any more.
        Returns:
            The manifest.
        Raises:
            ArchiveRefusedError: Somebody else has appended one.
            ArchiveError: It could not be written, or that is not known: read the manifests again.
        """
        now = self._clock()
        manifest = self.state.completed(
            Manifest(
                self.state.next_number,
                self.store_id,
                self._broker,
                now,
                self._writer,
                position,
                tuple(added),
                dict.fromkeys(removed, now),
            )
        )
        path, octets = manifest_path(self.store_id, manifest.number), pack_manifest(manifest)
        try:
            self._files.create(path, octets)
        except FileExistsError:
            # The answer to a request that is repeated on the way may be about the first one.
            if self._files.read(path) != octets:
                raise ArchiveRefusedError(
                    f"{self._files.shown}/{path} exists: another archiver writes for the same data directory; run one"
                ) from None
        self.state = self.state.after(manifest)
        if manifest.is_complete:
            self._delete_superfluous(manifest.number)
        return manifest

    def _delete_superfluous(self, complete: int) -> None:
        """Delete what readers do not need any more: all before the complete manifest before this one."""
        for name in self._files.names(f"{MANIFESTS}/{self.store_id}"):
            number = parse_manifest_name(name)
            if number is not None and number < complete - COMPLETE_STEP:
                self._files.delete(manifest_path(self.store_id, number))


def read_manifests(files: ArchiveFiles, store_id: str) -> BrokerFiles:
    """Return what the manifests of a data directory say.

    Args:
        store_id: ID of the data directory, in hexadecimal digits.
    Raises:
        ArchiveError: A manifest is damaged or missing, or cannot be read.
    """
    for _ in range(_TRIES):
        state = _read_from_complete(files, store_id)
        if state is not None:
            return state
    raise ArchiveError(f"manifests of {files.shown}/{MANIFESTS}/{store_id} are missing; restore them from a copy")


def _read_from_complete(files: ArchiveFiles, store_id: str) -> BrokerFiles | None:
    """Return what the newest complete manifest and the later ones say; None if one of them is gone."""
    names = files.names(f"{MANIFESTS}/{store_id}")
    numbers = [number for name in names if (number := parse_manifest_name(name)) is not None]
    first = max((number for number in numbers if number % COMPLETE_STEP == 0), default=1)
    state = BrokerFiles()
    for number in range(first, max(numbers, default=0) + 1):
        path = manifest_path(store_id, number)
        octets = files.read(path)
        if octets is None:
            return None
        state = state.after(unpack_manifest(octets, f"{files.shown}/{path}"))
    return state


def store_ids(files: ArchiveFiles) -> list[str]:
    """Return the IDs of the data directories that an archive has something of.

    Raises:
        ArchiveError: It cannot be listed.
    """
    return [name for name in files.names(MANIFESTS) if is_store_id(name)]


def last_manifests(files: ArchiveFiles) -> dict[str, Manifest]:
    """Return the last manifest of each data directory that an archive has something of, by its ID.

    Raises:
        ArchiveError: The archive cannot be read.
    """
    return {each: last for each in store_ids(files) if (last := read_manifests(files, each).last) is not None}


def broker_names(archive: str, directories: Sequence[str]) -> dict[str, str]:
    """Return the names of brokers by data directory; see names_of().

    Args:
        directories: Paths or URIs of all data directories that are read with it.
    Raises:
        ArchiveError: The archive cannot be read.
        DataDirectoryError: The file FORMAT of a data directory is damaged.
        AnalyticsError: Neither PyArrow nor fsspec can open a URI.
    """
    files = ArchiveFiles(archive)
    known = {store: last.broker for store, last in last_manifests(files).items()}
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
