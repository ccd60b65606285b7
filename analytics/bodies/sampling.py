"""Reads some messages, evenly chosen from all that a query selects, to find out what their bodies are."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

import pyarrow as pa

from leveret.analytics.archive.sources import Sources
from leveret.analytics.bodies.errors import BodyError
from leveret.analytics.bodies.json_bodies import load_json
from leveret.analytics.bodies.json_inference import infer_type
from leveret.analytics.bodies.sample_places import PLACES_MAX, Place, segment_places, spread
from leveret.analytics.options import Options
from leveret.analytics.selection import Selection
from leveret.analytics.stream_offsets import EARLIEST, LATEST
from leveret.analytics.table_plan import plan_table
from leveret.storage.snapshots.lease import SnapshotLease

_LOG: Final = logging.getLogger(__name__)
#: When enough has been read, in bytes.
_BYTES_MAX: Final = 64 << 20


def inferred_type(options: Options, count: int, session: str, sources: Sources | None = None) -> pa.DataType:
    """Return the type of a query's JSON bodies, as infer_type() says; text if it cannot be inferred.

    Args:
        options: Options of the data source.
        count: From how many messages at most.
        session: Directory of the session; empty for none.
        sources: The archive that is read, and data directories with it; None for a data directory alone.
    Raises:
        AnalyticsError, DataDirectoryError, SnapshotError, DamagedRecordError: As plan_table() does.
        ArchiveError: The archive cannot be read.
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
    places, leases = _places(options, session, sources)
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
        for lease in leases:
            lease.release()


def _places(options: Options, session: str, sources: Sources | None) -> tuple[list[Place], list[SnapshotLease]]:
    """Return where the messages of a query are, and what keeps their files for this alone."""
    selection = Selection(limits=options.batch_limits)
    if sources is None:
        plan = plan_table(options, selection, session)
        return segment_places(plan.partitions, options), [plan.lease] if plan.lease and not options.snapshot else []
    # Data directories are read without what archives need.
    from leveret.analytics.archive.archive_plan import check_archive_options, plan_archive
    from leveret.analytics.archive.archived_samples import archived_places

    check_archive_options(options)
    found = plan_archive(sources, options, selection, session)
    return archived_places(found.parts, options), found.leases
