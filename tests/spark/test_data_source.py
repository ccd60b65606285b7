from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from leveret.analytics import read, register
from leveret.analytics.errors import OptionError
from leveret.storage.event_format import EventKind
from tests.spark.directories import DirectoryBuilder

# Starting Spark takes a while where there is little processor to be had.
pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Queues a and b in `/`, c in `other`; 200 messages each, of which 50 have left a for three reasons."""
    builder = DirectoryBuilder(tmp_path_factory.mktemp("data"))
    for name, vhost in (("a", "/"), ("b", "/"), ("c", "other")):
        store = builder.store(builder.queue(name, vhost))
        for number in range(200):
            builder.publish(store, [b"%03d" % number], f"key.{number % 4}", headers={"n": number})
            builder.wait(1)
        if name == "a":
            builder.settle(store, 20)
            builder.settle(store, 20, EventKind.MAXLEN, 1)
            builder.settle(store, 10, EventKind.EXPIRED)
    builder.tick()
    builder.close()
    return builder.path


def load(spark: SparkSession, path: str, schema: str = "", **options: str) -> DataFrame:
    reader = spark.read.format("leveret").options(**options)
    return (reader.schema(schema) if schema else reader).load(path)


def test_messages(spark: SparkSession, directory: str) -> None:
    frame = load(spark, directory)
    assert len(frame.columns) == 35
    counts = {(row.vhost, row.queue): row["count"] for row in frame.groupBy("vhost", "queue").count().collect()}
    assert counts == {("/", "a"): 150, ("/", "b"): 200, ("other", "c"): 200}
    (row,) = frame.where("queue = 'a' and seq = 51").collect()
    assert (row.body, row.routing_key, row.headers, row.redelivered) == (b"050", "key.2", {"n": "50"}, False)
    assert abs(row.enqueued_at.astimezone(UTC) - datetime(2023, 11, 14, 22, 14, 10, tzinfo=UTC)).total_seconds() < 1


@pytest.fixture
def pushdown(spark: SparkSession) -> Iterator[None]:
    """The session passes conditions on to Python data sources, which is a setting of its user."""
    name = "spark.sql.python.filterPushdown.enabled"
    assert spark.conf.get(name) == "false"
    spark.conf.set(name, "true")
    yield
    spark.conf.unset(name)


@pytest.mark.usefixtures("pushdown")
def test_conditions_can_decide_what_is_read(spark: SparkSession, directory: str) -> None:
    schema = "queue string, seq bigint, enqueued_at timestamp"
    whole = load(spark, directory, schema)
    some = load(spark, directory, schema, pushdown="true").where(
        "queue in ('a', 'b') and seq > 190 and enqueued_at < timestamp'2023-11-14 22:16:35'"
    )
    assert 0 < some.rdd.getNumPartitions() < whole.rdd.getNumPartitions()
    assert {(row.queue, row.seq) for row in some.collect()} == {("a", seq) for seq in range(191, 196)}
    assert load(spark, directory, schema, pushdown="true").where("queue = 'nowhere'").count() == 0
    # Conditions that are not pushed down still hold.
    assert load(spark, directory, schema, pushdown="true").where("seq % 100 = 0 or queue like 'c%'").count() == 204


@pytest.mark.usefixtures("pushdown")
def test_a_second_query_does_not_get_the_conditions_of_the_first(spark: SparkSession, directory: str) -> None:
    load(spark, directory, "queue string, seq bigint", pushdown="true").createOrReplaceTempView("pushed")
    assert spark.sql("select * from pushed where queue = 'b' and seq > 190").count() == 10
    with pytest.raises(PySparkException, match="loaded with pushdown=true and has been read before"):
        spark.sql("select * from pushed").count()
    # Conditions of its own are passed on anew.
    assert spark.sql("select * from pushed where queue = 'c'").count() == 200
    assert spark.sql("select * from pushed a join pushed b on a.seq = b.seq where a.queue = 'b'").count() > 0


def test_conditions_take_a_setting_of_sparks(spark: SparkSession, directory: str) -> None:
    with pytest.raises(PySparkException, match=r"spark\.sql\.python\.filterPushdown\.enabled"):
        load(spark, directory, pushdown="true").where("seq > 5").count()


def test_columns_and_a_limit_are_passed_on(spark: SparkSession, directory: str) -> None:
    before = spark.conf.getAll
    frame = read(spark, directory, columns=["seq", "queue"], limit=3, queue="b")
    assert frame.collect() == [(1, "b"), (2, "b"), (3, "b")]
    assert frame.rdd.getNumPartitions() == 1
    twenty = datetime(2023, 11, 14, 22, 13, 40, tzinfo=UTC)
    found = read(spark, directory, columns=["seq"], queue="b", since=twenty, first_seq=5, last_seq=7)
    assert [row.seq for row in found.orderBy("seq").collect()] == [5, 6, 7]
    assert read(spark, directory, "queues", limit=0).count() == 0
    with pytest.raises(OptionError, match="table queues has no column 'seq'"):
        read(spark, directory, "queues", columns=["seq"])
    assert spark.conf.getAll == before


def test_views_show_one_moment_until_they_are_refreshed(spark: SparkSession, tmp_path: Path) -> None:
    builder = DirectoryBuilder(tmp_path)
    store = builder.store(builder.queue("q"))

    def shown() -> list[int]:
        query = "select (select count(*) from messages), (select messages from queues), (select count(*) from events)"
        return list(spark.sql(query).collect()[0])

    session = register(spark)
    builder.publish(store, [b"x"] * 10)
    builder.tick()
    session.create_views(str(tmp_path), queue="q")
    builder.publish(store, [b"x"] * 10)
    builder.settle(store, 5)
    builder.tick()
    assert shown() == [10, 10, 0]
    session.refresh()
    assert shown() == [15, 15, 1]
    builder.close()


def test_what_is_not_done_is_said(spark: SparkSession, directory: str) -> None:
    with pytest.raises(PySparkException, match=r"one data directory at a time.*unionByName"):
        spark.read.format("leveret").load([directory, directory])
    with pytest.raises(PySparkException, match="name the data directory"):
        spark.read.format("leveret").load()
    for where in (f"options (path '{directory}')", f"location '{directory}'"):
        with pytest.raises(PySparkException, match=r"loses the options of a Python data source; use CREATE TEMPORARY"):
            spark.sql(f"create table t using leveret {where}")
    spark.sql(f"create temporary view t using leveret options (path '{directory}', table 'queues')")
    assert spark.table("t").count() == 3
    with pytest.raises(PySparkException, match="name the exchange"):
        spark.range(1).write.format("leveret").mode("append").save()
    with pytest.raises(PySparkException, match="to a broker, not to a path"):
        spark.range(1).write.format("leveret").option("exchange", "x").mode("append").save(directory)


def test_a_frame_is_one_moment_whatever_is_asked_of_it(spark: SparkSession, directory: str) -> None:
    frame = load(spark, directory, "queue string, seq bigint")
    assert frame.where("queue = 'a'").count() == 150
    assert frame.count() == 550


def test_events(spark: SparkSession, directory: str) -> None:
    found = load(spark, directory, table="events").groupBy("queue", "kind", "dead_lettered")
    rows = found.agg(f.sum("messages"), f.sum("body_bytes"), f.max("wait_ms")).collect()
    assert {row[:5] for row in rows} == {
        ("a", "ack", False, 20, 60),
        ("a", "maxlen", True, 20, 60),
        ("a", "expired", False, 10, 30),
    }
    assert 200_000 <= max(row[5] for row in rows) < 200_100
    assert load(spark, directory, table="events", queue="b").count() == 0


def test_queries_can_share_a_moment(spark: SparkSession, tmp_path: Path) -> None:
    builder = DirectoryBuilder(tmp_path)
    store = builder.store(builder.queue("q"))
    builder.publish(store, [b"x"] * 10)
    builder.tick()
    moment = register(spark).snapshot(str(tmp_path))
    builder.publish(store, [b"x"] * 10)
    builder.settle(store, 5)
    builder.tick()
    path = str(tmp_path)
    assert load(spark, path, "seq bigint").count() == 15
    assert load(spark, path, "seq bigint", snapshot=moment).count() == 10
    assert load(spark, path, table="events", snapshot=moment).count() == 0
    assert load(spark, path, table="queues", snapshot=moment, queue="q").collect()[0].messages == 10
    for options, text in (
        ({"snapshot": moment, "queue": "p"}, "has no queue 'p'"),
        ({"snapshot": moment, "asOf": "2026-01-01"}, "was taken with another asOf"),
        ({"snapshot": "no/such"}, "there is no snapshot 'no/such' in this session"),
    ):
        with pytest.raises(PySparkException, match=text):
            load(spark, path, **options).count()
    with pytest.raises(PySparkException, match=f"snapshot '{moment}' is of {tmp_path}, not of {tmp_path}/q"):
        load(spark, f"{path}/q", snapshot=moment).count()
    register(spark).release()
    with pytest.raises(PySparkException, match="there is no snapshot"):
        load(spark, path, snapshot=moment).count()
    builder.close()


def test_wrong_columns_are_refused(spark: SparkSession, directory: str) -> None:
    with pytest.raises(PySparkException, match="the schema has column seq string, but it is bigint"):
        load(spark, directory, "seq string").count()


def test_snapshots_are_given_up(spark: SparkSession, directory: str) -> None:
    session = register(spark)
    frame = load(spark, directory, "seq bigint")
    assert frame.count() == 550
    assert os.listdir(f"{directory}/snap") != []
    session.release()
    assert os.listdir(f"{directory}/snap") == []
    # Later frames are not hurt.
    assert load(spark, directory, "seq bigint").count() == 550
    session.release()


def test_damage_is_reported(spark: SparkSession, tmp_path: Path) -> None:
    builder = DirectoryBuilder(tmp_path)
    builder.publish(builder.store(builder.queue("q")), [b"%04d" % number for number in range(100)])
    builder.tick()
    builder.close()
    victim = min(tmp_path.glob("q/*/*.seg"))
    victim.write_bytes(victim.read_bytes().replace(b"0010", b"0x10"))
    session = register(spark)
    before = session.damaged
    assert load(spark, str(tmp_path)).count() == 99
    assert session.damaged == before + 1
    with pytest.raises(PySparkException, match="1 records are damaged"):
        load(spark, str(tmp_path), mode="FAILFAST").count()
    session.release()
    assert session.damaged == before + 1
