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
from leveret.storage.analytics.jobs.registry import JOBS, SUMMARIES
from leveret.storage.analytics.jobs.report import page
from leveret.storage.analytics.progress import SparkProgress
from leveret.storage.analytics.result_output import FORMATS, rows_of, write_results
from leveret.storage.analytics.session import register
from leveret.storage.directory.directory_format import DataDirectoryError
from leveret.storage.snapshots.reader import DamagedRecordError
from leveret.storage.snapshots.snapshot import SnapshotError

_JAVA_MINIMUM: Final = 17
#: Errors of the data source reach the caller inside of Spark's, with a Java stack behind them.
_OURS: Final = re.compile(
    r"(?:DataDirectoryError|SnapshotError|NoSuchQueueError|AnalyticsError|OptionError|DamagedRecordError): (.+)"
)
_MASTER: Final = re.compile(r"local(-cluster)?(\[.+\])?|(spark|k8s)://.+|yarn")
#: Suffixes of the files that workers import packages from: PySpark's own, and wheels, which are zip files too.
_PACKED: Final = (*SparkContext.PACKAGE_EXTENSIONS, ".whl")
_NO_MODULE: Final = re.compile(r"ModuleNotFoundError: No module named '([^'.]+)")
_HOW_TO_SHIP: Final = (
    "leveret is sent to them by --py-files with its wheel (made by pip wheel --no-deps), others have to be installed "
    "there, or sent in an environment by --archives"
)
#: What Py4J quotes of Java.
_RAISED_IN_JAVA: Final = re.compile(r"^: (?:\w+\.)*(\w+: .+)", re.MULTILINE)
#: The last line of a traceback in Python, wherever Spark quotes it.
_RAISED: Final = re.compile(r"^(?:[a-z_]+\.)*[A-Z]\w*(?:Error|Exception): .+", re.MULTILINE)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a job.

    Args:
        arguments: Those of the command line by default.
    Returns:
        The exit status: 0, 1 if it failed, 2 if the arguments are wrong.
    """
    options = _parser().parse_args(arguments)
    try:
        with _ended_by_sigterm():
            check_java()
            return _run(options)
    except AnalyticsError as error:
        sys.stderr.write(f"leveret-analytics: {error}\n")
        return 1
    except KeyboardInterrupt:
        return 130


@contextmanager
def _ended_by_sigterm() -> Iterator[None]:
    """Have SIGTERM end a job as it ends one that fails: what it holds of the data directory is given up."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def check_java() -> None:
    """Make sure that Spark can start.

    Raises:
        AnalyticsError: There is no Java, or it is too old.
    """
    home = os.environ.get("JAVA_HOME")
    java = f"{home}/bin/java" if home else shutil.which("java")
    wanted = f"install a JDK {_JAVA_MINIMUM} or newer, and set JAVA_HOME if it is not on the path"
    if java is None or not os.path.exists(java):
        where = f"JAVA_HOME is {home}, but there is no bin/java in it" if home else "there is no Java here"
        raise AnalyticsError(f"Spark needs Java, and {where}; {wanted}")
    try:
        said = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60, check=False).stderr
    except (OSError, subprocess.SubprocessError) as error:
        raise AnalyticsError(f"{java} cannot be run ({error}); {wanted}") from error
    version = re.search(r'version "(?:1\.)?(\d+)', said)
    if version is not None and int(version[1]) < _JAVA_MINIMUM:
        raise AnalyticsError(f"{java} is Java {version[1]}, which is too old for Spark; {wanted}")


def reason_of(error: Exception) -> str:
    """What is wrong, in a line, out of what Spark makes of it."""
    text = str(error)
    found = _OURS.search(text)
    if found is not None:
        return found[1]
    missing = _NO_MODULE.search(text)
    if missing is not None:
        return f"the workers do not have the Python package {missing[1]}; {_HOW_TO_SHIP}"
    raised = _RAISED.findall(text) or _RAISED_IN_JAVA.findall(text)
    return str(raised[-1] if raised else text.strip().splitlines()[0])


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="leveret-analytics",
        description="Reads a data directory of Leveret with Spark, while the broker runs or not, and consumes nothing.",
        epilog="jobs:\n" + "\n".join(f"  {name:<12} {text}" for name, text in SUMMARIES.items()),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("job", choices=list(JOBS), metavar="JOB", help="what to do; see below")
    parser.add_argument("--data-dir", required=True, help="the broker's data directory, or the URI of a copy")
    parser.add_argument("--as-of", help="a moment in the past: 2026-01-31T12:00:00Z, or seconds since 1970")
    parser.add_argument("--vhost", help="virtual host; * and ? stand for anything")
    parser.add_argument("--queue", help="name of the queue; * and ? stand for anything")
    parser.add_argument("--output", metavar="DIR", help="write files into this directory")
    parser.add_argument(
        "--format", choices=("table", "json", "csv", "parquet", "html"), help="table by default; html for report"
    )
    parser.add_argument("--master", type=_master, help="Spark's master; local[*] by default, or what spark-submit says")
    parser.add_argument("--py-files", help="packages for the workers of a cluster, separated by commas")
    parser.add_argument("--archives", help="environments for the workers of a cluster, as of spark-submit")
    parser.add_argument("--query", help="of the job sql")
    parser.add_argument("--hours", help="of the job capacity: how far to look back, 24 by default")
    parser.add_argument("--max-length", help="of the job capacity: limits to try, separated by commas")
    return parser


def _master(text: str) -> str:
    if not _MASTER.fullmatch(text):
        raise argparse.ArgumentTypeError(f"'{text}' is none of local[*], spark://HOST:PORT, k8s://URL and yarn")
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
        raise AnalyticsError(reason_of(error)) from error
    except (DataDirectoryError, SnapshotError, DamagedRecordError, OSError) as error:
        raise AnalyticsError(str(error)) from error
    finally:
        session.close()
        spark.stop()
    return 0


def _run_job(spark: SparkSession, arguments: argparse.Namespace, options: JobOptions) -> None:
    form = arguments.format or ("html" if arguments.job == "report" else "table")
    if form == "parquet" and options.output is None:
        raise AnalyticsError("Parquet is written to files; say where: --output DIR")
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
                # What a program reads is one result; people are shown all.
                shown = list(results.items()) if form == "table" else list(results.items())[:1]
                for name, frame in shown:
                    title = f"{name}\n" if len(shown) > 1 else ""
                    texts.append(title + FORMATS[form](frame.columns, rows_of(frame)))
    for path in paths:
        sys.stderr.write(f"{path}\n")
    _print("\n".join(texts))


def _print(text: str) -> None:
    """Write a result in UTF-8; the reader may stop early."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8")
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        # Or else Python would complain when it ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _make_output(directory: str) -> None:
    """Find out before the work is done that its result cannot be written."""
    try:
        os.makedirs(directory, exist_ok=True)
        with tempfile.TemporaryFile(dir=directory):
            pass
    except OSError as error:
        raise AnalyticsError(f"nothing can be written to {directory}: {error.strerror}") from error


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
    # What is wrong with a query is said once, in a line.
    logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)
    # Workers on this machine run what this program runs on.
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
        # It has given up on the master, and says so in its own log only.
        if "stopped SparkContext" in str(error):
            raise AnalyticsError(f"Spark does not start: no master answers at {master}") from error
        raise AnalyticsError(f"Spark does not start: {' '.join(str(error).splitlines()[:2])}") from error
    except (PySparkException, OSError, RuntimeError) as error:
        raise AnalyticsError(f"Spark does not start: {str(error).splitlines()[0]}") from error


if __name__ == "__main__":
    sys.exit(main())
