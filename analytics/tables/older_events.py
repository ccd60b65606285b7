"""Reads events that only an archive has."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple
from zlib import crc32

import pyarrow as pa

from leveret.analytics.archive.manifests import ArchivePart, BrokerFiles, archive_parts, read_manifests
from leveret.analytics.data_files import open_files
from leveret.analytics.errors import AnalyticsError, ArchiveError
from leveret.analytics.option_values import AUTO, ArchiveUse
from leveret.analytics.options import Options
from leveret.analytics.selection import RowLimits, Selection
from leveret.analytics.tables.event_batches import EVENT_NUMBERS, event_batch, event_keys, select_events, times_in
from leveret.analytics.tables.partitions import OlderEventsPartition, SnapshotLocation
from leveret.analytics.times import utc_time
from leveret.storage.directory.archive_note import NAME, ArchiveNote, read_note
from leveret.storage.event_format import EVENT_BYTES
from leveret.storage.snapshots.snapshot import NoSuchMomentError, Snapshot, SnapshotError, read_directory_format

_LOG: Final = logging.getLogger(__name__)


class _Beginning(NamedTuple):
    """Where the event log begins.

    Attributes:
        time: Time of its first event, in microseconds since 1970.
        events: How often it has which events of that time.
    """

    time: int
    events: Counter[tuple[Any, ...]]


def older_events(
    snapshot: Snapshot, place: SnapshotLocation, options: Options, selection: Selection
) -> Iterator[OlderEventsPartition]:
    """Yield what only the archive has of the events that a query asks for; say in the log where they are.

    Args:
        snapshot: A snapshot of the events that the broker keeps.
        options: Options of the data source; their limits are not used.
    Raises:
        AnalyticsError: A file of the snapshot is gone.
    """
    oldest = snapshot.events[0].file if snapshot.events else snapshot.cut.time
    limits = options.archive.older_than(oldest, selection.limits)
    if limits is None:
        return
    since = f"{options.shown_path} has the events from {utc_time(oldest):%Y-%m-%d %H:%M:%S} UTC on"
    note = read_note(*open_files(options.path))
    if note is None:
        if options.archive != AUTO:
            _LOG.warning("%s; it has no file %s, which would name the archive with older ones", since, NAME)
        return
    try:
        state = _archived(note, snapshot.store_id)
    except ArchiveError as error:
        _LOG.warning(
            "%s; older ones, if there were any, are in the archive %s, which cannot be read: %s", since, note.url, error
        )
        return
    _LOG.warning("%s; older ones are read from the archive %s (archive=off leaves them out)", since, note.url)
    begin = _beginning(snapshot, options.path)
    copied = state.last.position["events"]["file"] if state.last is not None else 0
    shared = begin.events if copied >= oldest else Counter()
    before = limits._replace(last_time=min(limits.last_time, begin.time - 1))
    for part in archive_parts(note.url, state.files.values(), options, replace(selection, limits=before)):
        yield OlderEventsPartition(place, part)
    if limits.first_time <= begin.time <= limits.last_time:
        then = limits._replace(first_time=begin.time, last_time=begin.time)
        for part in archive_parts(
            note.url, state.files.values(), options, replace(selection, limits=then), is_one=True
        ):
            yield OlderEventsPartition(place, part, shared)


def events_until(
    options: Options, selection: Selection, session: str, cause: NoSuchMomentError
) -> Iterator[OlderEventsPartition]:
    """Yield the events up to a time of which the broker has no records any more, all from the archive.

    Args:
        options: Options of the data source, with `as_of`.
        session: Directory of the session, in which damage is recorded; empty for none.
    Raises:
        SnapshotError: There is no archive, or it cannot be read.
    """
    note = read_note(*open_files(options.path))
    if note is None or options.archive.use is ArchiveUse.OFF or options.as_of is None:
        raise cause
    store_id = read_directory_format(*open_files(options.path)).store_id
    try:
        state = _archived(note, store_id)
    except ArchiveError as error:
        raise SnapshotError(
            f"{cause}; older ones are in the archive {note.url}, which cannot be read: {error}"
        ) from error
    _LOG.warning("%s; the events are read from the archive %s (archive=off leaves them out)", cause, note.url)
    limits = selection.limits._replace(last_time=min(selection.limits.last_time, options.as_of))
    place = SnapshotLocation(options.path, "", options.as_of, store_id, session)
    for part in archive_parts(note.url, state.files.values(), options, replace(selection, limits=limits)):
        yield OlderEventsPartition(place, part)


def _archived(note: ArchiveNote, store_id: bytes) -> BrokerFiles:
    """Return what an archive has of a data directory."""
    # Data directories are read without what archives need, if there is none.
    from leveret.analytics.archive.archive_files import ArchiveFiles

    files = ArchiveFiles(note.url)
    if not files.exists():
        raise ArchiveError("there is no archive")
    state = read_manifests(files, store_id.hex())
    if state.last is None:
        raise ArchiveError("it has nothing of this data directory")
    return state


def _beginning(snapshot: Snapshot, location: str) -> _Beginning:
    """Return where the event log begins."""
    files, salt = open_files(location)[0], crc32(snapshot.store_id)
    begin: int | None = None
    events: Counter[tuple[Any, ...]] = Counter()
    for view in snapshot.events:
        try:
            octets = files.read_part(view.path, EVENT_BYTES, view.end - EVENT_BYTES)
        except FileNotFoundError as error:
            raise AnalyticsError(
                f"{view.path} is gone, because the snapshot was removed; run the query again"
            ) from error
        found = times_in(octets, salt)
        if found is None:
            continue
        first, last = found
        begin = first if begin is None else begin
        rows = select_events(octets, salt, None, RowLimits(first_time=begin, last_time=begin))
        events.update(event_keys(event_batch(rows, EVENT_NUMBERS, {})))
        if last > begin:
            break
    return _Beginning(snapshot.cut.time if begin is None else begin, events)


def read_older(
    part: ArchivePart, shared: Mapping[tuple[Any, ...], int], columns: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """Yield events of an archive, without some that the event log has as well.

    Args:
        part: The files, and which of their rows are selected.
        shared: How often which events are left out, as event_keys() makes them.
    Raises:
        ArchiveError: A file cannot be read.
    """
    # Data directories are read without what archives need.
    from leveret.analytics.archive.archive_files import ArchiveFiles
    from leveret.analytics.archive.file_reading import read_file

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
