"""Manifests of an archive: what they say, writing and reading them, and what a query reads of their files."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

from leveret.analytics.archive.layout import FORMAT, MANIFESTS, is_store_id, manifest_path, parse_manifest_name
from leveret.analytics.data_files import local_path, open_files
from leveret.analytics.errors import ArchiveError, ArchiveRefusedError
from leveret.analytics.options import Options
from leveret.analytics.selection import Selection
from leveret.storage.directory.archive_note import read_note
from leveret.storage.directory.directory_format import read_format
from leveret.storage.format import pack_checked, unpack_checked
from leveret.storage.readers.reader_file import matches
from leveret.storage.url_secrets import mask_url

if TYPE_CHECKING:
    from leveret.analytics.archive.archive_files import ArchiveFiles

#: Numbers that this divides have complete manifests.
COMPLETE_STEP: Final = 50
#: Microseconds after which complete manifests do not name a file any more that was removed; it was deleted before.
_FORGET: Final = 86_400_000_000


@dataclass(frozen=True, slots=True)
class DataFile:
    """A Parquet file of an archive.

    Attributes:
        table: Name of the table.
        path: Path in the archive.
        rows: Number of rows.
        bytes: Size in bytes.
        first: Earliest time of its rows, in microseconds since 1970.
        last: Latest time of its rows.
        queues: Virtual host and name of the queues that its rows are of, which may be null; None if they are many.
    """

    table: str
    path: str
    rows: int
    bytes: int
    first: int
    last: int
    queues: tuple[tuple[str | None, str | None], ...] | None = None


@dataclass(frozen=True, slots=True)
class Manifest:
    """A manifest.

    Attributes:
        number: Its number, from 1 on.
        store_id: ID of the data directory, in hexadecimal digits.
        broker: Name of the broker in the archive.
        created: When it was made, in microseconds since 1970.
        writer: Identifies the run of the archiver that wrote it.
        position: Up to where each table has been read, as its stream says it (message_stream.py, event_stream.py); and
            `taken`, the patterns of virtual host and queue of what is copied.
        files: The files that it adds; all files in a complete one.
        removed: Files that do not belong to the archive any more, and when that was; in a complete one those of the
            last day.
    """

    number: int
    store_id: str
    broker: str
    created: int
    writer: str
    position: Mapping[str, Any]
    files: tuple[DataFile, ...] = ()
    removed: Mapping[str, int] = field(default_factory=dict)

    @property
    def is_complete(self) -> bool:
        """Whether it names all files."""
        return self.number % COMPLETE_STEP == 0


@dataclass(frozen=True, slots=True)
class BrokerFiles:
    """What the manifests of a data directory say together.

    Attributes:
        last: The newest of them; None if there are none.
        files: The files of the archive by path.
        removed: Files that do not belong to it any more, and since when.
    """

    last: Manifest | None = None
    files: Mapping[str, DataFile] = field(default_factory=dict)
    removed: Mapping[str, int] = field(default_factory=dict)

    @property
    def next_number(self) -> int:
        """Number of the next manifest."""
        return self.last.number + 1 if self.last is not None else 1

    def after(self, manifest: Manifest) -> BrokerFiles:
        """Return what they say together with the next one."""
        if manifest.is_complete:
            return BrokerFiles(manifest, {each.path: each for each in manifest.files}, manifest.removed)
        return self._with(manifest)

    def completed(self, manifest: Manifest) -> Manifest:
        """Return the next manifest as it is written: with all files, if its number says so."""
        if not manifest.is_complete:
            return manifest
        whole = self._with(manifest)
        removed = {path: since for path, since in whole.removed.items() if since > manifest.created - _FORGET}
        return replace(manifest, files=tuple(whole.files.values()), removed=removed)

    def _with(self, manifest: Manifest) -> BrokerFiles:
        files = {**self.files, **{each.path: each for each in manifest.files}}
        kept = {path: each for path, each in files.items() if path not in manifest.removed}
        return BrokerFiles(manifest, kept, {**self.removed, **manifest.removed})


def pack_manifest(manifest: Manifest) -> bytes:
    """Return the contents of a manifest's file."""
    return pack_checked({"format": FORMAT, **asdict(manifest)})


def unpack_manifest(octets: bytes, where: str) -> Manifest:
    """Return the manifest in a file.

    Raises:
        ArchiveError: It is damaged, or a newer version has written it.
    """
    try:
        fields = unpack_checked(octets)
        if fields.pop("format") > FORMAT:
            raise ArchiveError(f"{where} was written by a newer version of Leveret")
        files = tuple(_data_file(each) for each in fields.pop("files"))
        return Manifest(files=files, **fields)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ArchiveError(f"{where} is damaged; restore it from a copy of the archive") from error


def _data_file(fields: dict[str, Any]) -> DataFile:
    queues = fields.pop("queues")
    return DataFile(**fields, queues=None if queues is None else tuple((vhost, queue) for vhost, queue in queues))


#: Bytes of the files that one task reads.
_TASK_BYTES: Final = 64 << 20


@dataclass
class ArchivePart:
    """Files of an archive.

    Attributes:
        url: Path or URL of the archive.
        files: Their paths in it.
        vhost: Virtual host of the rows: its name, or a pattern; None for all.
        queue: Name of the queue, or a pattern; None for all.
        selection: Further conditions.
        data: What the manifests say of the files.
    """

    url: str
    files: list[str]
    vhost: str | None
    queue: str | None
    selection: Selection
    data: Sequence[DataFile] = ()


def archive_parts(
    url: str, files: Iterable[DataFile], options: Options, selection: Selection, is_one: bool = False
) -> Iterator[ArchivePart]:
    """Yield groups of files that can have selected rows.

    Args:
        options: Options of the data source; their limits are not used.
        is_one: Whether all of them are one group, however large it is.
    """
    group: list[DataFile] = []
    size = 0

    def part() -> ArchivePart:
        return ArchivePart(url, [each.path for each in group], options.vhost, options.queue, selection, tuple(group))

    for file in files:
        if file.table != options.table or not _can_have(file, options, selection):
            continue
        if group and not is_one and size + file.bytes > _TASK_BYTES:
            yield part()
            group, size = [], 0
        group.append(file)
        size += file.bytes
    if group:
        yield part()


def _can_have(file: DataFile, options: Options, selection: Selection) -> bool:
    """Return whether a file can have selected rows, by its times and queues."""
    limits = selection.limits
    if file.last < limits.first_time or file.first > limits.last_time:
        return False
    if file.queues is None:
        return True
    return any(
        selection.may_read(vhost, queue)
        and (options.vhost is None or (vhost is not None and matches(vhost, options.vhost)))
        and (options.queue is None or (queue is not None and matches(queue, options.queue)))
        for vhost, queue in file.queues
    )


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
    # Parts of queries are made and read without what the files of archives need.
    from leveret.analytics.archive.archive_files import ArchiveFiles

    files = ArchiveFiles(archive)
    known = {store: last.broker for store, last in last_manifests(files).items()}
    stores = {}
    for directory in directories:
        found = read_format(*open_files(directory))
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
    note = read_note(*open_files(directory))
    if note is not None:
        yield note.broker
    whole = mask_url(local_path(directory)).rstrip("/")
    parts = whole.split("/")
    for count in range(1, len(parts)):
        if parts[-count]:
            yield "/".join(parts[-count:])
    yield whole
