"""The program `leveret-analytics`."""

from __future__ import annotations

import argparse
import io
import logging
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

import pyspark
from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from leveret.storage.analytics.errors import AnalyticsError
from leveret.storage.analytics.java_stderr import JavaStderr
from leveret.storage.analytics.job_options import JobOptions
from leveret.storage.analytics.jobs import sql
from leveret.storage.analytics.jobs.registry import JOBS, SUMMARIES
from leveret.storage.analytics.jobs.report import page
from leveret.storage.analytics.progress import SparkProgress
from leveret.storage.analytics.result_output import FORMATS, rows_of, write_results
from leveret.storage.analytics.session import register
from leveret.storage.directory.directory_format import DataDirectoryError
from leveret.storage.snapshots.reader import DamagedRecordError
from leveret.storage.snapshots.snapshot import SnapshotError

_JAVA_MINIMUM: Final = 17
#: Errors of the data source are raised inside Spark errors, followed by a Java stack trace.
_OURS: Final = re.compile(
    r"(?:DataDirectoryError|SnapshotError|NoSuchQueueError|AnalyticsError|OptionError|DamagedRecordError): (.+)"
)
_MASTER: Final = re.compile(r"local(-cluster)?(\[.+\])?|(spark|k8s)://.+|yarn")
#: Suffixes of files from which workers can import packages: PySpark's list, and wheels, which are zip files too.
_PACKED: Final = (*SparkContext.PACKAGE_EXTENSIONS, ".whl")
_NO_MODULE: Final = re.compile(r"ModuleNotFoundError: No module named '([^'.]+)")
_HOW_TO_SHIP: Final = (
    "send leveret to them with --py-files and its wheel (made by pip wheel --no-deps); install other packages there, "
    "or send an environment with --archives"
)
#: A Java exception as Py4J quotes it.
_RAISED_IN_JAVA: Final = re.compile(r"^: (?:\w+\.)*(\w+: .+)", re.MULTILINE)
#: The last line of a Python traceback that Spark quotes.
_RAISED: Final = re.compile(r"^(?:[a-z_]+\.)*[A-Z]\w*(?:Error|Exception): .+", re.MULTILINE)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a job.

    Args:
        arguments: Command-line arguments; None for those of the process.
    Returns:
        The exit status: 0 for success, 1 for failure, 2 for wrong arguments, 130 after SIGINT.
    """
    options = _parser().parse_args(arguments)
    try:
        with _exit_on_sigterm():
            _check_java_for(options)
            return _run(options)
    except AnalyticsError as error:
        sys.stderr.write(f"leveret-analytics: {error}\n")
        return 1
    except KeyboardInterrupt:
        return 130


@contextmanager
def _exit_on_sigterm() -> Iterator[None]:
    """Make SIGTERM raise SystemExit, so that the job releases its snapshots."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def check_java() -> None:
    """Check that a Java version that Spark supports is installed.

    Raises:
        AnalyticsError: Java is missing or too old.
    """
    home = os.environ.get("JAVA_HOME")
    java = f"{home}/bin/java" if home else shutil.which("java")
    wanted = f"install a JDK {_JAVA_MINIMUM} or newer, and set JAVA_HOME if it is not on the path"
    if java is None or not os.path.exists(java):
        where = f"JAVA_HOME is {home}, which has no bin/java" if home else "no java command was found"
        raise AnalyticsError(f"Spark needs Java: {where}; {wanted}")
    try:
        said = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60, check=False).stderr
    except (OSError, subprocess.SubprocessError) as error:
        raise AnalyticsError(f"{java} cannot be run ({error}); {wanted}") from error
    version = re.search(r'version "(?:1\.)?(\d+)', said)
    if version is not None and int(version[1]) < _JAVA_MINIMUM:
        raise AnalyticsError(f"{java} is Java {version[1]}, which is too old for Spark; {wanted}")


def _check_java_for(options: argparse.Namespace) -> None:
    """Check Java; without it, the job `sql` shows the command that answers the query without Spark."""
    try:
        check_java()
    except AnalyticsError as error:
        if options.job != "sql" or not options.query:
            raise
        given = JobOptions(options.data_dir, options.as_of, options.vhost, options.queue)
        text = f"{error}. DuckDB answers the query without Java (pip install duckdb):"
        raise AnalyticsError(f"{text}\n{sql.duckdb_command(options.query, given)}") from error


def error_summary(error: Exception) -> str:
    """Return the cause of a Spark error in one line."""
    text = str(error)
    found = _OURS.search(text)
    if found is not None:
        return found[1]
    missing = _NO_MODULE.search(text)
    if missing is not None:
        return f"the workers lack the Python package {missing[1]}; {_HOW_TO_SHIP}"
    raised = _RAISED.findall(text) or _RAISED_IN_JAVA.findall(text)
    return str(raised[-1] if raised else text.strip().splitlines()[0])


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="leveret-analytics",
        description="Run Spark jobs over a data directory of Leveret. The broker may be running; nothing is consumed.",
        epilog="jobs:\n" + "\n".join(f"  {name:<12} {text}" for name, text in SUMMARIES.items()),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("job", choices=list(JOBS), metavar="JOB", help="the job to run; see below")
    parser.add_argument("--data-dir", required=True, help="the broker's data directory, or the URI of a copy")
    parser.add_argument("--as-of", help="time in the past to show: 2026-01-31T12:00:00Z, or seconds since 1970")
    parser.add_argument("--vhost", help="virtual host; wildcards * and ? are allowed")
    parser.add_argument("--queue", help="name of the queue; wildcards * and ? are allowed")
    parser.add_argument("--output", metavar="DIR", help="write files to this directory")
    parser.add_argument(
        "--format",
        choices=("table", "json", "csv", "parquet", "html"),
        help="output format (default: table; html for the job report)",
    )
    parser.add_argument("--master", type=_master, help="Spark master (default: local[*], or that of spark-submit)")
    parser.add_argument("--py-files", help="packages for the workers of a cluster, separated by commas")
    parser.add_argument("--archives", help="environments for the workers of a cluster, as for spark-submit")
    parser.add_argument("--query", help="job sql: the query")
    parser.add_argument("--hours", help="job capacity: hours of history to replay (default: 24)")
    parser.add_argument("--max-length", help="job capacity: limits to try, separated by commas")
    return parser


