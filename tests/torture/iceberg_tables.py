"""Compares Iceberg tables with a ledger, after archivers of two brokers were killed again and again.

    python -m tests.torture.iceberg_tables --messages 5000000 --kills 20 --spark build/iceberg-spark

Meanwhile small files are put together and old rows are removed. At the end each message of the ledger must be in the
table once, but for those that are older than the retention; DuckDB, pyiceberg and, with --spark, Spark must find the
same rows. `--spark` is a directory that has a PySpark which Iceberg supports, and the Iceberg runtime; it is made if it
does not exist.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from threading import Thread
from typing import Any, Final, NamedTuple

import duckdb

from leveret.analytics.archive.archive_files import ArchiveFiles
from leveret.analytics.archive.manifests import read_manifests, store_ids
from leveret.analytics.iceberg.catalogs import open_catalog
from tests.support.archiver_process import ArchiverProcess
from tests.support.leveret_process import LeveretProcess
from tests.support.wire import Connection

_QUEUES: Final = 12
#: Messages that are confirmed together.
_BATCH: Final = 1000
#: What Spark needs: the newest versions that fit each other.
_PYSPARK: Final = "pyspark==4.1.*"
_RUNTIME: Final = "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0"
#: What is compared, by broker and queue.
_SUMS: Final = (
    "select broker, queue, count(*) as rows, count(distinct seq) as numbers, sum(seq) as seqs, "
    "sum(cast(cast(body as {text}) as bigint)) as bodies, min(enqueued_at) as first, max(enqueued_at) as last "
    "from {table} group by broker, queue order by broker, queue"
)


class Row(NamedTuple):
    """What a table has of a queue."""

    broker: str
    queue: str
    rows: int
    numbers: int
    seqs: int
    bodies: int
    first: int
    last: int


class Found(NamedTuple):
    """Result of a run.

    Attributes:
        published: Number of confirmed messages.
        kept: Number of rows of the table.
        removed: Messages that are not in the table because they are older than the retention.
        missing: Messages that are not in the table, but should be.
        double: Messages that are in the table more than once.
        dropped: How many files do not belong to the archive any more: they were put together, or too old.
        kills: How often archivers were killed.
        sums: The rows by engine.
    """

    published: int
    kept: int
    removed: int
    missing: int
    double: int
    dropped: int
    kills: int
    sums: dict[str, list[Row]]


@dataclass
class Ledger:
    """The messages that a broker has confirmed: their bodies are numbers from 0 on.

    Attributes:
        batches: For each batch, the first number and when it was confirmed, in microseconds since 1970.
    """

    count: int = 0
    batches: list[tuple[int, int]] = field(default_factory=list)


def publish(url: str, ledger: Ledger, count: int, pace: float) -> None:
    """Publish messages to queues in turn, and consume one of a hundred.

    Args:
        pace: Messages a second at most; 0 for as many as can be.
    """
    connection = Connection(url)
    channel = connection.channel()
    for queue in range(_QUEUES):
        channel.queue_declare(f"q{queue}", durable=True)
    began = time.monotonic()
    while ledger.count < count:
        size = min(_BATCH, count - ledger.count)
        channel.close()
        channel = connection.channel()
        channel.confirm_select()
        for number in range(ledger.count, ledger.count + size):
            channel.publish("", f"q{number % _QUEUES}", b"%d" % number, {"delivery_mode": 2})
        assert all(channel.wait_for_confirms(size))
        ledger.batches.append((ledger.count, time.time_ns() // 1000))
        ledger.count += size
        for _ in range(size // 100):
            got = channel.get("q0")
            if got is not None:
                channel.ack(got.delivery_tag)
        if pace:
            time.sleep(max(0.0, began + ledger.count / pace - time.monotonic()))
    connection.close()


def run(directory: Path, messages: int, kills: int, keep: int, seconds: float, spark: Path | None, seed: int) -> Found:
    """Publish, archive, kill, and compare.

    Args:
        messages: Number of messages of both brokers together.
        keep: Seconds for which rows stay in the archive.
        seconds: How long publishing is to take at least.
        spark: See above; None to leave Spark out.
        seed: Of the moments at which archivers are killed.
    """
    archive, chance = directory / "archive", random.Random(seed)
    options = ("--iceberg", "archive", "--keep", f"{keep}s")
    with ExitStack() as stack:
        ledgers, archivers, publishers = {}, [], []
        for name in ("one", "two"):
            (directory / name).mkdir()
            settings = {"storage.reader_max_bytes": "64GiB"}
            broker = stack.enter_context(LeveretProcess(directory / name, settings=settings))
            ledgers[name] = Ledger()
            share = messages // 2
            arguments = (broker.url, ledgers[name], share, share / seconds)
            publishers.append(Thread(target=publish, args=arguments, daemon=True))
            archiver = ArchiverProcess(broker.data_dir, archive, 1, name, options)
            stack.callback(archiver.close)
            archivers.append(archiver)
        for thread in publishers:
            thread.start()
        killed = 0
        while killed < kills or any(thread.is_alive() for thread in publishers):
            time.sleep(chance.uniform(0.5, 1.5) * max(1.0, seconds / kills) if killed < kills else 1)
            if killed < kills:
                victim = chance.choice(archivers)
                victim.kill()
                victim.start()
                killed += 1
                _say(f"{sum(each.count for each in ledgers.values())} messages, {killed} kills")
        assert all(each.count == messages // 2 for each in ledgers.values()), "a publisher has failed"
        for archiver in archivers:
            archiver.kill()
        for archiver in archivers:
            archiver.run_once()
        cutoff = time.time_ns() // 1000 - keep * 1_000_000
        return _compare(archive, ledgers, cutoff, killed, spark)


def _compare(archive: Path, ledgers: dict[str, Ledger], cutoff: int, kills: int, spark: Path | None) -> Found:
    files = ArchiveFiles(str(archive))
    table = open_catalog("archive", files).load_table("leveret.messages")
    paths = [task.file.file_path.removeprefix("file://") for task in table.scan().plan_files()]
    seen = table.scan(selected_fields=("broker", "body")).to_arrow()
    missing = double = removed = 0
    for name, ledger in ledgers.items():
        counts = bytearray(ledger.count)
        for body in _of_broker(seen, name):
            counts[int(body)] = min(counts[int(body)] + 1, 255)
        double += sum(1 for each in counts if each > 1)
        old = next((first for first, confirmed in reversed(ledger.batches) if confirmed < cutoff), 0)
        removed += counts.count(0, 0, old)
        missing += counts.count(0, old)
    sums = {"pyiceberg": _sums_of_arrow(table), "DuckDB": _sums_of_duckdb(paths)}
    if spark is not None:
        sums["Spark"] = _sums_of_spark(spark, archive)
    dropped = sum(len(read_manifests(files, store).removed) for store in store_ids(files))
    published = sum(each.count for each in ledgers.values())
    return Found(published, seen.num_rows, removed, missing, double, dropped, kills, sums)


def _of_broker(seen: Any, name: str) -> Iterator[bytes]:
    for batch in seen.to_batches():
        for broker, body in zip(batch["broker"].to_pylist(), batch["body"].to_pylist(), strict=True):
            if broker == name:
                yield body


def _rows(found: Sequence[Sequence[Any]]) -> list[Row]:
    return [Row(*each[:2], *map(int, each[2:])) for each in found]


def _sums_of_arrow(table: Any) -> list[Row]:
    """What pyiceberg reads, added up by DuckDB."""
    read = table.scan(selected_fields=("broker", "queue", "seq", "body", "enqueued_at")).to_arrow()
    return _rows(_with_microseconds(duckdb.connect(), "read", read))


def _sums_of_duckdb(paths: list[str]) -> list[Row]:
    """What DuckDB's own reader finds in the files of the snapshot."""
    return _rows(_with_microseconds(duckdb.connect(), f"read_parquet({paths!r})"))


