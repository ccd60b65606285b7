"""The command lines of `leveret-analytics`, which need neither Spark nor Arrow: help is there without them."""

from __future__ import annotations

import argparse
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Final

from leveret.analytics.options import CommandOption, command_options
from leveret.protocol.units import parse_duration
from leveret.storage.readers.reader_file import is_reader_name

#: Seconds in which a process ends in order when the broker that has started it is dead.
_SECONDS_TO_END: Final = 10.0
#: The jobs, and what they are for.
SUMMARIES: Final[Mapping[str, str]] = {
    "backlog": "waiting messages by queue and routing key, with age and sizes",
    "overflow": "messages dropped, refused, rejected or dead-lettered, by minute and reason",
    "latency": "time from publishing to acknowledgement, by minute",
    "throughput": "messages that arrived and left, by minute",
    "duplicates": "waiting messages with the same id or body",
    "deadletters": "waiting dead letters by origin, reason and age",
    "capacity": "effect of length limits on the last hours (--hours, --max-length)",
    "export": "new messages since the last export, to Parquet (--output)",
    "sql": "any SQL over the tables messages, events, segments and queues (--query)",
    "report": "all results as an HTML page with charts (--output, or on stdout)",
}
#: Jobs with many results, or with one that is about more than this run: they have no --fail-if.
WITHOUT_CONDITION: Final = ("export", "report")
#: Exit status of a job whose result has rows that fulfil --fail-if.
CONDITION_MET: Final = 3
PROGRAM: Final = "leveret-analytics"
_HELP: Final = ("-h", "--help")
_MASTER: Final = re.compile(r"local(-cluster)?(\[.+\])?|(spark|k8s)://.+|yarn")
_WITHOUT_SPARK: Final = """

without Spark (pip install 'leveret[arrow]'):
  archive          copies messages, events and audit log to Parquet as they come; see leveret-analytics archive --help
  iceberg          makes an archive's files tables of Iceberg; see leveret-analytics iceberg --help
  table-reference  prints every column of the tables, and every kind of event

leveret-analytics JOB --help shows the options of a job.
"""


#: Options of single jobs: those of tables, and others.
_OF_SINGLE_JOBS: Final[Mapping[str, CommandOption]] = {
    "query": CommandOption("the query", "sql"),
    **command_options("sql"),
    "hours": CommandOption("hours of history to replay (default: 24)", "capacity"),
    "max_length": CommandOption("limits to try, separated by commas", "capacity"),
    **command_options("export"),
}


def asks_for_help(arguments: Sequence[str]) -> bool:
    """Return whether a command line asks for help."""
    return any(each in _HELP for each in arguments)


def single_values(given: argparse.Namespace) -> dict[str, str]:
    """Return what was given for options of single jobs, by their names with underscores."""
    return {name: value for name in _OF_SINGLE_JOBS if (value := getattr(given, name)) is not None}


def check_arguments(parser: argparse.ArgumentParser, given: argparse.Namespace) -> None:
    """Refuse arguments of other jobs, with the usage and exit status 2."""
    for name, option in _OF_SINGLE_JOBS.items():
        if option.job != given.job and getattr(given, name) is not None:
            parser.error(f"{_flag(name)} does not apply to the job {given.job}, only to {option.job}")
    if given.fail_if is not None and given.job in WITHOUT_CONDITION:
        parser.error(f"--fail-if does not apply to the job {given.job}")
    if given.format == "parquet" and given.output is None:
        parser.error("--format parquet writes files; name a directory with --output DIR")
    if given.format is not None and given.job == "export":
        parser.error("--format does not apply to the job export, which writes Parquet")


def print_help(arguments: Sequence[str]) -> None:
    """Print the help that a command line asks for: that of a job if it names one, or else of all jobs."""
    job = next((each for each in arguments if each in SUMMARIES), None)
    make_parser(job).print_help()


