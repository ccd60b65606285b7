"""The commands `leveret backup`, `leveret restore` and `leveret verify`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from threading import Thread

from leveret.analytics.arguments import end_at_eof, exit_on_sigterm, say
from leveret.analytics.backup.listing import Listing, parse_keep, read_duration, verify
from leveret.analytics.backup.moments import age_text, shown_time, spans_text
from leveret.analytics.backup.repository import Repository
from leveret.analytics.backup.republish import republish, write_messages
from leveret.analytics.backup.restore import restore, selects
from leveret.analytics.backup.running import ERRORS, Report, Schedule, go_on, take_one
from leveret.analytics.backup.writers import parse_turn
from leveret.analytics.errors import AnalyticsError
from leveret.analytics.times import parse_time
from leveret.storage.url_secrets import mask_url


def run(command: str, given: argparse.Namespace) -> int:
    """Run a command with its arguments.

    Returns:
        The exit status: 0 for success, 1 for failure or damage, 130 after SIGINT.
    """
    runs: dict[str, Callable[[argparse.Namespace], int]] = {"backup": _backup, "restore": _restore, "verify": _verify}
    try:
        with exit_on_sigterm():
            return runs[command](given)
    except ERRORS as error:
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
