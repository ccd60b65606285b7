"""The command line of `leveret-analytics archive`, whose help is there without the libraries that archives need."""

from __future__ import annotations

import argparse
import os
import re
from typing import Final

from leveret.storage.readers.reader_file import is_reader_name

PROGRAM: Final = "leveret-analytics archive"
URL_VARIABLE: Final = "LEVERET_ARCHIVE_URL"
"""Environment variable with the URL of the archive: that of the broker's option `archive.url`."""
#: A reader that is not seen for a day is dropped by default.
_INTERVAL_MAX: Final = 3600
_SPAN: Final = re.compile(r"([1-9]\d{0,9})([dhs])")
#: Microseconds.
_UNITS: Final = {"d": 86_400_000_000, "h": 3_600_000_000, "s": 1_000_000}


def make_parser() -> argparse.ArgumentParser:
    """Return the parser."""
    parser = argparse.ArgumentParser(
        prog=PROGRAM,
        description="Copy the messages and events of a broker to Parquet files as they come, each exactly once. The "
        "broker may be running; nothing is consumed. Spark is not needed.",
    )
    parser.add_argument("--data-dir", required=True, help="the broker's data directory; local or mounted")
    url = os.environ.get(URL_VARIABLE)
    parser.add_argument(
        "--to",
        required=not url,
        default=url,
        metavar="URL",
        help=f"the archive: a path, or s3://bucket/path, gs://… (default: ${URL_VARIABLE}, in which nobody else sees a "
        "password)",
    )
    parser.add_argument(
        "--reader",
        default="archive",
        type=_reader,
        metavar="NAME",
        help="name of the reader for which the broker keeps what has not been copied (default: archive)",
    )
    parser.add_argument(
        "--interval",
        default=60,
        type=_interval,
        metavar="SECONDS",
        help=f"time from one copy to the next, 1 to {_INTERVAL_MAX} (default: 60)",
    )
    parser.add_argument("--once", action="store_true", help="copy what is there, and end")
    parser.add_argument("--until-eof", action="store_true", help="end when the standard input ends")
    parser.add_argument(
        "--broker",
        default="",
        metavar="NAME",
        help="name of the broker in the archive (default: the one it has there, or the first part of the host's name)",
    )
    more = "wildcards * and ? are allowed; repeat it for more than one"
    parser.add_argument("--vhost", action="append", help=f"virtual host; {more}")
    parser.add_argument("--queue", action="append", help=f"name of the queue; {more}")
    parser.add_argument(
        "--keep",
        type=_span,
        metavar="TIME",
        help="how long rows stay in the archive, such as 30d or 12h (default: for ever)",
    )
    parser.add_argument(
        "--fail-on-data-loss",
        choices=("true", "false"),
        default="false",
        help="whether to fail if messages were removed before they could be copied; otherwise that is logged, and the "
        "manifest counts them (default: false)",
    )
    return parser


def _reader(text: str) -> str:
    if not is_reader_name(text):
        raise argparse.ArgumentTypeError(
            f"'{text[:100]}' is not 1 to 64 letters, digits and _.- that begin with a letter or digit"
        )
    return text


def _interval(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 1 <= seconds <= _INTERVAL_MAX:
        raise argparse.ArgumentTypeError(f"'{text}' is not a number of seconds from 1 to {_INTERVAL_MAX}")
    return seconds


def _span(text: str) -> int:
    found = _SPAN.fullmatch(text)
    if found is None:
        raise argparse.ArgumentTypeError(f"'{text[:100]}' is not a number of days or hours, such as 30d or 12h")
    return int(found[1]) * _UNITS[found[2]]
