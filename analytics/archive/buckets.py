"""Buckets of queues: a file of one bucket is passed over by a query for a queue of another."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from leveret.analytics.archive.archive_files import ArchiveFiles
from leveret.analytics.archive.manifests import DataFile
from leveret.analytics.columns import ARCHIVED_TABLES, layout_of

#: What a file of one bucket says of itself: its number and how many there are; empty for rows without a queue.
_BUCKET: Final = "leveret.queue_bucket"


class Bucket(NamedTuple):
    """A bucket.

    Attributes:
        number: Its number; None for rows that are not of a queue.
    """

    number: int | None


def has_queues(columns: Iterable[str]) -> bool:
    """Return whether the rows of a table with some columns are of queues."""
    return "queue" in columns


class Buckets:
    """Puts queues into buckets by a hash of their names.

    Args:
        count: How many there are.
        bucket_of: Returns the number of the bucket of a queue's name.
    """

    def __init__(self, count: int, bucket_of: Callable[[str], int]) -> None:
        self._count = count
        self._bucket_of = bucket_of
        #: What the footers of files say that are of more queues than the manifests name.
        self._said: dict[str, Bucket | None] = {}

    def of_name(self, queue: str | None) -> Bucket:
        """Return the bucket of a queue."""
        return Bucket(None if queue is None else self._bucket_of(queue))

    def split(self, batch: pa.RecordBatch) -> Iterator[tuple[Bucket, pa.RecordBatch]]:
        """Yield the rows of each bucket."""
        if not has_queues(batch.schema.names):
            yield self.of_name(None), batch
            return
        queues = batch.column("queue").dictionary_encode("encode")
        found = [self.of_name(name) for name in queues.dictionary.to_pylist()]
        if len(set(found)) == 1:
            yield found[0], batch
            return
        for bucket in dict.fromkeys(found):
            members = pa.array([each == bucket for each in found])
            yield bucket, batch.filter(members.take(queues.indices))

    def notes(self, bucket: Bucket) -> dict[str, str]:
        """Return what a file of a bucket says of itself."""
        return {_BUCKET: "" if bucket.number is None else f"{bucket.number}/{self._count}"}

    def of_file(self, files: ArchiveFiles, file: DataFile) -> Bucket | None:
        """Return the bucket of all rows of a file of an archive; None if they are of several.

        Raises:
            ArchiveError: The file cannot be read.
        """
        if not has_queues(ARCHIVED_TABLES[layout_of(file.table)]):
            return self.of_name(None)
        if file.queues is not None:
            found = {self.of_name(queue) for _, queue in file.queues}
            return found.pop() if len(found) == 1 else None
        if file.path not in self._said:
            with files.errors(file.path), files.open(file.path) as source:
                self._said[file.path] = self._noted(pq.read_metadata(source).metadata or {})
        return self._said[file.path]

    def _noted(self, notes: dict[bytes, bytes]) -> Bucket | None:
        said = notes.get(_BUCKET.encode())
        if said is None:
            return None
        number, _, count = said.decode().partition("/")
        if not number:
            return Bucket(None)
        return Bucket(int(number)) if int(count) == self._count else None
