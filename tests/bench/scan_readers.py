"""What reads a backlog in `make bench-scan`: Arrow, DuckDB and Spark, which answer the same queries."""

from __future__ import annotations

import os
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final

from tests.bench.accounting import ProcessAccount

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

#: In this order.
QUERIES: Final = (
    "session", "first_row", "files", "count", "group_by", "bodies", "json", "headers", "odd", "option", "filter"
)  # fmt: skip
#: The queue whose messages have headers as no other message has.
ODD: Final = "odd"
#: The queue of the queries `option` and `filter`.
_ONE: Final = "orders.3"
#: The type of the bodies, in Spark's DDL.
BODY_TYPE: Final = "number bigint, customer string, amount double"


@dataclass(frozen=True)
class Query:
    """What a query took."""

    seconds: float
    cpu_seconds: float
    answer: int


class Reader(ABC):
    """Answers queries about a data directory. Libraries are imported by the first query, which counts that.

    Args:
        path: The data directory.
        parquet: A Parquet file with its messages, or where to write it.

    Attributes:
        queries: Those that it answers.
        peer: Name of the reader of Parquet to compare it with; empty for none.
    """

    queries: ClassVar[Sequence[str]]
    peer: ClassVar[str] = ""

    def __init__(self, path: str, parquet: str) -> None:
        self._path = path
        self._parquet = parquet
        self._account = ProcessAccount(os.getpid())

    def run(self, name: str) -> Query:
        """Answer one of QUERIES, and measure it."""
        began, cpu = time.monotonic(), self._account.cpu_seconds()
        answer = self._answer(name)
        return Query(time.monotonic() - began, self._account.cpu_seconds() - cpu, int(answer))

    @abstractmethod
    def _answer(self, name: str) -> int: ...


class ArrowReader(Reader):
    """`leveret.scan()`; what is large is read a batch at a time."""

    peer = "parquet"
    queries = QUERIES[1:]

    def _answer(self, name: str) -> int:
        import pyarrow as pa
        import pyarrow.compute as pc

        match name:
            case "first_row":
                return len(self._scan(["queue", "body"], limit=1).read_all())
            case "files":
                from isal.isal_zlib import crc32

                return len([crc32(path.read_bytes()) for path in Path(self._path).glob("q/**/*.seg")]) > 0
            case "count":
                return sum(batch.num_rows for batch in self._scan(["seq"]))
            case "group_by":
                groups = self._scan(["queue", "priority"]).read_all().group_by(["queue", "priority"])
                return int(pc.max(groups.aggregate([([], "count_all")])["count_all"]).as_py())
            case "bodies":
                return self._size("body")
            case "json":
                batches = self._scan(["value"], bodies="json", body_schema=BODY_TYPE)
                return sum(pc.sum(batch["value"].field("number")).as_py() for batch in batches)
            case "headers" | "odd":
                queue, key = ("orders.*", "trace") if name == "headers" else (ODD, "order")
                texts = (
                    pc.map_lookup(batch["headers"], key, "first") for batch in self._scan(["headers"], queue=queue)
                )
                return sum(pc.sum(pc.binary_length(each)).as_py() for each in texts)
            case "option":
                return self._size("body", queue=_ONE)
        found = pa.Table.from_batches(self._scan(["queue", "body"]))
        return int(pc.sum(pc.binary_length(found.filter(pc.field("queue") == _ONE)["body"])).as_py())

    def write_parquet(self) -> None:
        """Write all columns of the messages as DuckDB does, with its default compression."""
        import duckdb

        with duckdb.connect() as database:
            database.register("rows", self._scan(None))
            database.execute(f"copy (from rows) to '{self._parquet}'")

    def _size(self, column: str, **options: Any) -> int:
        import pyarrow.compute as pc

        return sum(pc.sum(pc.binary_length(batch[column])).as_py() for batch in self._scan([column], **options))

    def _scan(self, columns: list[str] | None, **options: Any) -> pa.RecordBatchReader:
        import leveret

        return leveret.scan(self._path, columns=columns, **options)


#: The queries but those whose tables are chosen otherwise, in DuckDB's SQL.
_SQL: Final = {
    "first_row": "select count(*) from (select queue, body from messages limit 1)",
    "count": "select count(*) from messages",
    "group_by": "select max(n) from (select count(*) as n from messages group by queue, priority)",
    "bodies": "select sum(octet_length(body)) from messages",
    "json": "select sum((as_json(body)->>'number')::bigint) from messages",
    "headers": f"select sum(length(headers['trace'])) from messages where queue <> '{ODD}'",
    "odd": f"select sum(length(headers['order'])) from messages where queue = '{ODD}'",
    "option": "select sum(octet_length(body)) from messages",
    "filter": f"select sum(octet_length(body)) from messages where queue = '{_ONE}'",
}


