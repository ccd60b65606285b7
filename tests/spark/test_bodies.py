"""Bodies as a column of Spark: in batches, streams and views, and as Celery sends them to a real broker."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from celery import Celery
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from leveret.analytics import Session, read, register
from leveret.storage.analytics import command
from tests.integration.program import running
from tests.integration.waiting import wait_until
from tests.spark.directories import DirectoryBuilder
from tests.support.documentation import block
from tests.unit.storage.analytics.bodies.test_avro_bodies import ORDER
from tests.unit.storage.analytics.bodies.test_avro_bodies import encoded as avro
from tests.unit.storage.analytics.bodies.test_protobuf_bodies import descriptors
from tests.unit.storage.analytics.bodies.test_protobuf_bodies import encoded as protobuf

pytestmark = pytest.mark.spark

GOOD = [json.dumps({"id": number, "lines": [{"price": number / 4}], "note": None}).encode() for number in range(200)]
BAD = [b"", b"{", b"\xff", b"[1]", b'{"id": "x"}']


@pytest.fixture
def builder(tmp_path: Path) -> Iterator[DirectoryBuilder]:
    """Queue orders with 200 bodies as they should be, and five that are not."""
    builder = DirectoryBuilder(tmp_path / "data")
    builder.publish(builder.store(builder.queue("orders")), GOOD + BAD)
    builder.tick()
    yield builder
    builder.close()


def load(spark: SparkSession, path: str, **options: str) -> DataFrame:
    return spark.read.format("leveret").options(**options).load(path)


def test_json(spark: SparkSession, builder: DirectoryBuilder) -> None:
    frame = load(
        spark, builder.path, bodies="json", bodySchema="id bigint, lines array<struct<price: double>>, note string"
    )
    assert frame.columns[-3:] == ["body", "value", "value_error"]
    rows = frame.where("value_error is null").select("value.id", f.col("value.lines")[0].price.alias("price")).collect()
    assert [tuple(row) for row in rows] == [(number, number / 4) for number in range(200)]
    reasons = [row.value_error for row in frame.where("value_error is not null").orderBy("seq").collect()]
    assert [reason.partition(":")[0] for reason in reasons] == [
        "the body is empty",
        "the body is not JSON",
        "the body is not UTF-8 at byte 0",
        "[1] is not a JSON object",
        "id",
    ]


def test_the_type_is_inferred(spark: SparkSession, builder: DirectoryBuilder, tmp_path: Path) -> None:
    frame = load(spark, builder.path, bodies="json", bodySample="50", lastSeq="200")
    kind = "struct<id:bigint,lines:array<struct<price:double>>,note:string>"
    assert frame.schema["value"].dataType.simpleString() == kind
    assert frame.selectExpr("sum(value.id)").first() == (19_900,)
    frame.write.parquet(str(tmp_path / "lake"))
    assert spark.read.parquet(str(tmp_path / "lake")).selectExpr("sum(value.lines[0].price)").first() == (4975.0,)
    # The snapshot that the type was inferred from is not kept.
    register(spark).release()
    assert list(Path(builder.path, "snap").iterdir()) == []


def test_only_some_columns(spark: SparkSession, builder: DirectoryBuilder) -> None:
    whole = read(spark, builder.path, columns=["value", "seq"], bodies="json", limit=3, body_schema="id int")
    assert [(row.value.id, row.seq) for row in whole.collect()] == [(0, 1), (1, 2), (2, 3)]
    failed = read(spark, builder.path, columns=["value_error"], bodies="json", last_seq=205, body_sample=5)
    assert failed.where("value_error is null").count() == 200
    given = spark.read.format("leveret").schema("value struct<id: int>, queue string").option("bodies", "json")
    assert given.load(builder.path).where("value.id = 7").collect()[0].queue == "orders"
    without = spark.read.format("leveret").schema("value struct<id: int>").load(builder.path)
    with pytest.raises(PySparkException, match="column value struct<id:int>, but it does not exist in table messages"):
        without.collect()


def test_avro_and_protobuf(spark: SparkSession, builder: DirectoryBuilder, tmp_path: Path) -> None:
    order: dict[str, Any] = {
        "id": 5,
        "note": None,
        "lines": [],
        "first": None,
        "tags": {"a": 0.5},
        "size": "L",
        "key": b"ab",
    }
    builder.publish(builder.store(builder.queue("avro")), [avro(ORDER, order), b"\xff"])
    builder.publish(
        builder.store(builder.queue("protobuf")), [protobuf(id=(1 << 64) - 1, lines=[{"count": 3}]), b"\xff"]
    )
    builder.tick()
    found = (
        load(spark, builder.path, queue="avro", bodies="avro", bodySchema=json.dumps(ORDER)).orderBy("seq").collect()
    )
    assert (found[0].value.tags, found[0].value.key, found[1].value) == ({"a": 0.5}, b"ab", None)
    assert found[1].value_error.startswith("the body is not Avro of this schema")
    (tmp_path / "shop.desc").write_bytes(descriptors())
    named = {"bodies": "protobuf", "bodySchema": str(tmp_path / "shop.desc"), "bodyMessage": "shop.Order"}
    found = load(spark, builder.path, queue="protobuf", **named).orderBy("seq").collect()
    assert (int(found[0].value.id), found[0].value.lines[0]["count"], found[1].value) == ((1 << 64) - 1, 3, None)
    other = spark.read.format("leveret").schema("value struct<id: int>").options(**named).load(builder.path)
    with pytest.raises(PySparkException, match="but by bodySchema it is struct<"):
        other.collect()


def test_a_stream(spark: SparkSession, builder: DirectoryBuilder, tmp_path: Path) -> None:
    def run() -> list[tuple[int | None, bool]]:
        source = spark.readStream.format("leveret").option("bodies", "json").option("bodySchema", "id bigint")
        frame = source.load(builder.path).select("seq", "value.id", "value_error")
        writer = frame.writeStream.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True)
        query = writer.start(str(tmp_path / "lake"), format="parquet")
        assert query.awaitTermination(600)
        rows = spark.read.parquet(str(tmp_path / "lake")).orderBy("seq").collect()
        return [(row.id, row.value_error is None) for row in rows]

    wanted = [(number, True) for number in range(200)] + [(None, False)] * 5
    assert run() == wanted
    builder.publish(builder.store(builder.queue("more")), [b'{"id": 500}'])
    builder.tick()
    assert sorted(run(), key=str) == sorted([*wanted, (500, True)], key=str)


def test_the_documented_program(
    spark: SparkSession, builder: DirectoryBuilder, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    source = block("python", '.option("bodies", "json")').replace('"leveret-data"', repr(builder.path))
    exec(source, {"spark": spark})
    assert "|orders| 19|" in capsys.readouterr().out


def test_views(spark: SparkSession, builder: DirectoryBuilder) -> None:
    session = register(spark)
    session.create_views(builder.path, bodies="json", bodySchema="id bigint")
    assert spark.sql("select max(value.id) from messages").first() == (199,)
    assert spark.sql("select value from delayed").collect() == []
    assert spark.sql("select queue from queues").first() == ("orders",)
    with pytest.raises(AnalysisException, match="value"):
        spark.sql("select value from events")


def test_celery(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Tasks that wait: compressed or not, with arguments of many kinds."""
    data = str(tmp_path / "data")
    with running(tmp_path, "--data-dir", data) as program:
        app = Celery(broker=f"amqp://guest:guest@{program.addresses['amqp']}/%2F")
        app.conf.update(task_default_queue="tasks", broker_transport_options={"confirm_publish": True})
        for number in range(20):
            compression = (None, "gzip", "bzip2")[number % 3]
            app.send_task("shop.pay", (number, "card"), {"amount": number / 2}, compression=compression)
        app.send_task("shop.pickled", (1,), serializer="yaml")
        app.close()
        wait_until(lambda: load(spark, data, queue="tasks").count() == 21, "all are in the files", timeout=300)
        frame = load(spark, data, queue="tasks", bodies="json")
        paid = frame.where("value_error is null").selectExpr(
            "value._1[0] number", "value._2.amount", "headers['task'] task"
        )
        assert {tuple(row) for row in paid.collect()} == {(str(n), n / 2, "shop.pay") for n in range(20)}
        named = load(
            spark, data, bodies="json", bodySchema="args array<string>, kwargs map<string, double>, embed string"
        )
        assert named.selectExpr("sum(value.kwargs['amount'])").first() == (95.0,)
        (odd,) = frame.where("value_error is not null").collect()
        assert odd.content_type == "application/x-yaml"
        monkeypatch.setattr(command, "start_spark", lambda *_: spark)
        monkeypatch.setattr(SparkSession, "stop", lambda _: None)
        monkeypatch.setattr(Session, "close", Session.release)
        query = "select queue, count(value), count(value_error) from messages group by queue"
        capfd.readouterr()
        arguments = ["sql", "--data-dir", data, "--bodies", "json", "--format", "csv", "--query", query]
        assert command.main(arguments) == 0
        assert capfd.readouterr().out.splitlines()[1:] == ["tasks,20,1"]
