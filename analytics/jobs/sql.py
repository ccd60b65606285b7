"""Job sql: runs a query over the tables, which are temporary views."""

from __future__ import annotations

import re
import shlex
from typing import Final

from pyspark.sql import SparkSession

from leveret.analytics.columns import ARCHIVED_TABLES, TABLES
from leveret.analytics.errors import OptionError
from leveret.analytics.jobs.job_options import JobOptions, Results
from leveret.analytics.option_values import parse_body_options
from leveret.analytics.options import applies, command_options
from leveret.analytics.spark.session import register

#: Options of the job that say how bodies are read.
BODY_VALUES: Final = tuple(command_options("sql"))


def check(options: JobOptions) -> str:
    """Return the query.

    Raises:
        OptionError: It is missing, or what says how bodies are read is wrong.
    """
    query = options.values.get("query", "").strip()
    if not query:
        raise OptionError("the query is missing: leveret-analytics sql --query 'select queue, messages from queues'")
    parse_body_options({name.replace("_", ""): options.values[name] for name in BODY_VALUES if name in options.values})
    return query


def run(spark: SparkSession, options: JobOptions) -> Results:
    """Run a query.

    Args:
        options: `query` is the SQL text; its tables are `messages`, `delayed`, `events`, `segments`, `queues` and,
            unless queues are chosen, `audit`. With an archive, `messages` and `events` are all that have come, and the
            others are of the data directories, if any are named. `bodies`, `body_schema` and `body_message` say how
            bodies are read; with an archive, those of `messages`.
    Returns:
        `sql`.
    Raises:
        OptionError: The query is missing.
    """
    query = check(options)
    given = {name.replace("_", ""): options.values[name] for name in BODY_VALUES if name in options.values}
    views = options.named(asOf=options.as_of, archive=options.archive, **given)
    register(spark).create_views(options.locations, **views)
    for table in TABLES:
        if options.queue is not None and not applies("queue", table):
            # The audit log is not of one queue.
            spark.catalog.dropTempView(table)
    return {"sql": spark.sql(query)}


def duckdb_command(query: str, options: JobOptions) -> str | None:
    """Return a command line that answers a query with DuckDB instead of Spark; None if leveret.scan() cannot.

    Args:
        query: The SQL text.
    """
    archived = options.sources is not None
    path = options.data_dir if isinstance(options.data_dir, str) else list(options.data_dir)
    named = {"vhost": options.vhost, "queue": options.queue, "until" if archived else "as_of": options.as_of}
    named |= {name: options.values.get(name) for name in BODY_VALUES} | {"archive": options.archive}
    scans = ""
    # DuckDB finds the variables by name, as they are written in the query.
    for written in dict.fromkeys(re.findall(rf"\b(?:{'|'.join(TABLES)})\b", query, re.IGNORECASE)):
        table = written.lower()
        if archived and table not in ARCHIVED_TABLES:
            return None
        chosen = [
            f", {name}={value!r}"
            for name, value in named.items()
            if value is not None and applies(name.replace("_", ""), table)
        ]
        scans += f"{written} = leveret.scan({path!r}, {table!r}{''.join(chosen)}); "
    program = f"import duckdb, leveret; {scans}print(duckdb.sql({query.strip()!r}))"
    return f"python -c {shlex.quote(program)}"
