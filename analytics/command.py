"""The program `leveret-analytics`."""

from __future__ import annotations

import argparse
import io
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from typing import Final

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from leveret.analytics.arguments import CONDITION_MET, check_arguments, exit_on_sigterm, make_parser, single_values
from leveret.analytics.errors import AnalyticsError, DamagedRecordError, OptionError
from leveret.analytics.java.spark_start import JavaStderr, find_java, is_local, open_cache, start_spark
from leveret.analytics.jobs import export, flow, report, sql, waiting
from leveret.analytics.jobs.job_options import JobOptions, Results
from leveret.analytics.option_values import names_text
from leveret.analytics.results.result_output import (
    FORMATS,
    ConditionError,
    SparkProgress,
    failure_text,
    rows_of,
    rows_that_fulfil,
    write_results,
)
from leveret.analytics.spark.session import register
from leveret.storage.directory.directory_format import DataDirectoryError
from leveret.storage.snapshots.snapshot import SnapshotError

#: The jobs by name.
JOBS: Final[dict[str, Callable[[SparkSession, JobOptions], Results]]] = {
    "backlog": waiting.run_backlog,
    "overflow": flow.run_overflow,
    "latency": flow.run_latency,
    "throughput": flow.run_throughput,
    "duplicates": waiting.run_duplicates,
    "deadletters": waiting.run_deadletters,
    "capacity": flow.run_capacity,
    "export": export.run,
    "sql": sql.run,
    "report": report.run,
}
#: What jobs check of their options before Spark is started.
_CHECKS: Final[dict[str, Callable[[JobOptions], object]]] = {
    "backlog": JobOptions.check_live,
    "capacity": flow.check_capacity,
    "export": export.check,
    "sql": sql.check,
}
_JAVA_MINIMUM: Final = 17
#: Errors of the data source are raised inside Spark errors, followed by a Java stack trace.
_OURS: Final = re.compile(
    r"(?:DataDirectoryError|SnapshotError|NoSuchQueueError|AnalyticsError|ArchiveError|OptionError|DamagedRecordError)"
    r": (.+)"
)
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
        The exit status: 0 for success, 1 for failure, 2 for wrong arguments, CONDITION_MET for rows that fulfil
        --fail-if, 130 after SIGINT.
    """
    parser = make_parser()
    given = parser.parse_args(arguments)
    check_arguments(parser, given)
    options = _job_options(given)
    try:
        with exit_on_sigterm():
            options.check()
            if given.job in _CHECKS:
                _CHECKS[given.job](options)
            options.check_directories()
            _check_java_for(given.job, options)
            return _run(given, options)
    except (AnalyticsError, DataDirectoryError) as error:
        sys.stderr.write(f"leveret-analytics: {error}\n")
        return 2 if isinstance(error, ConditionError | OptionError) else 1
    except KeyboardInterrupt:
        return 130


def check_java() -> None:
    """Check that a Java version that Spark supports is installed.

    Raises:
        AnalyticsError: Java is missing or too old.
    """
    home, java = os.environ.get("JAVA_HOME"), find_java()
    wanted = f"install a JDK {_JAVA_MINIMUM} or newer, and set JAVA_HOME if it is not on the path"
    if java is None:
        where = f"JAVA_HOME is {home}, which has no bin/java" if home else "no java command was found"
        raise AnalyticsError(f"Spark needs Java: {where}; {wanted}")
    try:
        said = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60, check=False).stderr
    except (OSError, subprocess.SubprocessError) as error:
        raise AnalyticsError(f"{java} cannot be run ({error}); {wanted}") from error
    version = re.search(r'version "(?:1\.)?(\d+)', said)
    if version is not None and int(version[1]) < _JAVA_MINIMUM:
        raise AnalyticsError(f"{java} is Java {version[1]}, which is too old for Spark; {wanted}")


def _check_java_for(job: str, options: JobOptions) -> None:
    """Check Java; without it, the job `sql` shows the command that answers the query without Spark."""
    try:
        check_java()
    except AnalyticsError as error:
        query = options.values.get("query")
        line = sql.duckdb_command(query, options) if job == "sql" and query else None
        if line is None:
            raise
        text = f"{error}. DuckDB answers the query without Java (pip install duckdb):"
        raise AnalyticsError(f"{text}\n{line}") from error


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


def _job_options(arguments: argparse.Namespace) -> JobOptions:
    paths = arguments.data_dir
    return JobOptions(
        paths[0] if len(paths) == 1 else tuple(paths),
        arguments.as_of,
        None if arguments.vhost is None else names_text(arguments.vhost),
        None if arguments.queue is None else names_text(arguments.queue),
        arguments.output,
        single_values(arguments),
        archive=arguments.archive,
    )


def _run(arguments: argparse.Namespace, options: JobOptions) -> int:
    submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    master = arguments.master or ("" if submitted else "local[*]")
    cache = open_cache() if is_local(master) and not submitted else None
    spark = start_spark(master, arguments.py_files, arguments.archives, cache)
    if submitted:
        sys.stderr = JavaStderr(spark.sparkContext._jvm)
    session = register(spark)
    try:
        before = session.damaged
        failure = _run_job(spark, arguments, options)
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
    if cache is not None:
        cache.make_later()
    sys.stderr.write(f"leveret-analytics: {failure}" if failure else "")
    return CONDITION_MET if failure else 0


def _run_job(spark: SparkSession, arguments: argparse.Namespace, options: JobOptions) -> str:
    """Run a job, and write its results; return what is said of rows that fulfil --fail-if."""
    form = arguments.format or ("html" if arguments.job == "report" else "table")
    if options.output is not None and "://" not in options.output:
        _make_output(options.output)
    texts: list[str] = []
    paths: list[str] = []
    failure = ""
    with SparkProgress(spark, arguments.job):
        if arguments.job == "report" and form == "html":
            text = report.page(spark, options)
            if options.output is None:
                texts.append(text)
            else:
                paths.append(os.path.join(options.output, "report.html"))
                with open(paths[0], "w", encoding="utf-8") as file:
                    file.write(text)
        else:
            results = JOBS[arguments.job](spark, options)
            failing: DataFrame | None = None
            if arguments.fail_if is not None:
                # The main result is computed once for both.
                main_result = next(iter(results.values()))
                failing = rows_that_fulfil(main_result, arguments.fail_if)
                main_result.persist()
            if options.output is not None and arguments.job != "export":
                paths = write_results(results, form, options.output)
            else:
                # Machine-readable formats have one result on stdout; the table format shows all.
                shown = list(results.items()) if form == "table" else list(results.items())[:1]
                for name, frame in shown:
                    title = f"{name}\n" if len(shown) > 1 else ""
                    texts.append(title + FORMATS[form](frame.columns, rows_of(frame)))
            if failing is not None:
                failure = failure_text(failing, arguments.fail_if)
    for path in paths:
        sys.stderr.write(f"{path}\n")
    _print("\n".join(texts))
    return failure


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


if __name__ == "__main__":
    sys.exit(main())