def _with_microseconds(connection: duckdb.DuckDBPyConnection, table: str, read: Any = None) -> list[Any]:
    if read is not None:
        connection.register(table, read)
    sums = _SUMS.format(table=table, text="varchar")
    query = f"select * replace (epoch_us(first) as first, epoch_us(last) as last) from ({sums})"
    return connection.sql(query).fetchall()


_IN_SPARK: Final = """
import json, sys
from pyspark.sql import SparkSession
jar, warehouse, query = sys.argv[1:]
lake = "spark.sql.catalog.lake"
spark = (
    SparkSession.builder.master("local[2]").config("spark.jars", jar).config("spark.ui.enabled", "false")
    .config(lake, "org.apache.iceberg.spark.SparkCatalog").config(f"{lake}.type", "hadoop")
    .config(f"{lake}.warehouse", warehouse).getOrCreate()
)
spark.sql(query).createOrReplaceTempView("sums")
columns = "* except (first, last), unix_micros(first), unix_micros(last)"
found = spark.sql(f"select {columns} from sums order by broker, queue")
print(json.dumps([list(row) for row in found.collect()]))
"""


def _sums_of_spark(environment: Path, archive: Path) -> list[Row]:
    """What Spark finds in the catalog."""
    make_environment(environment)
    (jar,) = environment.glob("*.jar")
    query = _SUMS.format(table="lake.leveret.messages", text="string")
    packages = str((environment / "packages").resolve())
    said = subprocess.run(
        [sys.executable, "-c", _IN_SPARK, str(jar.resolve()), f"{archive}/iceberg", query],
        env={**os.environ, "PYTHONPATH": packages, "SPARK_HOME": f"{packages}/pyspark"},
        stdout=subprocess.PIPE,
        check=True,
    ).stdout
    return _rows(json.loads(said.splitlines()[-1]))


