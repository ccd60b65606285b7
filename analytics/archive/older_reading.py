"""Reads events that only an archive has."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from leveret.analytics.archive.archive_files import ArchiveFiles
from leveret.analytics.archive.archive_part import ArchivePart
from leveret.analytics.archive.file_reading import read_file
from leveret.analytics.rows.event_batches import EVENT_NUMBERS, event_keys


def read_older(
    part: ArchivePart, shared: Mapping[tuple[Any, ...], int], columns: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """Yield events of an archive, without some that the event log has as well.

    Args:
        part: The files, and which of their rows are selected.
        shared: How often which events are left out, as event_keys() makes them.
        columns: Names of the columns, in order.
    Raises:
        ArchiveError: A file cannot be read.
    """
    files, left = ArchiveFiles(part.url), Counter(shared)
    more = [name for name in EVENT_NUMBERS if name not in columns] if left else []
    for path in part.files:
        for batch in read_file(files, path, part, "events", [*columns, *more]):
            yield _without(batch, left).select(list(columns)) if shared else batch


def _without(batch: pa.RecordBatch, left: Counter[tuple[Any, ...]]) -> pa.RecordBatch:
    """Return the rows that are not to be left out; the counts of those that are go down."""
    kept = []
    for at, key in enumerate(event_keys(batch)):
        if left[key]:
            left[key] -= 1
        else:
            kept.append(at)
    return batch.take(pa.array(kept, pa.int64()))
