"""`leveret-analytics archive`: copies messages and events of a broker into an archive, again and again."""

from __future__ import annotations

import argparse
import logging
import os
import re
import signal
import socket
import sys
import time
from collections.abc import Sequence
from threading import Thread
from typing import Final

from leveret.analytics.archive.archive_files import ArchiveFiles
from leveret.analytics.archive.archiver import Archiver, ArchiverOptions, Copied
from leveret.analytics.archive.arguments import PROGRAM, make_parser
from leveret.analytics.archive.errors import ArchiveError, ArchiveRefusedError
from leveret.analytics.data_files import absolute_location
from leveret.analytics.errors import AnalyticsError
from leveret.analytics.options import names_text
from leveret.analytics.termination import exit_on_sigterm
from leveret.storage.directory.directory_format import DataDirectoryError
from leveret.storage.snapshots.snapshot import SnapshotError

#: Seconds in which the archiver ends in order when the broker that has started it is dead.
_SECONDS_TO_END: Final = 10.0
_NOT_IN_A_NAME: Final = re.compile(r"[^A-Za-z0-9_-]+")


def main(arguments: Sequence[str]) -> int:
    """Run the archiver.

    Args:
        arguments: Command-line arguments after `archive`.
    Returns:
        The exit status: 0 for success, 1 for failure, 2 for wrong arguments, 130 after SIGINT.
    """
    given = make_parser().parse_args(arguments)
    logging.basicConfig(format=f"{PROGRAM}: %(message)s", level=logging.WARNING)
    try:
        with exit_on_sigterm():
            if given.until_eof:
                Thread(target=_end_at_eof, daemon=True).start()
            options = _options(given)
            if given.once:
                _run(options, given.to, None)
            else:
                _run_for_ever(options, given.to, given.interval)
    except (AnalyticsError, DataDirectoryError, SnapshotError, OSError) as error:
        _say(str(error))
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


def _options(given: argparse.Namespace) -> ArchiverOptions:
    if "://" in given.data_dir:
        raise AnalyticsError("the archiver needs a data directory on a local or mounted file system")
    host = _NOT_IN_A_NAME.sub("-", socket.gethostname().partition(".")[0]).strip("-_")[:64]
    return ArchiverOptions(
        absolute_location(given.data_dir),
        given.reader,
        given.broker,
        host or "broker",
        None if given.vhost is None else names_text(given.vhost),
        None if given.queue is None else names_text(given.queue),
        given.fail_on_data_loss == "true",
        keep=given.keep,
    )


def _run_for_ever(options: ArchiverOptions, url: str, interval: float) -> None:
    """Copy until something fails that time does not mend."""
    while True:
        try:
            _run(options, url, interval)
        except (AnalyticsError, SnapshotError, OSError) as error:
            is_loss = options.fail_on_data_loss and not isinstance(error, ArchiveError | SnapshotError | OSError)
            if is_loss or isinstance(error, ArchiveRefusedError):
                raise
            # The store may be out of reach, or the disk full. Whether the last manifest was written is not known.
            _say(f"{error}; it tries again in {interval:g} s")
            time.sleep(interval)


def _run(options: ArchiverOptions, url: str, interval: float | None) -> None:
    """Copy what is there, and then what comes, once in an interval; None to end when nothing is left."""
    files = ArchiveFiles(url)
    _check_apart(options.data_dir, files)
    archiver = Archiver(options, files)
    try:
        while True:
            began = time.monotonic()
            copied = archiver.copy()
            if copied.number:
                _tell(copied)
            if not copied.is_all:
                continue
            archiver.keep_up()
            if interval is None:
                return
            time.sleep(max(0.0, began + interval - time.monotonic()))
    finally:
        archiver.close()


def _check_apart(data_dir: str, files: ArchiveFiles) -> None:
    """Refuse an archive in the data directory.

    Raises:
        ArchiveRefusedError: It is there.
    """
    if files.local_path is not None and f"{files.local_path}/".startswith(f"{data_dir.rstrip('/')}/"):
        raise ArchiveRefusedError(f"{files.shown} is in the data directory; put the archive somewhere else")


def _tell(copied: Copied) -> None:
    rows = " and ".join(f"{count} {table}" for table, count in copied.rows.items())
    _say(f"manifest {copied.number}: {rows} in {copied.files} files")


def _end_at_eof() -> None:
    """End the process in order, and after some seconds anyway, as the archive bears it, when stdin ends."""
    while os.read(sys.stdin.fileno(), 4096):
        pass
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(_SECONDS_TO_END)
    os._exit(1)


def _say(text: str) -> None:
    try:
        sys.stderr.write(f"{PROGRAM}: {text}\n")
        sys.stderr.flush()
    except BrokenPipeError:
        # The broker that has started this process is dead, and its next start makes another one.
        os._exit(1)