def make_environment(directory: Path) -> None:
    """Make the directory with Spark and the Iceberg runtime, unless it is there."""
    if list(directory.glob("*.jar")):
        return
    packages = str(directory / "packages")
    subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", "--target", packages, _PYSPARK], check=True)
    artifact = [f"-Dartifact={_RUNTIME}", f"-DoutputDirectory={directory.resolve()}"]
    subprocess.run(["mvn", "-q", "-B", "-ntp", "dependency:copy", *artifact], check=True)


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")


def main() -> int:
    """Run as a program; return its status: 0 if no row is missing or double and all engines agree."""
    parser = argparse.ArgumentParser(prog="python -m tests.torture.iceberg_tables", description=__doc__)
    parser.add_argument("--messages", type=int, default=1_000_000, help="of both brokers (default: 1,000,000)")
    parser.add_argument("--kills", type=int, default=20, help="how often an archiver is killed (default: 20)")
    parser.add_argument("--seconds", type=float, default=300, help="how long to publish at least (default: 300)")
    parser.add_argument("--keep", type=int, default=3600, help="seconds for which rows stay (default: 3600)")
    parser.add_argument("--spark", type=Path, help="directory with Spark and the Iceberg runtime")
    parser.add_argument("--seed", type=int, default=1, help="of the moments of the kills")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="leveret-iceberg-") as directory:
        began = time.monotonic()
        where = Path(directory)
        found = run(where, given.messages, given.kills, given.keep, given.seconds, given.spark, given.seed)
    same = len({tuple(each) for each in found.sums.values()}) == 1
    lines = {name: value for name, value in found._asdict().items() if name != "sums"}
    lines["engines"] = f"{', '.join(found.sums)}: {'the same rows' if same else 'DIFFERENT ROWS'}"
    lines["seconds"] = round(time.monotonic() - began)
    sys.stdout.write("".join(f"{name:<10} {value}\n" for name, value in lines.items()))
    return 0 if same and not found.missing and not found.double else 1


if __name__ == "__main__":
    sys.exit(main())
