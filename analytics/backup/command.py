"""The commands `leveret backup`, `leveret restore` and `leveret verify`."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from threading import Thread
from typing import Final

from leveret.analytics.arguments import end_at_eof, exit_on_sigterm
from leveret.analytics.backup.capture import Capture, Captured
from leveret.analytics.backup.layout import BackupRefusedError
from leveret.analytics.backup.moments import age_text, shown_time, spans_text
from leveret.analytics.backup.repository import Repository
from leveret.analytics.backup.republish import republish
from leveret.analytics.backup.restore import restore, selects
from leveret.analytics.backup.upkeep import Keep, clean_up, parse_keep, read_duration
from leveret.analytics.backup.verify import verify
from leveret.analytics.errors import AnalyticsError
from leveret.analytics.times import parse_time
from leveret.storage.definitions_database import DefinitionsDamagedError, DefinitionsVersionError
from leveret.storage.directory.directory_format import DataDirectoryError
from leveret.storage.snapshots.snapshot import SnapshotError
from leveret.storage.url_secrets import mask_url

#: Environment variable with the URL of the backups: as an argument everybody could see its password.
URL_VARIABLE: Final = "LEVERET_BACKUP_URL"
_ERRORS: Final = (
    AnalyticsError,
    DataDirectoryError,
    DefinitionsDamagedError,
    DefinitionsVersionError,
    SnapshotError,
    OSError,
)


def main(argv: Sequence[str]) -> int:
    """Run a command.

    Args:
        argv: The command and its arguments.
    Returns:
        The exit status: 0 for success, 1 for failure or damage, 2 for wrong arguments, 130 after SIGINT.
    """
    command = argv[0]
    given = make_parser(command).parse_args(argv[1:])
    run: Callable[[argparse.Namespace], int] = {"backup": _backup, "restore": _restore, "verify": _verify}[command]
    try:
        with exit_on_sigterm():
            return run(given)
    except _ERRORS as error:
        _say(command, str(error))
        return 1
    except KeyboardInterrupt:
        return 130


def make_parser(command: str) -> argparse.ArgumentParser:
    """Return the parser of a command's arguments."""
    parser = argparse.ArgumentParser(prog=f"leveret {command}", description=_DESCRIPTIONS[command], allow_abbrev=False)
    url = os.environ.get(URL_VARIABLE)
    parser.add_argument(
        "--to" if command == "backup" else "--from",
        dest="url",
        metavar="URL",
        default=url,
        required=not url,
        help=f"the backups: a directory, or a URL such as s3://bucket/backup (default: the variable {URL_VARIABLE})",
    )
    parser.add_argument(
        "--key-file", default="", metavar="FILE", help="a key of 32 bytes: backups are encrypted with it"
    )
    if command != "verify":
        parser.add_argument(
            "--data-dir",
            required=command == "backup",
            metavar="D",
            help="the broker's data directory"
            if command == "backup"
            else "the directory to restore into: empty, or one that does not exist",
        )
    if command == "backup":
        parser.add_argument("--interval", metavar="TIME", help="go on: take a whole backup once in this time (15m)")
        parser.add_argument(
            "--log-interval", default="10", metavar="TIME", help="with --interval: send what is new meanwhile (10)"
        )
        parser.add_argument(
            "--keep", metavar="ALL,DAILY", help="how long all are kept, and then one of each day, such as 24h,30d"
        )
        parser.add_argument("--until-eof", action="store_true", help="with --interval: end when stdin does")
    if command == "restore":
        parser.add_argument("--at", metavar="TIME", help="a moment, such as 2026-01-31T12:00:00Z (default: the newest)")
        parser.add_argument("--list", action="store_true", help="show which backups there are, and restore nothing")
        parser.add_argument(
            "--queues", metavar="NAMES", help="only the messages of these queues, such as 'orders.*,bills'"
        )
        parser.add_argument("--vhost", metavar="V", help="only the messages of this virtual host")
        parser.add_argument(
            "--into", metavar="URL", help="publish to a running broker: amqp://user:password@host/vhost"
        )
        parser.add_argument(
            "--as",
            dest="name",
            default="{}.restored",
            metavar="NAME",
            help="with --into: the queues' names ({}.restored)",
        )
        parser.add_argument("--dry-run", action="store_true", help="with --into: only show what would be published")
    return parser


