"""Reads some messages, evenly chosen from all that a query selects, to find out what their bodies are."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa

from leveret.analytics.archive.layout import Sources
from leveret.analytics.archive.manifests import ArchivePart
from leveret.analytics.bodies.json_bodies import load_json
from leveret.analytics.bodies.json_values import infer_type
from leveret.analytics.bodies.payloads import SOURCE_COLUMNS, BodyError, Payloads, archived_payloads, payloads_of
from leveret.analytics.columns import PROPERTIES_OF_BODIES
from leveret.analytics.option_values import EARLIEST, LATEST
from leveret.analytics.options import Options
from leveret.analytics.rows.property_slices import property_slices
from leveret.analytics.selection import Selection
from leveret.analytics.tables.partitions import LivePart, MessagesPartition, Part, SegmentPart
from leveret.analytics.tables.table_plan import plan_query
from leveret.analytics.tables.table_reading import PartitionReader

#: How many places are read at most.
PLACES_MAX: Final = 64
#: Reads at most so many messages of a place: yields how many bytes were read for them, and their bodies.
Place: TypeAlias = Callable[[int], Iterator[tuple[int, Payloads]]]


def _places(parts: Sequence[Part], options: Options) -> list[Place]:
    """Return the files of an archive, and the segments of data directories."""
    files = [(part, path) for part in parts if isinstance(part, ArchivePart) for path in part.files]
    # A file has the messages of many queues, one queue after the other.
    groups = max(1, PLACES_MAX // max(1, len(files)))
    places: list[Place] = [partial(_read_some, part, path, groups) for part, path in files]
    live = [part.partition if isinstance(part, LivePart) else part for part in parts]
    segments = [(each, part) for each in live if isinstance(each, MessagesPartition) for part in each.parts]
    return places + [partial(_read_segment, each, part, options) for each, part in segments]


def spread(places: Sequence[Any], most: int) -> list[Any]:
    """Return at most so many of a list, evenly chosen, those that are far from each other first."""
    chosen = [places[int(at)] for at in evenly(len(places), most)]
    step = 1
    while step * 2 < len(chosen):
        step *= 2
    ordered: list[int] = []
    while step:
        ordered += [at for at in range(0, len(chosen), step) if at not in ordered]
        step //= 2
    return [chosen[at] for at in ordered]


def evenly(count: int, most: int) -> Any:
    """Return at most so many indexes of a list of a length, evenly chosen."""
    return np.linspace(0, count - 1, min(most, count)).astype(np.int64)


def _read_segment(
    partition: MessagesPartition, part: SegmentPart, options: Options, most: int
) -> Iterator[tuple[int, Payloads]]:
    rows = PartitionReader(partition.place, options.table, (), options.fail_fast).rows(part)
    if len(rows.at):
        rows.at = rows.at[evenly(len(rows.at), most)]
        yield len(rows.octets), payloads_of(rows, property_slices(rows, PROPERTIES_OF_BODIES))


def _read_some(part: ArchivePart, path: str, groups: int, most: int) -> Iterator[tuple[int, Payloads]]:
    """Yield bodies of some row groups of a file."""
    chosen: list[int] = []

    def choose(found: list[int]) -> list[int]:
        chosen.extend(spread(found, groups))
        return chosen

    # Data directories are read without what archives need.
    from leveret.analytics.archive.archive_files import ArchiveFiles
    from leveret.analytics.archive.file_reading import read_file

    left = most
    for number, batch in enumerate(read_file(ArchiveFiles(part.url), path, part, "messages", SOURCE_COLUMNS, choose)):
        if left <= 0:
            return
        share = -(-left // max(1, len(chosen) - number))
        few = batch.take(evenly(batch.num_rows, share))
        left -= few.num_rows
        if few.num_rows:
            yield batch.nbytes, archived_payloads(few)


_LOG: Final = logging.getLogger(__name__)
#: When enough has been read, in bytes.
_BYTES_MAX: Final = 64 << 20


def inferred_type(options: Options, count: int, session: str, sources: Sources | None = None) -> pa.DataType:
    """Return the type of a query's JSON bodies, as infer_type() says; text if it cannot be inferred.

    Args:
        count: From how many messages at most.
    Raises:
        AnalyticsError, DataDirectoryError, SnapshotError, DamagedRecordError, ArchiveError: As plan_query() does.
    """
    values: list[Any] = []
    reasons: list[str] = []
    for octets, charset, reason in _sample(options, count, session, sources):
        try:
            if octets is None:
                raise BodyError(reason)
            values.append(load_json(octets, charset))
        except BodyError as error:
            reasons.append(str(error))
    if not values:
        found = f"none of {len(reasons)} is JSON: {reasons[0]}" if reasons else "there are no messages"
        _LOG.warning("%s: the type of bodies cannot be inferred, so it is text, as %s", options.shown_path, found)
    return infer_type(values)


def _sample(
    options: Options, count: int, session: str, sources: Sources | None
) -> Iterator[tuple[bytes | None, str, str]]:
    """Yield bodies with their character encoding, or None with what is wrong."""
    starting = EARLIEST if options.starting == LATEST else options.starting
    options = replace(options, reader="", starting=starting, limit=None)
    plan = plan_query(options, sources, Selection(limits=options.batch_limits), session)
    places = _places(plan.parts, options)
    try:
        left, read = count, 0
        chosen = spread(places, PLACES_MAX)
        for number, place in enumerate(chosen):
            if left <= 0 or read > _BYTES_MAX:
                return
            for size, payloads in place(-(-left // (len(chosen) - number))):
                read += size
                left -= len(payloads.octets)
                for row, octets in enumerate(payloads.octets.to_pylist()):
                    yield octets, payloads.charsets.get(row, ""), payloads.reasons.get(row, "")
    finally:
        for lease in plan.leases if not options.snapshot else ():
            lease.release()
