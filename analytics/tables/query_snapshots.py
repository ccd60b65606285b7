"""Snapshots of queries: one per query, or one that several share; kept while they are read, and removed afterwards."""

from __future__ import annotations

import logging
import os
import pickle
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Final
from uuid import uuid4

import pyarrow as pa

from leveret.analytics.data_files import RemoteFiles, absolute_location, open_files
from leveret.analytics.errors import AnalyticsError, DamagedRecordError
from leveret.analytics.option_values import OffsetPlace
from leveret.analytics.options import Options
from leveret.storage.snapshots.lease import TIMEOUT, SnapshotLease
from leveret.storage.snapshots.snapshot import NoSuchQueueError, Request, Snapshot, take_snapshot
from leveret.storage.url_secrets import mask_url

_LOG: Final = logging.getLogger(__name__)
#: Subdirectory of a session's directory with shared snapshots.
_SHARED: Final = "shared"
#: Suffix of the files beside it that name the leases of all snapshots.
_NOTE: Final = ".lease"
#: Seconds that a session keeps a snapshot that is not read.
KEPT_SECONDS: Final = 3600.0
#: Returns whether a queue is selected, by virtual host and name.
QueueFilter = Callable[[str, str], bool]


def take_query_snapshot(
    options: Options, wants: QueueFilter, described: str | None, messages: bool, events: bool, session: str
) -> Snapshot:
    """Take a snapshot, and record it for the process that renews its lease.

    Args:
        described: Description of a queue that must exist; None if no queue is required.
        messages: Whether the query reads messages.
        events: Whether the query reads events.
    Raises:
        DataDirectoryError: The path is not a data directory, or a newer version wrote it.
        SnapshotError: No snapshot can be taken, or the queue does not exist.
        DamagedRecordError: Data of that moment is damaged or gone, and `fail_fast` is set.
    """
    request = Request(
        messages=messages,
        events=events,
        as_of=options.as_of,
        wanted=wants,
        described=described,
        purpose=f"analytics, table {options.table}",
        timeout=options.lease_seconds or TIMEOUT,
        kind=_kind_of(options) if not events or not messages else "",
    )
    snapshot = snapshot_of(options.path, request)
    if snapshot.missing_segments or snapshot.damaged_events:
        text = (
            f"{options.shown_path}: {snapshot.missing_segments} segment files of that moment are gone, and "
            f"{snapshot.damaged_events} events are damaged"
        )
        if options.fail_fast:
            snapshot.close()
            raise DamagedRecordError(text)
        _LOG.warning("%s", text)
    note_snapshot(snapshot, options, session)
    return snapshot


def snapshot_of(location: str, request: Request) -> Snapshot:
    """Take a snapshot of a data directory, without links if it is on another machine."""
    files, path = open_files(location)
    return take_snapshot(path, request, files if isinstance(files, RemoteFiles) else None)


def note_snapshot(snapshot: Snapshot, options: Options, session: str) -> None:
    """Record a snapshot for the process that renews its lease."""
    if snapshot.lease is not None and session:
        with open(os.path.join(session, f"{uuid4().hex}{_NOTE}"), "w", encoding="utf-8") as file:
            file.write(f"{options.lease_seconds or KEPT_SECONDS} {snapshot.lease.path}")


def noted_snapshots(session: str) -> Iterator[tuple[str, float]]:
    """Yield the snapshots of a session: the paths of their leases, and for how many seconds they are kept unused."""
    for name in os.listdir(session):
        if name.endswith(_NOTE):
            with open(os.path.join(session, name), encoding="utf-8") as file:
                seconds, _, path = file.read().partition(" ")
            # The file is empty until it has been written.
            if path:
                yield path, float(seconds)


def save_shared_snapshot(options: Options, session: str) -> str:
    """Take a snapshot of messages and events for several queries; return its name for their option `snapshot`."""
    options = replace(options, path=absolute_location(options.path))
    snapshot = take_query_snapshot(options, options.wants, options.described, True, True, session)
    name = uuid4().hex
    os.makedirs(os.path.join(session, _SHARED), 0o700, exist_ok=True)
    with open(os.path.join(session, _SHARED, name), "wb") as file:
        pickle.dump((options.path, options.as_of, snapshot), file)
    return name


