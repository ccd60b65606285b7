"""Keeps the snapshots of this process while they are read, however slowly, and removes them afterwards."""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Final

import pyarrow as pa

from leveret.storage.snapshots.lease import SnapshotLease

#: Seconds between heartbeats.
_PERIOD: Final = 20.0
_THREAD: Final = "leveret-held-snapshots"
#: The leases that are renewed, by path.
_HELD: Final[dict[str, SnapshotLease]] = {}


def hold(owner: object, lease: SnapshotLease) -> Callable[[], object]:
    """Renew a lease until its owner is freed or the process ends; then remove the snapshot.

    Args:
        owner: The object that reads the snapshot.
        lease: The lease of the snapshot.
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
        schema: The schema of the batches.
        batches: The batches.
        leases: Leases of the snapshots that they are read from.
    """
    # As a stream, the reader frees its batches when it is closed, not only when it is freed itself.
    return pa.RecordBatchReader.from_stream(pa.RecordBatchReader.from_batches(schema, _HeldBatches(batches, leases)))


class _HeldBatches:
    """Record batches; removes their snapshots after the last one, or when it is freed.

    Args:
        batches: The batches.
        leases: Leases of the snapshots.
    """

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
