"""Registry of jobs by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

from pyspark.sql import SparkSession

from leveret.analytics.job_options import JobOptions, Results
from leveret.analytics.jobs import (
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

#: What jobs check of their options before Spark is started.
CHECKS: Final[dict[str, Callable[[JobOptions], object]]] = {
    "backlog": JobOptions.check_live,
    "capacity": capacity.check,
    "export": export.check,
    "sql": sql.check,
}
