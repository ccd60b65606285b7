"""Places in an archive, and in data directories with it, from which some messages are read; see sample_places.py."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from leveret.analytics.archive.archive_files import ArchiveFiles
from leveret.analytics.archive.archive_part import ArchivePart
from leveret.analytics.archive.archive_plan import LivePart, Part
from leveret.analytics.archive.archived_values import SOURCE_COLUMNS, archived_payloads
from leveret.analytics.archive.file_reading import read_file
from leveret.analytics.bodies.compression import Payloads
from leveret.analytics.bodies.sample_places import PLACES_MAX, Place, evenly, segment_places, spread
from leveret.analytics.options import Options


def archived_places(parts: list[Part], options: Options) -> list[Place]:
    """Return the files of an archive and the segments of data directories.

    Args:
        parts: The parts of the table `messages`.
        options: Options of the data source.
    """
    files = [(part, path) for part in parts if isinstance(part, ArchivePart) for path in part.files]
    # A file has the messages of many queues, one queue after the other.
    groups = max(1, PLACES_MAX // max(1, len(files)))
    places: list[Place] = [partial(_read_some, part, path, groups) for part, path in files]
    return places + segment_places([part.partition for part in parts if isinstance(part, LivePart)], options)


def _read_some(part: ArchivePart, path: str, groups: int, most: int) -> Iterator[tuple[int, Payloads]]:
    """Yield bodies of some row groups of a file."""
    chosen: list[int] = []

    def choose(found: list[int]) -> list[int]:
        chosen.extend(spread(found, groups))
        return chosen

    left = most
    for number, batch in enumerate(read_file(ArchiveFiles(part.url), path, part, "messages", SOURCE_COLUMNS, choose)):
        if left <= 0:
            return
        share = -(-left // max(1, len(chosen) - number))
        few = batch.take(evenly(batch.num_rows, share))
        left -= few.num_rows
        if few.num_rows:
            yield batch.nbytes, archived_payloads(few)
