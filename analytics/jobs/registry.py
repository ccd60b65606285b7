"""Registry of jobs by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

from pyspark.sql import SparkSession

from leveret.analytics.jobs import capacity, export, flow, report, sql, waiting
from leveret.analytics.jobs.job_options import JobOptions, Results

Job: TypeAlias = Callable[[SparkSession, JobOptions], Results]
JOBS: Final[dict[str, Job]] = {
    "backlog": waiting.run_backlog,
    "overflow": flow.run_overflow,
    "latency": flow.run_latency,
    "throughput": flow.run_throughput,
    "duplicates": waiting.run_duplicates,
    "deadletters": waiting.run_deadletters,
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
