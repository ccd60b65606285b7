"""Runs every job that takes an archive, in one Spark session; as a program, with the master that it is told.

python -m tests.spark.archive_jobs MASTER LEVERET.ZIP ARCHIVE AS_OF
"""

from __future__ import annotations

import json
import sys
from typing import Any, Final

from pyspark.sql import SparkSession

from leveret.analytics.command import JOBS
from leveret.analytics.jobs.job_options import JobOptions
from leveret.analytics.jobs.report import page
from leveret.analytics.results.result_output import rows_of
from leveret.analytics.spark.session import register

#: Jobs that need a data directory.
LIVE: Final = ("backlog", "export")
#: The name under which the page of the report is among the results.
PAGE: Final = "page"
_VALUES: Final = {
    "hours": "24",
    "max_length": "5,1000",
    "query": "select * from (select broker, queue, count(*) came, sum(length(body)) bytes, count(headers['n']) headers "
    "from messages group by 1, 2) left join (select broker, queue, sum(messages) gone from events group by 1, 2) "
    "using (broker, queue)",
}


def results(spark: SparkSession, archive: str, as_of: str) -> dict[str, list[str]]:
    """The rows of each job, sorted; those of several tables are one list.

    Args:
        spark: The session.
        archive: Path of the archive.
        as_of: The moment up to which ages are counted.
    """
    options = JobOptions(archive, as_of, values=_VALUES)
    found = {
        job: sorted(f"{name}: {_text(row)}" for name, frame in run(spark, options).items() for row in rows_of(frame))
        for job, run in JOBS.items()
        if job not in LIVE
    }
    return {**found, PAGE: [page(spark, options)]}


def _text(row: Any) -> str:
    return json.dumps(row, default=str, sort_keys=True)


def main() -> None:
    master, package, archive, as_of = sys.argv[1:]
    builder = SparkSession.builder.master(master).config("spark.ui.enabled", "false")
    # Two tasks at a time, one on each worker.
    spark = builder.config("spark.sql.shuffle.partitions", "2").config("spark.executor.cores", "1").getOrCreate()
    spark.sparkContext.addPyFile(package)
    session = register(spark)
    try:
        sys.stdout.write(json.dumps(results(spark, archive, as_of)))
    finally:
        session.close()
        spark.stop()


if __name__ == "__main__":
    main()