def load_shared_snapshot(options: Options, wants: QueueFilter, described: str | None, session: str) -> Snapshot:
    """Return the shared snapshot that the options name, reduced to the selected queues.

    Args:
        described: Description of a queue that must exist; None if no queue is required.
    Raises:
        AnalyticsError: The snapshot does not exist, or has another location or time.
        NoSuchQueueError: The queue does not exist.
    """
    path = os.path.join(session, _SHARED, options.snapshot)
    if not session or not options.snapshot.isalnum() or not os.path.exists(path):
        raise AnalyticsError(f"there is no snapshot '{options.snapshot}' in this session; see Session.snapshot()")
    with open(path, "rb") as file:
        # Safe to unpickle: this session wrote it to its private directory.
        location, as_of, found = pickle.load(file)
    if location != absolute_location(options.path):
        raise AnalyticsError(f"snapshot '{options.snapshot}' is of {mask_url(location)}, not of {options.shown_path}")
    if options.as_of not in (None, as_of):
        raise AnalyticsError(
            f"snapshot '{options.snapshot}' was taken with another asOf; leave out asOf or the snapshot"
        )
    kind = _kind_of(options)
    selected = [each for each in found.queues if each.kind == kind and wants(each.vhost, each.name)]
    snapshot: Snapshot = replace(found, queues=selected)
    queues = [each for each in snapshot.names.values() if each.kind == "queue"]
    if described is not None and not any(wants(each.vhost, each.name) for each in queues):
        raise NoSuchQueueError(f"{options.shown_path} has no queue {described}")
    return snapshot


def _kind_of(options: Options) -> str:
    """Return what the messages of a table are in."""
    return "exchange" if options.table == "delayed" else "queue"


#: Seconds between heartbeats.
_PERIOD: Final = 20.0
_THREAD: Final = "leveret-held-snapshots"
#: The leases that are renewed, by path.
_HELD: Final[dict[str, SnapshotLease]] = {}


def hold(owner: object, lease: SnapshotLease) -> Callable[[], object]:
    """Renew a lease until its owner is freed or the process ends; then remove the snapshot.

    Returns:
        A function that removes the snapshot earlier; further calls do nothing.
    """
    _HELD[lease.path] = lease
    _start()
    # A forked child has copies of the owner, but the snapshot is its parent's.
    return weakref.finalize(owner, _release, lease, os.getpid())


def _release(lease: SnapshotLease, pid: int) -> None:
    if os.getpid() == pid:
        _HELD.pop(lease.path, None)
        lease.release()


def _start() -> None:
    """Start the thread that renews leases; a forked child has none."""
    if not any(each.name == _THREAD for each in threading.enumerate()):
        threading.Thread(target=_run, name=_THREAD, daemon=True).start()


def _run() -> None:
    while True:
        time.sleep(_PERIOD)
        renew_held()


def renew_held() -> None:
    """Renew the leases of all snapshots that this process holds."""
    for lease in list(_HELD.values()):
        lease.renew()


def held_reader(
    schema: pa.Schema, batches: Iterator[pa.RecordBatch], leases: Sequence[SnapshotLease]
) -> pa.RecordBatchReader:
    """Return a reader of record batches that removes their snapshots at the end.

    Args:
        leases: Leases of the snapshots that they are read from.
    """
    # As a stream, the reader frees its batches when it is closed, not only when it is freed itself.
    return pa.RecordBatchReader.from_stream(pa.RecordBatchReader.from_batches(schema, _HeldBatches(batches, leases)))


class _HeldBatches:
    """Record batches; removes their snapshots after the last one, or when it is freed."""

    def __init__(self, batches: Iterator[pa.RecordBatch], leases: Sequence[SnapshotLease]) -> None:
        self._batches = batches
        self._releases: list[Callable[[], object]] = [hold(self, lease) for lease in leases]

    def __iter__(self) -> _HeldBatches:
        return self

    def __next__(self) -> pa.RecordBatch:
        try:
            return next(self._batches)
        except BaseException:
            # The last batch has been read, or nothing more can be.
            for release in self._releases:
                release()
            raise


def check_streams(snapshot: Snapshot, start: OffsetPlace, end: OffsetPlace) -> None:
    """Refuse a range of offsets or times of a queue that is no stream.

    Raises:
        AnalyticsError: There is such a queue among those of the snapshot.
    """
    if start.needs_stream or end.needs_stream:
        for queue in snapshot.queues:
            if not queue.is_stream:
                raise AnalyticsError(
                    f"startingOffsets and endingOffsets are for streams, and queue '{queue.name}' in virtual host "
                    f"'{queue.vhost}' is none: name a stream with the option queue, or use firstSeq, lastSeq, since "
                    "and until"
                )
