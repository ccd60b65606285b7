"""The commands `leveret backup`, which may go on for ever, `leveret restore` and `leveret verify`."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from contextlib import closing
from threading import Thread
from typing import Any, Final, NamedTuple, TextIO

from leveret.analytics.arguments import end_at_eof, exit_on_sigterm, say
from leveret.analytics.backup.capture import Capture, Captured
from leveret.analytics.backup.layout import BackupName, BackupRefusedError
from leveret.analytics.backup.listing import Keep, Listing, clean_up, parse_keep, read_duration, verify
from leveret.analytics.backup.moments import age_text, shown_time, spans, spans_text
from leveret.analytics.backup.repository import Repository
from leveret.analytics.backup.republish import republish, write_messages
from leveret.analytics.backup.restore import restore, selects
from leveret.analytics.backup.writers import Turn, parse_turn
from leveret.analytics.errors import AnalyticsError
from leveret.analytics.times import parse_time
from leveret.storage.definitions_database import DefinitionsDamagedError, DefinitionsVersionError
from leveret.storage.directory.directory_format import DataDirectoryError
from leveret.storage.snapshots.snapshot import SnapshotError
from leveret.storage.url_secrets import mask_url

#: What ends a command with one line.
_ERRORS: Final = (
    AnalyticsError,
    DataDirectoryError,
    DefinitionsDamagedError,
    DefinitionsVersionError,
    SnapshotError,
    OSError,
)


def run(command: str, given: argparse.Namespace) -> int:
    """Run a command with its arguments.

    Returns:
        The exit status: 0 for success, 1 for failure or damage, 130 after SIGINT.
    """
    runs: dict[str, Callable[[argparse.Namespace], int]] = {"backup": _backup, "restore": _restore, "verify": _verify}
    try:
        with exit_on_sigterm():
            return runs[command](given)
    except _ERRORS as error:
        say(f"leveret {command}", str(error))
        return 1
    except KeyboardInterrupt:
        return 130


def _backup(given: argparse.Namespace) -> int:
    keep = parse_keep(given.keep) if given.keep else None
    interval = read_duration(given.interval) if given.interval else None
    log_interval = read_duration(given.log_interval)
    if "://" in given.data_dir:
        raise AnalyticsError("backups are taken of a data directory on a local or mounted file system")
    if given.until_eof:
        Thread(target=end_at_eof, daemon=True).start()
    if interval is None:
        take_one(given.data_dir, Repository(given.url, given.key_file), keep)
        return 0
    turn = None if given.turn is None else parse_turn(given.turn)
    schedule = Schedule(interval, log_interval, keep)
    return go_on(
        given.data_dir, given.url, given.key_file, schedule, Report(sys.stdout if given.report else None), turn
    )


def _restore(given: argparse.Namespace) -> int:
    repository = Repository(given.url, given.key_file)
    if given.list:
        return _list(repository)
    at = None if given.at is None else parse_time(given.at)
    if given.messages_of is not None:
        # For a job of the broker, which publishes them itself.
        write_messages(repository, at, given.vhost or "/", given.messages_of, given.skip, sys.stdout.buffer)
        return 0
    chosen = selects(given.queues, given.vhost)
    if given.into:
        if given.data_dir:
            raise AnalyticsError("give either --data-dir or --into")
        done = republish(repository, at, chosen, given.into, given.name, given.dry_run)
        for vhost, name, target, count in done.queues:
            what = "would get" if given.dry_run else "has got"
            sys.stdout.write(f"{target} {what} {count} messages of {name} in {vhost}\n")
        if done.refused:
            raise AnalyticsError(f"{mask_url(given.into)} has not taken {done.refused} messages")
        return 0
    if not given.data_dir:
        raise AnalyticsError("say where to restore to: --data-dir D, or --into amqp://…")
    done_restoring = restore(repository, given.data_dir, at, chosen)
    written = done_restoring.written
    for line in written.damaged:
        say("leveret restore", line)
    if done_restoring.missing:
        say("leveret restore", f"{done_restoring.missing} files that may have had messages are not in the backup")
    sys.stdout.write(
        f"{given.data_dir} is as it was at {shown_time(done_restoring.time)}: {written.messages} messages "
        f"({written.body_bytes} bytes) of {written.queues} queues\n"
    )
    return 1 if written.damaged or done_restoring.missing else 0


def _list(repository: Repository) -> int:
    backups = repository.require_backups()
    for each in Listing(repository).rows(backups):
        sent = "" if each.sent is None else f"  {each.sent} bytes sent in {each.seconds:.1f} s"
        what = "its manifest is damaged" if each.bytes is None else f"{each.bytes} bytes  {each.files} files{sent}"
        sys.stdout.write(f"{shown_time(each.time)}  {what}  {age_text(each.time)} ago\n")
    sys.stdout.write(f"can be restored: {spans_text(backups)}\n")
    return 0


def _verify(given: argparse.Namespace) -> int:
    found = verify(Repository(given.url, given.key_file))
    for line in found.damage:
        say("leveret verify", line)
    if found.whole:
        sys.stdout.write(f"can be restored: {spans_text(found.whole)}\n")
    sys.stdout.write(
        f"{len(found.whole)} of {len(found.backups)} backups are whole; {found.objects} objects of {found.bytes} bytes "
        f"were read\n"
    )
    return 1 if found.damage else 0


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
        except _ERRORS as error:
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
