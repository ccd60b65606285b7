"""Says where events are that the broker does not keep any more."""

from __future__ import annotations

import logging
from typing import Final

from leveret.storage.analytics.data_files import open_files
from leveret.storage.analytics.rows.record_rows import RowLimits
from leveret.storage.analytics.times import utc_time
from leveret.storage.directory.archive_note import read_note
from leveret.storage.disk.files import DiskFiles
from leveret.storage.snapshots.snapshot import Snapshot

_LOG: Final = logging.getLogger(__name__)


def tell_older_events(location: str, snapshot: Snapshot, limits: RowLimits) -> None:
    """Log where older events are, if a query asks for a time before the event log begins and there is an archive.

    Args:
        location: Path or URI of the data directory.
        snapshot: A snapshot of its events.
        limits: The times that the query asks for.
    """
    widest = RowLimits()
    asked = limits.first_time if limits.first_time > widest.first_time else limits.last_time
    if not snapshot.events or asked >= snapshot.events[0].file:
        return
    files, path = open_files(location)
    note = read_note(files or DiskFiles(), path)
    if note is not None:
        _LOG.warning(
            "%s has the events from %s UTC on; older ones, if there were any, are in the archive %s: read both, as in "
            "leveret.scan(['%s', '%s'], 'events')",
            *(location, f"{utc_time(snapshot.events[0].file):%Y-%m-%d %H:%M:%S}", note.url, note.url, location),
        )