def make_parser(job: str | None = None) -> argparse.ArgumentParser:
    """Return the parser.

    Args:
        job: Only for the help of this job; None for all jobs.
    """
    parser = argparse.ArgumentParser(
        prog=PROGRAM,
        description="Run Spark jobs over a data directory of Leveret or an archive. The broker may be running; nothing "
        "is consumed." + (f" The job {job}: {SUMMARIES[job]}." if job is not None else ""),
        epilog=_epilog() if job is None else "It needs Spark and Java: pip install 'leveret[analytics]'",
        formatter_class=argparse.RawDescriptionHelpFormatter if job is None else argparse.HelpFormatter,
    )
    which = "the job to run; see below" if job is None else SUMMARIES[job]
    parser.add_argument("job", choices=list(SUMMARIES), metavar="JOB" if job is None else job, help=which)
    _add_source(parser)
    _add_output(parser, job)
    _add_spark(parser)
    for name, option in _OF_SINGLE_JOBS.items():
        if job in (None, option.job):
            text = option.help if job is not None else f"job {option.job}: {option.help}"
            parser.add_argument(_flag(name), help=text, **option.more)
    return parser


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _epilog() -> str:
    jobs = "\n".join(f"  {name:<12} {text}" for name, text in SUMMARIES.items())
    return f"jobs (pip install 'leveret[analytics]'):\n{jobs}{_WITHOUT_SPARK}"


def _add_source(parser: argparse.ArgumentParser) -> None:
    """Add the options that say what is read."""
    parser.add_argument(
        "--data-dir",
        required=True,
        action="append",
        help="the broker's data directory, the URI of a copy, or an archive; repeat it to read an archive together "
        "with the data directories of its brokers",
    )
    _add_table_options(parser, "as_of", "archive", "vhost", "queue")


def _add_table_options(parser: argparse.ArgumentParser, *names: str) -> None:
    options = command_options()
    for name in names:
        parser.add_argument(_flag(name), help=options[name].help, **options[name].more)


def _add_output(parser: argparse.ArgumentParser, job: str | None) -> None:
    """Add the options that say what becomes of the result."""
    parser.add_argument("--output", metavar="DIR", help="write files to this directory")
    parser.add_argument(
        "--format",
        choices=("table", "json", "csv", "parquet", "html"),
        help="output format (default: table; html for the job report)",
    )
    if job not in WITHOUT_CONDITION:
        parser.add_argument(
            "--fail-if",
            metavar="EXPRESSION",
            help=f"a condition in SQL: exit with status {CONDITION_MET}, and show the rows, if rows of the result "
            "fulfil it",
        )


def _add_spark(parser: argparse.ArgumentParser) -> None:
    """Add the options of Spark."""
    parser.add_argument("--master", type=_master, help="Spark master (default: local[*], or that of spark-submit)")
    parser.add_argument("--py-files", help="packages for the workers of a cluster, separated by commas")
    parser.add_argument("--archives", help="environments for the workers of a cluster, as for spark-submit")


def _master(text: str) -> str:
    if not _MASTER.fullmatch(text):
        raise argparse.ArgumentTypeError(f"'{text}' is not local[*], spark://HOST:PORT, k8s://URL or yarn")
    return text


ARCHIVE_PROGRAM: Final = "leveret-analytics archive"
#: The environment variable with the URL of the archive: that of the broker's option `archive.url`.
URL_VARIABLE: Final = "LEVERET_ARCHIVE_URL"
#: The one that can have the catalog, in which nobody else sees a password either.
ICEBERG_VARIABLE: Final = "LEVERET_ARCHIVE_ICEBERG"
ICEBERG_PROGRAM: Final = f"{PROGRAM} iceberg"
#: The catalog that is in the archive itself, and the namespace of the tables.
IN_ARCHIVE: Final = "archive"
NAMESPACE: Final = "leveret"

#: A reader that is not seen for a day is dropped by default.
_INTERVAL_MAX: Final = 3600


