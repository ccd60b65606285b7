"""Registry of jobs by name."""

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

#: One-line descriptions for the help text.
SUMMARIES: Final[dict[str, str]] = {
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

#: What jobs that cannot be run over an archive, or not over an archive alone, check before Spark is started.
CHECKS: Final[dict[str, Callable[[JobOptions], None]]] = {
    "backlog": JobOptions.check_live,
    "export": export.check_source,
}
