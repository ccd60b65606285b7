"""Runs `leveret backup`, `leveret restore` and `leveret verify`; says which optional library is missing."""

from __future__ import annotations

import argparse
import os
import sys
from typing import Final

from leveret.analytics.arguments import say

#: Environment variable with the URL of the backups: as an argument everybody could see its password.
URL_VARIABLE: Final = "LEVERET_BACKUP_URL"
_DESCRIPTIONS: Final = {
    "backup": "Takes a backup of a data directory, while the broker runs on it or not. It stops nobody. What an "
    "earlier backup in the same place has is not sent again.",
    "restore": "Restores a data directory as it was at a moment, or publishes the messages of some queues of that "
    "moment into a running broker.",
    "verify": "Reads all of a backup and says what can be restored. The exit status is 1 if something is damaged.",
}


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
        parser.add_argument("--turn", help=argparse.SUPPRESS)
        parser.add_argument("--until-eof", action="store_true", help="with --interval: end when stdin does")
        parser.add_argument(
            "--report", action="store_true", help="with --interval: write which backups there are to stdout, as JSON"
        )
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
        parser.add_argument("--messages-of", metavar="NAME", help=argparse.SUPPRESS)
        parser.add_argument("--skip", type=int, default=0, help=argparse.SUPPRESS)
        parser.add_argument("--dry-run", action="store_true", help="with --into: only show what would be published")
    return parser


def main() -> int:
    """Run a command; return the exit status. Help needs no library."""
    command = sys.argv[1]
    given = make_parser(command).parse_args(sys.argv[2:])
    try:
        from leveret.analytics.backup.command import run
    except ImportError as error:
        if (error.name or "").partition(".")[0] != "fsspec":
            raise
        how = "install what it needs: pip install 'leveret[backup]'"
        say(f"leveret {command}", f"the Python package {error.name} is missing; {how}")
        return 1
    return run(command, given)


if __name__ == "__main__":
    sys.exit(main())
