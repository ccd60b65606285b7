"""Takes backups again and again, and says which there are: on stderr for people, as lines of JSON for the broker."""

from __future__ import annotations

import json
import time
from contextlib import closing
from typing import Any, Final, NamedTuple, TextIO

from leveret.analytics.arguments import say
from leveret.analytics.backup.capture import Capture, Captured
from leveret.analytics.backup.layout import BackupName, BackupRefusedError
from leveret.analytics.backup.listing import Keep, Listing, clean_up
from leveret.analytics.backup.moments import shown_time, spans
from leveret.analytics.backup.repository import Repository
from leveret.analytics.backup.writers import Turn
from leveret.analytics.errors import AnalyticsError
from leveret.storage.definitions_database import DefinitionsDamagedError, DefinitionsVersionError
from leveret.storage.directory.directory_format import DataDirectoryError
from leveret.storage.snapshots.snapshot import SnapshotError

#: What ends a command with one line.
ERRORS: Final = (
    AnalyticsError,
    DataDirectoryError,
    DefinitionsDamagedError,
    DefinitionsVersionError,
    SnapshotError,
    OSError,
)


#: Seconds after which is looked whether definitions have changed.
_LOOK_SECONDS: Final = 1.0
#: Whole backups that the broker is told of, the newest: a line must not be too long.
_TOLD_MAX: Final = 1000


class Schedule(NamedTuple):
    """When backups are taken, and how long they are kept.

    Attributes:
        interval: Seconds from one whole backup to the next.
        log_interval: Seconds after which what is new meanwhile is sent.
        keep: How long they are kept; None for ever.
    """

    interval: float
    log_interval: float
    keep: Keep | None


class Report:
    """Tells the broker which backups there are: a JSON object a line.

    `time` is when the last one was taken, or 0; `sent` the bytes that were sent for it; `hold` since when the broker
    has to keep what it drops. `error` says why one has failed. After a whole one there are `backups`, and always
    `spans`: the first and last moments that can be restored. Times are microseconds since 1970.

    Args:
        stream: Where it is written to; None for nowhere.
    """

    def __init__(self, stream: TextIO | None) -> None:
        self._stream = stream
        self._listing: Listing | None = None
        self._names: list[BackupName] = []

    def begin(self, repository: Repository, hold: int) -> None:
        """Tell what there is before the first backup."""
        if self._stream is not None:
            self._listing = Listing(repository)
            self._names = repository.backups()
            self._write(time=0, sent=0, hold=hold, **self._there())

    def taken(self, found: Captured, repository: Repository, hold: int) -> None:
        """Tell that a backup was taken."""
        if self._stream is None:
            return
        if found.name.is_full:
            # Others may be gone since.
            self._names = repository.backups()
            self._write(time=time.time_ns() // 1000, sent=found.sent, hold=hold, **self._there())
            return
        if not self._names or self._names[-1] != found.name:
            self._names.append(found.name)
        self._write(time=time.time_ns() // 1000, sent=found.sent, hold=hold, spans=spans(self._names))

    def failed(self, error: str) -> None:
        """Tell why a backup has failed."""
        if self._stream is not None:
            self._write(error=error)

    def _there(self) -> dict[str, Any]:
        assert self._listing is not None
        rows = [row._asdict() for row in self._listing.rows(self._names)[-_TOLD_MAX:]]
        return {"spans": spans(self._names), "backups": rows}

    def _write(self, **fields: Any) -> None:
        assert self._stream is not None
        self._stream.write(f"{json.dumps(fields)}\n")
        self._stream.flush()


def take_one(data_dir: str, repository: Repository, keep: Keep | None) -> None:
    """Take one whole backup, and delete those that are not to be kept any longer."""
    with closing(Capture(data_dir, repository)) as capture:
        _take(capture, repository, keep)


def go_on(data_dir: str, url: str, key_file: str, schedule: Schedule, report: Report, turn: Turn | None = None) -> int:
    """Take backups until the process is ended.

    Args:
        turn: In a cluster, the leader's choice of this node.
    Raises:
        BackupRefusedError: Trying again would change nothing.
        DataDirectoryError: It is no data directory, or a newer version has written it.
    """
    while True:
        try:
            _go_on(Capture(data_dir, repository := Repository(url, key_file), turn), repository, schedule, report)
        except ERRORS as error:
            report.failed(str(error))
            if isinstance(error, BackupRefusedError | DataDirectoryError):
                raise
            # The store may be out of reach, or the disk full.
            say("leveret backup", f"{error}; it tries again in {schedule.log_interval:g} s")
            time.sleep(schedule.log_interval)


def _go_on(capture: Capture, repository: Repository, schedule: Schedule, report: Report) -> None:
    """Take backups until something fails."""
    with closing(capture):
        report.begin(repository, capture.hold())
        last_full: float | None = None
        while True:
            began = time.monotonic()
            if last_full is None or began - last_full >= schedule.interval:
                last_full = began
                found = _take(capture, repository, schedule.keep)
            else:
                found = capture.take(is_full=False)
            report.taken(found, repository, capture.hold())
            while (left := began + schedule.log_interval - time.monotonic()) > 0:
                time.sleep(min(left, _LOOK_SECONDS))
                capture.note_definitions()


def _take(capture: Capture, repository: Repository, keep: Keep | None) -> Captured:
    """Take a whole backup, say so, and delete what is not to be kept any longer."""
    found = capture.take()
    say(
        "leveret backup",
        f"{shown_time(found.name.time)}: {found.files} files of {found.bytes} bytes, {found.sent} bytes sent",
    )
    if keep is not None:
        clean_up(repository, keep, time.time_ns() // 1000, capture.check)
    return found
