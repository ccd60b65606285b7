"""Groups of files of an archive that one task reads."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final

from leveret.analytics.archive.layout import FORMAT
from leveret.analytics.errors import ArchiveError
from leveret.analytics.options import Options
from leveret.analytics.selection import Selection
from leveret.storage.format import crc_of, pack_checked
from leveret.storage.readers.reader_file import matches

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
        fields = json.loads(octets)
        if fields.pop("crc") == crc_of(fields):
            if fields.pop("format") > FORMAT:
                raise ArchiveError(f"{where} was written by a newer version of Leveret")
            files = tuple(_data_file(each) for each in fields.pop("files"))
            return Manifest(files=files, **fields)
    except (ValueError, KeyError, TypeError, AttributeError):
        # Reported below, as is a wrong checksum.
        pass
    raise ArchiveError(f"{where} is damaged; restore it from a copy of the archive")


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
