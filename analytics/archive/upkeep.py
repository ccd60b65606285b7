"""Upkeep of an archive: makes few large files of many small ones, and removes what is too old.

Both are manifests like those that add rows, so readers see the files from before or from after, and every row once. A
file that does not belong to the archive any more is moved away, so that who reads all files of a table has each row
once, and deleted an hour later, so that queries that have begun can read it. If tables of a catalog have the files,
which know them by their paths, it stays where it is until it is deleted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, Protocol

import pyarrow as pa

from leveret.analytics.archive.archive_files import ArchiveFiles
from leveret.analytics.archive.buckets import Bucket, Buckets
from leveret.analytics.archive.data_writer import DataWriter
from leveret.analytics.archive.file_reading import read_whole
from leveret.analytics.archive.layout import DAY, SUPERSEDED, date_of, parse_data_date, superseded_path
from leveret.analytics.archive.manifests import DataFile, ManifestLog
from leveret.analytics.arrow_schema import schema_of
from leveret.analytics.columns import ARCHIVED_TABLES

#: Bytes below which a file is small.
_SMALL: Final = 32 << 20
#: So many small files of the present day are put together; of days that are over, two.
_MANY: Final = 60
#: Maximum bytes of the files that are put together at a time.
_MERGE_BYTES: Final = 256 << 20
#: Microseconds for which a file that was removed stays for queries that have begun.
GRACE: Final = 3_600_000_000


class Typed(Protocol):
    """Tables with what bodies say."""

    @property
    def schemas(self) -> Mapping[str, pa.Schema]:
        """Their schemas by name."""

    def reread(self, table: str, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return rows of a table in which bodies that could not be read for now are read again."""


class Upkeep:
    """Keeps the files of one data directory in an archive.

    Args:
        keep: Microseconds for which rows are kept; None for ever.
        clock: Returns the time in microseconds since 1970.
        buckets: Those of the files, if tables of a catalog have them; None if not.
        typed: The tables with what bodies say.
    """

    def __init__(
        self,
        files: ArchiveFiles,
        log: ManifestLog,
        broker: str,
        keep: int | None,
        clock: Callable[[], int],
        buckets: Buckets | None,
        typed: Typed,
    ) -> None:
        self._files = files
        self._typed = typed
        self._log = log
        self._broker = broker
        self._keep = keep
        self._clock = clock
        self._buckets = buckets
        #: Files that were removed: those that have been moved away, and those that have been deleted.
        self._moved: set[str] = set()
        self._deleted: set[str] = set()

    def note_files(self, there: Iterable[str]) -> None:
        """Note which files there are: of those that were removed, the others have been moved away or deleted."""
        removed, kept = self._log.state.removed.keys(), set(self._files.paths_below(SUPERSEDED))
        self._moved = removed - set(there)
        self._deleted = {path for path in self._moved if superseded_path(path) not in kept}

    def work(self) -> None:
        """Remove what is too old, put some small files together, and delete what was removed long enough ago.

        Raises:
            ArchiveRefusedError: Another archiver writes for this data directory.
            ArchiveError: A file cannot be read, written or deleted. The archive has the same rows as before.
        """
        self._remove_old()
        small = self._small_files()
        if small:
            self._merge(small)
        if self._buckets is None:
            self._move_removed()
        self._delete_removed()

    def _remove_old(self) -> None:
        """Remove files of which even the latest row is too old."""
        if self._keep is not None:
            end = self._clock() - self._keep
            old = [path for path, each in self._log.state.files.items() if each.last < end]
            if old:
                self._append((), old)

    def _small_files(self) -> list[DataFile]:
        """Return small files of a table, date and bucket that are worth being put together; an empty list for none."""
        found: dict[tuple[str, str, Bucket | None], list[DataFile]] = {}
        typed = self._typed.schemas
        for each in self._log.state.files.values():
            # Of a table that another version has made, the columns are not known.
            if each.bytes < _SMALL and (each.table in ARCHIVED_TABLES or each.table in typed):
                bucket = None if self._buckets is None else self._buckets.of_file(self._files, each)
                found.setdefault((each.table, parse_data_date(each.path), bucket), []).append(each)
        # An hour later nearly all rows of a day have come.
        today = date_of(self._clock() - DAY // 24)
        for (_, date, _), files in sorted(found.items(), key=lambda item: str(item[0])):
            if len(files) >= (2 if date < today else _MANY):
                return _within(files)
        return []

    def _merge(self, small: Sequence[DataFile]) -> None:
        """Put files of one table, date and bucket together."""
        table, schemas, number = small[0].table, self._typed.schemas, self._log.state.next_number
        is_typed = table in schemas
        schema = schemas[table] if is_typed else schema_of(ARCHIVED_TABLES[table], list(ARCHIVED_TABLES[table]))
        with DataWriter(self._files, self._broker, number, self._buckets, schemas, merges=True) as writer:
            for each in small:
                for batch in read_whole(self._files, each.path, schema):
                    writer.add(table, self._typed.reread(table, batch) if is_typed else batch)
            merged = writer.finish()
        self._append(merged, [each.path for each in small])

    def _move_removed(self) -> None:
        """Move the files that were removed to where a glob over a table does not find them."""
        for path in self._log.state.removed:
            if path not in self._moved:
                self._files.move(path, superseded_path(path))
                self._moved.add(path)

    def _delete_removed(self) -> None:
        """Delete the files that were removed long enough ago, wherever they are."""
        end = self._clock() - GRACE
        for path, since in self._log.state.removed.items():
            if since < end and path not in self._deleted:
                self._files.delete(superseded_path(path) if path in self._moved else path)
                self._deleted.add(path)

    def _append(self, added: Sequence[DataFile], removed: Sequence[str]) -> None:
        last = self._log.state.last
        assert last is not None, "the archiver appends a manifest when it starts"
        self._log.append(last.position, added, removed)


def _within(files: Sequence[DataFile]) -> list[DataFile]:
    """Return the first of some files that may be put together at a time, at least two."""
    found: list[DataFile] = []
    size = 0
    for each in sorted(files, key=lambda file: file.first):
        size += each.bytes
        if len(found) >= 2 and size > _MERGE_BYTES:
            break
        found.append(each)
    return found
