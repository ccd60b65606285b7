"""Makes the archive of Spark's classes; see spark_start.py. A process of its own, in the background."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Final

import pyarrow as pa
from pyspark import SparkContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from leveret.analytics.arrow_schema import schema_of
from leveret.analytics.columns import TABLES
from leveret.analytics.java.spark_start import SparkCache, open_cache, start_spark
from leveret.analytics.jobs.flow import run_latency, run_overflow
from leveret.analytics.jobs.job_options import JobOptions
from leveret.analytics.jobs.waiting import run_backlog
from leveret.analytics.results.result_output import rows_of

#: Jobs whose classes are archived.
_JOBS: Final = (run_overflow, run_backlog, run_latency)
#: Seconds in which Java has to write the archive.
_PATIENCE: Final = 900
#: What the columns of samples have, by type.
_VALUES: Final[dict[str, Any]] = {
    "string": "ack",
    "bigint": 1,
    "int": 1,
    "boolean": True,
    "binary": b"x",
    "timestamp": datetime(2026, 1, 1, tzinfo=UTC),
    "map<string,string>": [("a", "b")],
}


class SampleSource(DataSource):
    """A table with some rows, for which no data directory is needed."""

    @classmethod
    def name(cls) -> str:
        """Return the name for `format()`."""
        return "leveret-sample"

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader."""
        return SampleReader(self.options["table"], schema.names)


class SampleReader(DataSourceReader):
    """Reads two partitions."""

    def __init__(self, table: str, columns: Sequence[str]) -> None:
        self._table = table
        self._columns = list(columns)

    def partitions(self) -> Sequence[InputPartition]:
        """Return the partitions."""
        return [InputPartition(0), InputPartition(1)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Yield a record batch."""
        schema = schema_of(TABLES[self._table], self._columns)
        arrays = [pa.array([_VALUES[TABLES[self._table][each.name]]] * 10, each.type) for each in schema]
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)


class SampleOptions(JobOptions):
    """Options of a job that reads samples."""

    def with_snapshot(self, spark: SparkSession) -> JobOptions:
        """Return these options: samples do not change."""
        return self

    def table(self, spark: SparkSession, table: str, columns: Sequence[str] = (), **options: str) -> DataFrame:
        """Return a sample of a table."""
        schema = ", ".join(f"`{name}` {TABLES[table][name]}" for name in columns or TABLES[table])
        return spark.read.format(SampleSource.name()).option("table", table).schema(schema).load()

    def live_table(self, spark: SparkSession, table: str, columns: Sequence[str] = (), **options: str) -> DataFrame:
        """Return the same."""
        return self.table(spark, table, columns)


def main() -> int:
    """Make the archive, if no other process does and there is none.

    Returns:
        0; it says nothing, and the next job goes on without an archive.
    """
    os.nice(19)
    cache = open_cache()
    if cache is not None:
        make_archive(cache)
    return 0


def make_archive(cache: SparkCache) -> None:
    """Run small jobs in a new Java process, and wait until it has written which classes they have loaded."""
    with cache.make() as path:
        if path:
            _run_jobs(replace(cache, making=path))


def _run_jobs(cache: SparkCache) -> None:
    spark = start_spark("local[2]", cache=cache)
    gateway = SparkContext._gateway
    assert gateway is not None
    process = gateway.proc
    try:
        spark.dataSource.register(SampleSource)
        for job in _JOBS:
            for frame in job(spark, SampleOptions("/")).values():
                rows_of(frame)
    finally:
        spark.stop()
        gateway.shutdown()
        # The end of its input ends it.
        process.stdin.close()
        try:
            process.wait(_PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()


if __name__ == "__main__":
    sys.exit(main())
