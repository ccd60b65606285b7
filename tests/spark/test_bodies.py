"""Bodies as a column of Spark: in batches, streams and views, and as Celery sends them to a real broker."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

import leveret
from leveret.analytics import register
from leveret.analytics.archive.archive_files import ArchiveFiles
from leveret.storage.disk.files import DiskFiles
from leveret.storage.readers.body_rules import read_rule, write_rules
from tests.spark.directories import DirectoryBuilder
from tests.support.archived import archive
from tests.support.documentation import block
from tests.support.schema_registry import RegistryServer, register_json, register_protobuf

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


@pytest.mark.slow
def test_a_rule(spark: SparkSession, builder: DirectoryBuilder, tmp_path: Path) -> None:
    """The bodies of its queues, of a data directory and of an archive."""
    rule = {"queue": "ord*", "format": "json", "schema": {"properties": {"id": {"type": "integer"}}}}
    write_rules(DiskFiles(), builder.path, [read_rule("orders", rule, "/")])
    builder.publish(builder.store(builder.queue("other")), GOOD)
    builder.tick()
    sums = "sum(value.id), count(*), count(value_error)"
    assert load(spark, builder.path, bodies="orders").selectExpr(*sums.split(", ")).first() == (19_900, 205, 5)
    columns = ["queue", "value"]
    frame = leveret.analytics.read(spark, builder.path, columns=columns, bodies="orders", queue="other")
    assert frame.schema["value"].dataType.simpleString() == "struct<id:bigint>"
    assert frame.count() == 200
    archive(builder, ArchiveFiles(str(tmp_path / "archive")))
    archived = spark.read.format("leveret").option("bodies", "orders").load(str(tmp_path / "archive"))
    assert archived.selectExpr(*sums.split(", ")).first() == (19_900, 205, 5)
    # The table that the archiver has made.
    typed = spark.read.parquet(str(tmp_path / "archive" / "bodies_orders"))
    assert typed.selectExpr(*sums.split(", ")).first() == (19_900, 205, 5)
    with pytest.raises(Exception, match="there is no rule 'mail' for bodies"):
        load(spark, builder.path, bodies="mail").collect()


@pytest.mark.slow
@pytest.mark.parametrize("register", [register_json, register_protobuf])
def test_a_registry(
    spark: SparkSession,
    builder: DirectoryBuilder,
    tmp_path: Path,
    register: Callable[[RegistryServer], tuple[dict[str, str], list[bytes]]],
) -> None:
    """In Spark's workers, and in the table that the archiver makes."""
    with RegistryServer() as server:
        rule, bodies = register(server)
        write_rules(DiskFiles(), builder.path, [read_rule("shop", rule, "/")])
        builder.publish(builder.store(builder.queue(rule["queue"])), bodies)
        builder.tick()
        frame = load(spark, builder.path, bodies="shop").orderBy("seq")
        one, other = frame.select("value.id", "value.line.n", "value.other", "value_error").collect()
        assert (tuple(one), other.value_error is None) == ((1, 4, 7, None), False)
        # A schema of the query's own.
        chosen = spark.read.format("leveret").schema("value struct<id: bigint>") if rule["format"] == "json" else None
        if chosen is not None:
            assert chosen.option("bodies", "shop").load(builder.path).where("value.id = 1").count() == 1
        archive(builder, ArchiveFiles(str(tmp_path / "archive")))
    typed = spark.read.parquet(str(tmp_path / "archive" / "bodies_shop"))
    found = typed.orderBy("seq").select("value.line.n", "value_error", "body").collect()
    assert [(row.n, row.value_error is None, row.body is None) for row in found] == [
        (4, True, True),
        (None, False, False),
    ]


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