def _master(text: str) -> str:
    if not _MASTER.fullmatch(text):
        raise argparse.ArgumentTypeError(f"'{text}' is not local[*], spark://HOST:PORT, k8s://URL or yarn")
    return text


def _run(arguments: argparse.Namespace) -> int:
    values = {name: getattr(arguments, name) for name in ("query", "hours", "max_length")}
    options = JobOptions(
        arguments.data_dir,
        arguments.as_of,
        arguments.vhost,
        arguments.queue,
        arguments.output,
        {name: value for name, value in values.items() if value is not None},
    )
    submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    spark = _start(arguments.master or ("" if submitted else "local[*]"), arguments.py_files, arguments.archives)
    if submitted:
        sys.stderr = JavaStderr(spark.sparkContext._jvm)
    session = register(spark)
    try:
        before = session.damaged
        _run_job(spark, arguments, options)
        damaged = session.damaged - before
        if damaged:
            sys.stderr.write(f"leveret-analytics: {damaged} damaged records were skipped\n")
    except (PySparkException, Py4JError) as error:
        raise AnalyticsError(error_summary(error)) from error
    except (DataDirectoryError, SnapshotError, DamagedRecordError, OSError) as error:
        raise AnalyticsError(str(error)) from error
    finally:
        session.close()
        spark.stop()
    return 0


def _run_job(spark: SparkSession, arguments: argparse.Namespace, options: JobOptions) -> None:
    form = arguments.format or ("html" if arguments.job == "report" else "table")
    if form == "parquet" and options.output is None:
        raise AnalyticsError("Parquet is written to files; name a directory with --output DIR")
    if options.output is not None and "://" not in options.output:
        _make_output(options.output)
    texts: list[str] = []
    paths: list[str] = []
    with SparkProgress(spark, arguments.job):
        if arguments.job == "report" and form == "html":
            _write_report(spark, options, texts, paths)
        else:
            results = JOBS[arguments.job](spark, options)
            if options.output is not None and arguments.job != "export":
                paths = write_results(results, form, options.output)
            else:
                # Machine-readable formats have one result on stdout; the table format shows all.
                shown = list(results.items()) if form == "table" else list(results.items())[:1]
                for name, frame in shown:
                    title = f"{name}\n" if len(shown) > 1 else ""
                    texts.append(title + FORMATS[form](frame.columns, rows_of(frame)))
    for path in paths:
        sys.stderr.write(f"{path}\n")
    _print("\n".join(texts))


def _print(text: str) -> None:
    """Write a result to stdout in UTF-8; a closed pipe is not an error."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8")
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        # Otherwise the interpreter reports the broken pipe when it flushes stdout at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _make_output(directory: str) -> None:
    """Create the output directory and check that it is writable, before the job runs."""
    try:
        os.makedirs(directory, exist_ok=True)
        with tempfile.TemporaryFile(dir=directory):
            pass
    except OSError as error:
        raise AnalyticsError(f"cannot write to {directory}: {error.strerror}") from error


def _write_report(spark: SparkSession, options: JobOptions, texts: list[str], paths: list[str]) -> None:
    text = page(spark, options)
    if options.output is None:
        texts.append(text)
        return
    path = os.path.join(options.output, "report.html")
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    paths.append(path)


def _start(master: str, py_files: str | None, archives: str | None) -> SparkSession:
    logging.getLogger("py4j").setLevel(logging.ERROR)
    # The error is reported in one line by main(), so PySpark must not log it as well.
    logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)
    # Local workers use the Python of this process.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if master.startswith("local-cluster"):
        os.environ.setdefault("SPARK_HOME", os.path.dirname(pyspark.__file__))
    if master.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    SparkContext.PACKAGE_EXTENSIONS = _PACKED
    builder = SparkSession.builder.appName("leveret-analytics")
    if master:
        builder = builder.master(master)
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "4" if master.startswith("local") else "64",
        "spark.sql.adaptive.enabled": "true",
    }
    if master.startswith("local"):
        settings |= {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}
    if archives:
        settings["spark.archives"] = archives
    for name, value in settings.items():
        builder = builder.config(name, value)
    try:
        spark = builder.getOrCreate()
        for path in filter(None, (py_files or "").split(",")):
            spark.sparkContext.addPyFile(path)
        return spark
    except Py4JError as error:
        # If the master does not answer, Spark logs the reason and stops the context.
        if "stopped SparkContext" in str(error):
            raise AnalyticsError(f"Spark does not start: no master answers at {master}") from error
        raise AnalyticsError(f"Spark does not start: {' '.join(str(error).splitlines()[:2])}") from error
    except (PySparkException, OSError, RuntimeError) as error:
        raise AnalyticsError(f"Spark does not start: {str(error).splitlines()[0]}") from error


if __name__ == "__main__":
    sys.exit(main())
