"""Groups of files of an archive that one task reads."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from leveret.analytics.archive.manifest import DataFile
from leveret.analytics.options import Options
from leveret.analytics.selection import Selection
from leveret.storage.readers.reader_file import matches

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
        url: Path or URL of the archive.
        files: Its files, of any table.
        options: Options of the data source; their limits are not used.
        selection: The rows to read.
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
        (options.vhost is None or (vhost is not None and matches(vhost, options.vhost)))
        and (options.queue is None or (queue is not None and matches(queue, options.queue)))
        for vhost, queue in file.queues
    )