def _backup(given: argparse.Namespace) -> int:
    keep = parse_keep(given.keep) if given.keep else None
    interval = read_duration(given.interval) if given.interval else None
    log_interval = read_duration(given.log_interval)
    if "://" in given.data_dir:
        raise AnalyticsError("backups are taken of a data directory on a local or mounted file system")
    if given.until_eof:
        Thread(target=end_at_eof, daemon=True).start()
    if interval is None:
        _once(given, keep)
        return 0
    while True:
        try:
            _go_on(given, keep, interval, log_interval)
        except _ERRORS as error:
            if isinstance(error, BackupRefusedError | DataDirectoryError):
                raise
            # The store may be out of reach, or the disk full.
            _say("backup", f"{error}; it tries again in {log_interval:g} s")
            time.sleep(log_interval)


def _once(given: argparse.Namespace, keep: Keep | None) -> None:
    repository = Repository(given.url, given.key_file)
    with closing(Capture(given.data_dir, repository)) as capture:
        _take(capture, repository, keep)


def _go_on(given: argparse.Namespace, keep: Keep | None, interval: float, log_interval: float) -> None:
    """Take backups until something fails."""
    repository = Repository(given.url, given.key_file)
    with closing(Capture(given.data_dir, repository)) as capture:
        last_full: float | None = None
        while True:
            began = time.monotonic()
            if last_full is None or began - last_full >= interval:
                last_full = began
                _take(capture, repository, keep)
            else:
                capture.take(is_full=False)
            time.sleep(max(0.0, began + log_interval - time.monotonic()))


def _take(capture: Capture, repository: Repository, keep: Keep | None) -> None:
    """Take a whole backup, say so, and delete what is not to be kept any longer."""
    _tell(capture.take())
    if keep is not None:
        clean_up(repository, keep, time.time_ns() // 1000)


def _restore(given: argparse.Namespace) -> int:
    repository = Repository(given.url, given.key_file)
    if given.list:
        return _list(repository)
    at = None if given.at is None else parse_time(given.at)
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
        _say("restore", line)
    if done_restoring.missing:
        _say("restore", f"{done_restoring.missing} files that may have had messages are not in the backup")
    sys.stdout.write(
        f"{given.data_dir} is as it was at {shown_time(done_restoring.time)}: {written.messages} messages "
        f"({written.body_bytes} bytes) of {written.queues} queues\n"
    )
    return 1 if written.damaged or done_restoring.missing else 0


def _list(repository: Repository) -> int:
    backups = repository.require_backups()
    for each in backups:
        if each.is_full:
            files = repository.files_at(each)
            size = sum(file.size for file in files.values())
            sys.stdout.write(f"{shown_time(each.time)}  {size} bytes  {len(files)} files  {age_text(each.time)} ago\n")
    sys.stdout.write(f"can be restored: {spans_text(backups)}\n")
    return 0


def _verify(given: argparse.Namespace) -> int:
    found = verify(Repository(given.url, given.key_file))
    for line in found.damage:
        _say("verify", line)
    if found.whole:
        sys.stdout.write(f"can be restored: {spans_text(found.whole)}\n")
    sys.stdout.write(
        f"{len(found.whole)} of {len(found.backups)} backups are whole; {found.objects} objects of {found.bytes} bytes "
        f"were read\n"
    )
    return 1 if found.damage else 0


def _tell(found: Captured) -> None:
    _say(
        "backup", f"{shown_time(found.name.time)}: {found.files} files of {found.bytes} bytes, {found.sent} bytes sent"
    )


def _say(command: str, text: str) -> None:
    try:
        sys.stderr.write(f"leveret {command}: {text}\n")
        sys.stderr.flush()
    except BrokenPipeError:
        os._exit(1)


_DESCRIPTIONS: Final = {
    "backup": "Takes a backup of a data directory, while the broker runs on it or not. It stops nobody. What an "
    "earlier backup in the same place has is not sent again.",
    "restore": "Restores a data directory as it was at a moment, or publishes the messages of some queues of that "
    "moment into a running broker.",
    "verify": "Reads all of a backup and says what can be restored. The exit status is 1 if something is damaged.",
}
