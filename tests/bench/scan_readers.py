"""What reads a backlog in `make bench-scan`: Arrow and Spark, which answer the same queries."""

from __future__ import annotations

import os
import time
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from tests.bench.accounting import ProcessAccount

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

#: In this order; the first one also starts the reader.
QUERIES: Final = ("first_row", "count", "group_by", "bodies", "json")
#: The type of the bodies, in Spark's DDL.
BODY_TYPE: Final = "number bigint, customer string, amount double"


@dataclass(frozen=True)
class Query:
    """What a query took."""

    seconds: float
    cpu_seconds: float
    answer: int


class _Reader(ABC):
    """Answers queries about a data directory. Libraries are imported by the first query, which counts that."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._account = ProcessAccount(os.getpid())

    def run(self, name: str) -> Query:
        """Answer one of QUERIES, and measure it."""
        began, cpu = time.monotonic(), self._account.cpu_seconds()
        answer = getattr(self, name)()
        return Query(time.monotonic() - began, self._account.cpu_seconds() - cpu, int(answer))

    @abstractmethod
    def first_row(self) -> int:
        """Start, and take a row with its body; return 1."""

    @abstractmethod
    def count(self) -> int:
        """Count the messages."""

    @abstractmethod
    def group_by(self) -> int:
        """Return the number of messages in the largest group of queue and priority."""

    @abstractmethod
    def bodies(self) -> int:
        """Return the size of all bodies, in bytes, from the bodies themselves."""

    @abstractmethod
    def json(self) -> int:
        """Return the sum of a number that is in each body."""


class ArrowReader(_Reader):
    """`leveret.scan()`; what is large is read a batch at a time."""

    def first_row(self) -> int:
        return len(self._scan(["queue", "body"], limit=1).read_all())

    def count(self) -> int:
        return sum(batch.num_rows for batch in self._scan(["seq"]))

    def group_by(self) -> int:
        table = self._scan(["queue", "priority"]).read_all()
        groups = table.group_by(["queue", "priority"]).aggregate([([], "count_all")])
        return int(max(groups["count_all"].to_pylist()))

    def bodies(self) -> int:
        import pyarrow.compute as pc

        return sum(pc.sum(pc.binary_length(batch["body"])).as_py() for batch in self._scan(["body"]))

    def json(self) -> int:
        import pyarrow.compute as pc

        batches = self._scan(["value"], bodies="json", body_schema=BODY_TYPE)
        return sum(pc.sum(batch["value"].field("number")).as_py() for batch in batches)

    def _scan(self, columns: list[str], **options: Any) -> pa.RecordBatchReader:
        import leveret

        return leveret.scan(self._path, columns=columns, **options)


class SparkReader(_Reader):
    """`leveret.analytics.read()` on `local[2]`, with the session of the jobs."""

    def first_row(self) -> int:
        from leveret.analytics.java.class_archive import open_cache
        from leveret.analytics.java.spark_start import start_spark

        self._spark = start_spark("local[2]", cache=open_cache())
        return len(self._read(["queue", "body"], limit=1).collect())

    def count(self) -> int:
        return self._read(["seq"]).count()

    def group_by(self) -> int:
        groups = self._read(["queue", "priority"]).groupBy("queue", "priority").count()
        return self._number(groups.selectExpr("max(count)"))

    def bodies(self) -> int:
        return self._number(self._read(["body"]).selectExpr("sum(length(body))"))

    def json(self) -> int:
        return self._number(self._read(["value"], bodies="json", body_schema=BODY_TYPE).selectExpr("sum(value.number)"))

    def _read(self, columns: list[str], **options: Any) -> DataFrame:
        from leveret.analytics import read

        return read(self._spark, self._path, columns=columns, **options)

    def _number(self, rows: DataFrame) -> int:
        (row,) = rows.collect()
        return int(row[0])