class SqlReader(Reader):
    """DuckDB over `leveret.dataset()`, with what the SQL page and `leveretctl sql` have."""

    peer = "parquet"
    queries: ClassVar[Sequence[str]] = ("first_row", *QUERIES[3:])

    def _answer(self, name: str) -> int:
        import duckdb

        with duckdb.connect(config={"threads": 2}) as database:
            database.execute("set enable_progress_bar = false")
            database.execute("create macro as_json(body) as try_cast(try(decode(body)) as json)")
            self._open(database, {"queue": _ONE} if name == "option" else {})
            row = database.execute(_SQL[name]).fetchone()
        assert row is not None
        return int(row[0])

    def _open(self, database: duckdb.DuckDBPyConnection, options: dict[str, Any]) -> None:
        import leveret

        database.register("messages", leveret.dataset(self._path, **options))


class SqlParquetReader(SqlReader):
    """DuckDB over Parquet."""

    peer = ""
    queries = tuple(query for query in SqlReader.queries if query != "option")

    def _open(self, database: duckdb.DuckDBPyConnection, options: dict[str, Any]) -> None:
        database.execute(f"create view messages as from '{self._parquet}'")


class SparkReader(Reader):
    """`leveret.analytics.read()` on `local[2]`, with the session of the jobs."""

    peer = "spark-parquet"
    queries: ClassVar[Sequence[str]] = ("session", "first_row", *QUERIES[3:])
    _spark: SparkSession

    def _answer(self, name: str) -> int:
        match name:
            case "session":
                from leveret.analytics.java.spark_start import open_cache, start_spark

                self._spark = start_spark("local[2]", cache=open_cache())
                return self._spark.range(1).count()
            case "first_row":
                return len(self._read(["queue", "body"], limit=1).collect())
            case "count":
                return self._read(["seq"]).count()
            case "group_by":
                groups = self._read(["queue", "priority"]).groupBy("queue", "priority").count()
                return self._number(groups, "max(count)")
            case "bodies":
                return self._number(self._read(["body"]), "sum(length(body))")
            case "json":
                return self._json()
            case "headers":
                return self._number(self._read(["headers"], queue="orders.*"), "sum(length(headers['trace']))")
            case "odd":
                return self._number(self._read(["headers"], queue=ODD), "sum(length(headers['order']))")
            case "option":
                return self._number(self._read(["body"], queue=_ONE), "sum(length(body))")
        return self._number(self._filtered().where(f"queue = '{_ONE}'"), "sum(length(body))")

    def _read(self, columns: list[str], **options: Any) -> DataFrame:
        from leveret.analytics import read

        return read(self._spark, self._path, columns=columns, **options)

    def _filtered(self) -> DataFrame:
        self._spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
        reader = self._spark.read.format("leveret").schema("queue string, body binary")
        return reader.option("pushdown", "true").load(self._path)

    def _json(self) -> int:
        return self._number(self._read(["value"], bodies="json", body_schema=BODY_TYPE), "sum(value.number)")

    def _number(self, rows: DataFrame, expression: str) -> int:
        (row,) = rows.selectExpr(expression).collect()
        return int(row[0])


class SparkParquetReader(SparkReader):
    """Spark over Parquet."""

    peer = ""
    queries = tuple(query for query in SparkReader.queries if query != "option")

    def _read(self, columns: list[str], **options: Any) -> DataFrame:
        rows = self._spark.read.parquet(self._parquet)
        if "queue" in options:
            rows = rows.where(f"queue like '{options['queue'].replace('*', '%')}'")
        return rows.select(*columns).limit(options["limit"]) if "limit" in options else rows.select(*columns)

    def _filtered(self) -> DataFrame:
        return self._read(["queue", "body"])

    def _json(self) -> int:
        return self._number(self._read(["body"]), f"sum(from_json(cast(body as string), '{BODY_TYPE}').number)")


READERS: Final[dict[str, type[Reader]]] = {
    "arrow": ArrowReader,
    "sql": SqlReader,
    "parquet": SqlParquetReader,
    "spark": SparkReader,
    "spark-parquet": SparkParquetReader,
}
