"""The jobs by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

from pyspark.sql import SparkSession

from leveret.storage.analytics.job_options import JobOptions, Results
from leveret.storage.analytics.jobs import (
    backlog,
    capacity,
    deadletters,
    duplicates,
    export,
    latency,
    overflow,
    report,
    sql,
    throughput,
)

Job: TypeAlias = Callable[[SparkSession, JobOptions], Results]

JOBS: Final[dict[str, Job]] = {
    "backlog": backlog.run,
    "overflow": overflow.run,
    "latency": latency.run,
    "throughput": throughput.run,
    "duplicates": duplicates.run,
    "deadletters": deadletters.run,
    "capacity": capacity.run,
    "export": export.run,
    "sql": sql.run,
    "report": report.run,
}

#: What each is for, in a line.
SUMMARIES: Final[dict[str, str]] = {
    "backlog": "what waits in which queue since when, by routing key, and how large messages are",
    "overflow": "what was dropped, refused, rejected or dead-lettered, by minute and reason",
    "latency": "how long messages waited until they were acknowledged",
    "throughput": "how many messages came and went, by minute",
    "duplicates": "messages that wait more than once",
    "deadletters": "dead letters that wait: where they came from, why, and since when",
    "capacity": "what a length limit would have done (--hours, --max-length)",
    "export": "messages to Parquet, each time what has come since the last time (--output)",
    "sql": "any SQL over the tables messages, events, segments and queues (--query)",
    "report": "all of it as one page with charts (--output, or on stdout)",
}
