"""Places from which some messages are read, to find out what their bodies are."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, Final, TypeAlias

import numpy as np

from leveret.analytics.bodies.body_options import PROPERTIES_OF_BODIES
from leveret.analytics.bodies.compression import Payloads
from leveret.analytics.bodies.value_columns import payloads_of
from leveret.analytics.options import Options
from leveret.analytics.partitions import MessagesPartition, SegmentPart
from leveret.analytics.rows.property_slices import property_slices
from leveret.analytics.rows.record_rows import RecordRows
from leveret.analytics.table_reading import PartitionReader

#: How many places are read at most.
PLACES_MAX: Final = 64
#: Reads at most so many messages of a place: yields how many bytes were read for them, and their bodies.
Place: TypeAlias = Callable[[int], Iterator[tuple[int, Payloads]]]


def segment_places(partitions: Iterable[Any], options: Options) -> list[Place]:
    """Return the segments of partitions.

    Args:
        partitions: Those without messages are left out.
        options: Options of the data source.
    """
    return [
        partial(_read_segment, each, part, options)
        for each in partitions
        if isinstance(each, MessagesPartition)
        for part in each.parts
    ]


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
        _thin_out(rows, most)
        yield len(rows.octets), payloads_of(rows, property_slices(rows, PROPERTIES_OF_BODIES))


def _thin_out(rows: RecordRows, most: int) -> None:
    """Leave at most so many rows, evenly chosen."""
    if len(rows.at) > most:
        rows.at = rows.at[evenly(len(rows.at), most)]
