"""Reads some messages, evenly chosen from all that a query selects, to find out what their bodies are."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np
import pyarrow as pa

from leveret.storage.analytics.bodies.body_options import PROPERTIES_OF_BODIES
from leveret.storage.analytics.bodies.errors import BodyError
from leveret.storage.analytics.bodies.json_bodies import load_json
from leveret.storage.analytics.bodies.json_inference import infer_type
from leveret.storage.analytics.bodies.value_columns import payloads_of
from leveret.storage.analytics.options import Options
from leveret.storage.analytics.partitions import MessagesPartition, SegmentPart
from leveret.storage.analytics.property_slices import property_slices
from leveret.storage.analytics.record_rows import RecordRows
from leveret.storage.analytics.selection import Selection
from leveret.storage.analytics.stream_offsets import EARLIEST, LATEST
from leveret.storage.analytics.table_plan import plan_table
from leveret.storage.analytics.table_reading import PartitionReader

_LOG: Final = logging.getLogger(__name__)
#: How many segments are read at most, and when enough has been read, in bytes.
_SEGMENTS_MAX: Final = 64
_BYTES_MAX: Final = 64 << 20


def inferred_type(options: Options, count: int, session: str) -> pa.DataType:
    """Return the type of a query's JSON bodies, as infer_type() says; text if it cannot be inferred.

    Args:
        options: Options of the data source.
        count: From how many messages at most.
        session: Directory of the session; empty for none.
    Raises:
        AnalyticsError, DataDirectoryError, SnapshotError, DamagedRecordError: As plan_table() does.
    """
    values: list[Any] = []
    reasons: list[str] = []
    for octets, charset, reason in _sample(options, count, session):
        try:
            if octets is None:
                raise BodyError(reason)
            values.append(load_json(octets, charset))
        except BodyError as error:
            reasons.append(str(error))
    if not values:
        found = f"none of {len(reasons)} is JSON: {reasons[0]}" if reasons else "there are no messages"
        _LOG.warning("%s: the type of bodies cannot be inferred, so it is text, as %s", options.path, found)
    return infer_type(values)


def _sample(options: Options, count: int, session: str) -> Iterator[tuple[bytes | None, str, str]]:
    """Yield bodies with their character encoding, or None with what is wrong."""
    starting = EARLIEST if options.starting == LATEST else options.starting
    options = replace(options, reader="", starting=starting, limit=None)
    plan = plan_table(options, Selection(limits=options.batch_limits), session)
    try:
        partitions = [each for each in plan.partitions if isinstance(each, MessagesPartition)]
        places = [(each, part) for each in partitions for part in each.parts]
        left, read = count, 0
        chosen = _spread(places, _SEGMENTS_MAX)
        for number, (partition, part) in enumerate(chosen):
            if left <= 0 or read > _BYTES_MAX:
                return
            share = -(-left // (len(chosen) - number))
            rows = _rows(partition, part, options)
            read += len(rows.octets)
            if len(rows.at):
                _thin_out(rows, share)
                left -= len(rows.at)
                payloads = payloads_of(rows, property_slices(rows, PROPERTIES_OF_BODIES))
                for row, octets in enumerate(payloads.octets.to_pylist()):
                    yield octets, payloads.charsets.get(row, ""), payloads.reasons.get(row, "")
    finally:
        if plan.lease is not None and not options.snapshot:
            plan.lease.release()


def _rows(partition: MessagesPartition, part: SegmentPart, options: Options) -> RecordRows:
    reader = PartitionReader(partition.place, options.table, (), options.fail_fast)
    return reader.rows(part)


def _spread(places: Sequence[Any], most: int) -> list[Any]:
    """Return at most so many of a list, evenly chosen, those that are far from each other first."""
    chosen = [places[int(at)] for at in np.linspace(0, len(places) - 1, min(most, len(places)))]
    step = 1
    while step * 2 < len(chosen):
        step *= 2
    ordered: list[int] = []
    while step:
        ordered += [at for at in range(0, len(chosen), step) if at not in ordered]
        step //= 2
    return [chosen[at] for at in ordered]


def _thin_out(rows: RecordRows, most: int) -> None:
    """Leave at most so many rows, evenly chosen."""
    if len(rows.at) > most:
        kept = np.linspace(0, len(rows.at) - 1, most).astype(np.int64)
        rows.at, rows.seq, rows.arrived = rows.at[kept], rows.seq[kept], rows.arrived[kept]