def make_archive_parser() -> argparse.ArgumentParser:
    """Return the parser."""
    parser = argparse.ArgumentParser(
        prog=ARCHIVE_PROGRAM,
        description="Copy the messages, events and audit log of a broker to Parquet files as they come, each exactly "
        "once. The broker may be running; nothing is consumed. Spark is not needed.",
    )
    parser.add_argument("--data-dir", required=True, help="the broker's data directory; local or mounted")
    _add_archive(parser, "--to", ", in which nobody else sees a password")
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
    _add_table_options(parser, "vhost", "queue")
    parser.add_argument(
        "--keep",
        type=_span,
        metavar="TIME",
        help="how long rows stay in the archive, such as 30d or 12h (default: for ever)",
    )
    _add_iceberg(parser, "have the archive's files as tables of Iceberg, in a catalog:")
    parser.add_argument(
        "--fail-on-data-loss",
        choices=("true", "false"),
        default="false",
        help="whether to fail if messages were removed before they could be copied; otherwise that is logged, and the "
        "manifest counts them (default: false)",
    )
    return parser


def make_iceberg_parser() -> argparse.ArgumentParser:
    """Return the parser of `leveret-analytics iceberg`."""
    parser = argparse.ArgumentParser(
        prog=ICEBERG_PROGRAM,
        description="Make tables of Iceberg the same as an archive: the files that the archive has, also of brokers "
        "whose archivers do not run any more, are in the tables once. No data are copied. Archivers that run with "
        "--iceberg do it themselves.",
    )
    _add_archive(parser, "--archive")
    _add_iceberg(parser, "the tables' catalog:", IN_ARCHIVE)
    parser.add_argument(
        "--repair",
        action="store_true",
        help="also if somebody else has written to the tables, or they are ahead of the archive: rows that the archive "
        "does not have are removed from the tables",
    )
    return parser


def _add_archive(parser: argparse.ArgumentParser, name: str, more: str = "") -> None:
    """Add the option that says where the archive is."""
    url = os.environ.get(URL_VARIABLE)
    text = f"the archive: a path, or s3://bucket/path, gs://… (default: ${URL_VARIABLE}{more})"
    parser.add_argument(name, required=not url, default=url, metavar="URL", help=text)


def _add_iceberg(parser: argparse.ArgumentParser, what: str, default: str | None = None) -> None:
    """Add the options that say where tables are."""
    usual = f"${ICEBERG_VARIABLE}, or {default or 'none'}"
    parser.add_argument(
        "--iceberg",
        default=os.environ.get(ICEBERG_VARIABLE) or default,
        metavar="CATALOG",
        help=f"{what} archive for one in the archive itself, a URL of a REST, Hive or SQL catalog, or a name in "
        f"pyiceberg's configuration (default: {usual})",
    )
    parser.add_argument(
        "--iceberg-namespace", default=NAMESPACE, metavar="NAME", help=f"namespace of the tables (default: {NAMESPACE})"
    )


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
    """Return microseconds. The unit must be there: rows are deleted."""
    with suppress(ValueError):
        if text[-1:].isalpha() and (kept := int(parse_duration(text) * 1_000_000)):
            return kept
    raise argparse.ArgumentTypeError(f"'{text[:100]}' is not a time with its unit, such as 30d or 12h")


@contextmanager
def exit_on_sigterm() -> Iterator[None]:
    """Make SIGTERM raise SystemExit, so that what the program holds is released."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def say(program: str, text: str) -> None:
    """Write a line to stderr; end the process if nobody reads it: the broker that has started it is dead."""
    try:
        sys.stderr.write(f"{program}: {text}\n")
        sys.stderr.flush()
    except BrokenPipeError:
        os._exit(1)


def end_at_eof() -> None:
    """End the process in order, and after some seconds anyway, when stdin ends: the broker that started it is dead."""
    while os.read(sys.stdin.fileno(), 4096):
        pass
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(_SECONDS_TO_END)
    os._exit(1)
