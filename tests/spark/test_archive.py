"""Archives in Spark, alone and together with live data directories."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as f

import leveret
from leveret.analytics import read, register
from leveret.analytics.archive.archive_files import ArchiveFiles
from leveret.analytics.command import JOBS
from leveret.analytics.jobs.job_options import JobOptions
from leveret.analytics.jobs.report import page
from leveret.storage.event_format import EventKind
from tests.spark.directories import START, DirectoryBuilder
from tests.support.archived import archive

pytestmark = pytest.mark.spark


@pytest.fixture
def builder(tmp_path: Path) -> Iterator[DirectoryBuilder]:
    """Queues a and b with 200 messages each; a has lost 50."""
    builder = DirectoryBuilder(tmp_path / "data")
    for name in ("a", "b"):
        store = builder.store(builder.queue(name))
        builder.publish(store, [b"%s %03d" % (name.encode(), number) for number in range(200)], headers={"n": 1})
        if name == "a":
            builder.settle(store, 50)
    builder.tick()
    yield builder
    builder.close()


def test_an_archive_is_a_table(spark: SparkSession, builder: DirectoryBuilder, tmp_path: Path) -> None:
    url = str(tmp_path / "archive")
    archive(builder, ArchiveFiles(url), batch=100)
    store = builder.store(builder.queue("c"))
    builder.publish(store, [b"c %03d" % number for number in range(10)])
    builder.tick()
    source = spark.read.format("leveret")
    alone, together = source.load(url), source.load([url, builder.path])
    assert alone.columns[0] == "broker"
    counts = {row.queue: (row.rows, row.bodies) for row in _counts(alone)}
    assert counts == {"a": (200, 200), "b": (200, 200)}
    assert {row.queue: (row.rows, row.bodies) for row in _counts(together)} == {**counts, "c": (10, 10)}
    assert alone.where("seq = 7 and queue = 'a'").select("broker", "headers").collect()[0][:] == ("one", {"n": "1"})
    events = source.option("table", "events").load([url, builder.path])
    assert [(row.broker, row.messages) for row in events.collect()] == [("one", 50)]
    some = read(spark, [url, builder.path], columns=["broker", "seq"], queue="[bc]", limit=205)
    assert (some.columns, some.count()) == (["broker", "seq"], 205)
    assert read(spark, url, columns=["body"], queue="b", first_seq=199).count() == 2
    assert leveret.scan([url, builder.path], columns=["seq"]).read_all().num_rows == together.count() == 410


def test_jobs_tell_the_queues_of_brokers_apart(spark: SparkSession, builder: DirectoryBuilder, tmp_path: Path) -> None:
    """Equal bodies in queues of one name are duplicates only if they are of one broker."""
    url, second = str(tmp_path / "archive"), DirectoryBuilder(tmp_path / "second")
    store = second.store(second.queue("a"))
    death = {"queue": "work", "reason": "rejected", "count": 2, "time": datetime(2023, 11, 14, tzinfo=UTC)}
    second.publish(store, [b"a 000", b"twice", b"twice"], headers={"x-death": [death]})
    second.settle(store, 2, EventKind.MAXLEN)
    second.settle(store, 1)
    second.tick()
    archive(builder, ArchiveFiles(url))
    archive(second, ArchiveFiles(url), broker="two")
    second.close()
    options = JobOptions(url)

    def result(job: str) -> list[tuple[object, ...]]:
        return [(row.broker, row.queue, row.messages) for row in JOBS[job](spark, options)[job].collect()]

    assert result("duplicates") == [("two", "a", 2)]
    assert result("overflow") == [("two", "a", 2)]
    assert sorted(result("latency")) == [("one", "a", 50), ("two", "a", 1)]
    assert result("deadletters") == [("two", "a", 3)]


def test_jobs_take_an_archive_together_with_data_directories(
    spark: SparkSession, builder: DirectoryBuilder, tmp_path: Path
) -> None:
    """What waits is of the directories; what has come and gone of both; a directory that was not archived is added."""
    url, second = str(tmp_path / "archive"), DirectoryBuilder(tmp_path / "second")
    store = second.store(second.queue("a"))
    second.publish(store, [b"second"] * 30)
    second.settle(store, 10, EventKind.RETURNED)
    # Not returned from a file; and what is returned to the tail, in a file again.
    second.append(store, [b"at once"] * 5)
    second.publish(store, [b"second"] * 10)
    second.tick()
    for each, broker in ((builder, "one"), (second, "two")):
        archive(each, ArchiveFiles(url), broker=broker)
    second.publish(store, [b"new"])
    second.settle(store, 4, EventKind.EXPIRED)
    # In memory when it is settled, so in no file.
    second.append(store, [b"gone"], delivery_mode=1)
    store.settle(store.take(100, 1 << 30)[0][-1:], EventKind.AUTO_ACK)
    second.tick()
    options = JobOptions((url, builder.path, second.path))

    def sums(job: str, given: JobOptions, *names: str) -> dict[tuple[str | None, str], tuple[int, ...]]:
        frame = (
            JOBS[job](spark, given)[job].groupBy("broker", "queue").agg(*(f.sum(name).alias(name) for name in names))
        )
        return {(row.broker, row.queue): tuple(row[name] for name in names) for row in frame.collect()}

    assert sums("backlog", options, "messages") == {("one", "a"): (150,), ("one", "b"): (200,), ("two", "a"): (32,)}
    moves = {("one", "a"): (200, 50), ("one", "b"): (200, 0), ("two", "a"): (37, 5)}
    assert sums("throughput", options, "messages_in", "messages_out") == moves
    # Without the directories, it is known up to the last copy.
    alone = sums("throughput", JobOptions(url), "messages_in", "messages_out")
    assert alone == {**moves, ("two", "a"): (35, 0)}
    hours = str((datetime.now(UTC).timestamp() - START / 1e6) / 3600 + 1)
    limits = replace(options, values={"max_length": "50", "hours": hours})
    assert sums("capacity", limits, "messages_in")["one", "a"] == (200,)
    query = "select q.broker, sum(q.messages) n, first(m.n) came from queues q join (select broker, count(*) n from "
    query += "messages group by 1) m on m.broker = q.broker group by 1 order by 1"
    rows = JOBS["sql"](spark, replace(options, values={"query": query}))["sql"].collect()
    assert [(row.broker, row.n) for row in rows] == [("one", 350), ("two", 32)]
    second.close()


def test_the_report_names_the_brokers(spark: SparkSession, builder: DirectoryBuilder, tmp_path: Path) -> None:
    url, second = str(tmp_path / "archive"), DirectoryBuilder(tmp_path / "second")
    death = {"queue": "work", "reason": "rejected", "count": 2, "time": datetime(2023, 11, 14, tzinfo=UTC)}
    store = second.store(second.queue("dead"))
    second.publish(store, [b"x"] * 3, headers={"x-death": [death]})
    second.settle(store, 1)
    second.tick()
    archive(builder, ArchiveFiles(url))
    alone = page(spark, JobOptions(url))
    assert "400</b><span>messages have come" in alone
    assert "Queues now" not in alone
    assert "An archive does not say what waits" in alone
    archive(second, ArchiveFiles(url), broker="two")
    text = page(spark, JobOptions((url, second.path), queue="[bd]*"))
    for part in ("2</b><span>messages wait in 1 of 1", "two: dead: 3 dead letters have come, from work", "one: b"):
        assert part in text
    second.close()


def test_views_show_an_archive_and_data_directories(
    spark: SparkSession, builder: DirectoryBuilder, tmp_path: Path
) -> None:
    url, second = str(tmp_path / "archive"), DirectoryBuilder(tmp_path / "second")
    archive(builder, ArchiveFiles(url))
    store = second.store(second.queue("a"))
    second.publish(store, [b'{"id": 1}'] * 3)
    second.settle(store, 1)
    second.tick()
    session = register(spark)

    def rows(query: str) -> list[tuple[object, ...]]:
        return [tuple(row) for row in spark.sql(query).collect()]

    counted = "select broker, queue, count(*) from messages group by all order by all"
    session.create_views(Path(url))
    assert rows(counted) == [("one", "a", 200), ("one", "b", 200)]
    assert not spark.catalog.tableExists("queues")
    session.create_views([url, builder.path, second.path], queue="a", bodies="json", bodySchema="id bigint")
    assert rows(counted) == [("one", "a", 200), ("second", "a", 3)]
    waiting = "select broker, messages from queues order by all"
    assert rows(waiting) == [("one", 150), ("second", 2)]
    assert rows("select broker, sum(messages) from events group by all order by all") == [("one", 50), ("second", 1)]
    assert rows("select max(value.id) from messages") == [(1,)]
    assert rows("select broker from delayed") == []
    second.publish(store, [b"more"])
    second.tick()
    assert rows(waiting) == [("one", 150), ("second", 2)]
    session.refresh()
    assert rows(waiting) == [("one", 150), ("second", 3)]
    # One of the two has such a queue.
    session.create_views([url, builder.path, second.path], queue="b")
    assert rows("select broker, messages from queues") == [("one", 200)]
    session.create_views(builder.path, archive="off")
    assert rows("select sum(messages) from events") == [(50,)]
    second.close()


def _counts(frame: DataFrame) -> list[Row]:
    grouped = frame.groupBy("queue").agg(f.count("*").alias("rows"), f.countDistinct("body").alias("bodies"))
    return grouped.collect()


def test_what_archives_do_not_do_is_said(spark: SparkSession, builder: DirectoryBuilder, tmp_path: Path) -> None:
    url = str(tmp_path / "archive")
    archive(builder, ArchiveFiles(url))
    for options, said in (
        ({"pushdown": "true"}, "pushdown does not apply to archives"),
        ({"bodies": "json", "pushdown": "true"}, "pushdown does not apply to archives"),
    ):
        with pytest.raises(PySparkException, match=said):
            spark.read.format("leveret").options(**options).load(url).count()
    with pytest.raises(PySparkException, match="an archive cannot be read as a stream"):
        spark.readStream.format("leveret").load(url).writeStream.format("memory").queryName(
            "x"
        ).start().awaitTermination()
    assert os.listdir(f"{builder.path}/snap") == []
