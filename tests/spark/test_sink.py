"""Spark publishes to a broker: queries, streaming queries, and the recipe that repairs dead letters."""

from __future__ import annotations

import json
import runpy
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, DataFrameWriter, SparkSession

import leveret as package
from leveret.analytics import register
from tests.integration.program import Program, running
from tests.integration.waiting import wait_until
from tests.support.documentation import block
from tests.support.leveretctl import Leveretctl
from tests.support.wire import Channel, Connection

pytestmark = pytest.mark.spark

ONCE = [("x-cache-size", "I", 10_000), ("x-cache-persistence", "S", "disk")]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Program]:
    directory = tmp_path_factory.mktemp("broker")
    with running(directory, "--data-dir", str(directory / "leveret-data")) as program:
        yield program


@pytest.fixture
def channel(broker: Program) -> Iterator[Channel]:
    """A channel, the queue q, and the exchange `once` that leads to it and drops duplicates."""
    with Connection(url(broker)) as connection:
        channel = connection.channel()
        channel.queue_declare("q", durable=True)
        channel.exchange_declare("once", "x-message-deduplication", durable=True, arguments=ONCE)
        channel.queue_bind("q", "once", "")
        yield channel
        channel.queue_delete("q")
        channel.exchange_delete("once")


def url(broker: Program) -> str:
    return f"amqp://guest:guest@{broker.addresses['amqp']}/%2F"


def http_url(broker: Program) -> str:
    return f"http://guest:guest@{broker.addresses['management']}"


def numbers(spark: SparkSession, count: int) -> DataFrame:
    return spark.range(count).selectExpr("id as key", "cast(id as string) as body", "'application/json' content_type")


def writer(frame: DataFrame, broker: Program, exchange: str = "once") -> DataFrameWriter:
    given = {"url": url(broker), "managementUrl": http_url(broker), "exchange": exchange}
    return frame.write.format("leveret").mode("append").options(**given)


def bodies(channel: Channel, queue: str = "q") -> list[str]:
    found = []
    while (got := channel.get(queue, no_ack=True)) is not None:
        found.append(got.body.decode())
    return found


def test_each_row_arrives_once_however_often_it_is_published(
    spark: SparkSession, broker: Program, channel: Channel
) -> None:
    before = register(spark).written
    writer(numbers(spark, 1000), broker).save()
    writer(numbers(spark, 2000), broker).save()
    written = register(spark).written
    assert (written.rows - before.rows, written.confirmed - before.confirmed) == (3000, 3000)
    assert written.warnings == before.warnings
    assert sorted(map(int, bodies(channel))) == [*range(2000)]


def test_rows_that_are_not_taken(spark: SparkSession, broker: Program, channel: Channel, tmp_path: Path) -> None:
    frame = numbers(spark, 100).selectExpr(
        "key", "content_type", "if(key < 10, 'nowhere', 'q') as routing_key", "if(key < 95, body, null) as body"
    )
    with pytest.raises(PySparkException, match=r"15 of 100 rows were not taken: .*10 unroutable"):
        writer(frame, broker, "").save()
    before = register(spark).written
    failures = tmp_path / "failures"
    writer(frame, broker, "").option("failurePath", str(failures)).save()
    found = spark.read.parquet(str(failures))
    assert sorted((row.key, row.failure) for row in found.collect()) == [
        *((key, "unroutable") for key in range(10)),
        *((key, "invalid") for key in range(95, 100)),
    ]
    written = register(spark).written
    assert (written.rows - before.rows, written.unroutable - before.unroutable) == (100, 10)
    assert written.invalid - before.invalid == 5
    assert any(warning.startswith("the default exchange drops no duplicates") for warning in written.warnings)
    register(spark).release()
    assert register(spark).written == written
    assert len(bodies(channel)) == 170


def test_a_query_that_cannot_begin(spark: SparkSession, broker: Program) -> None:
    with pytest.raises(PySparkException, match="404 NOT_FOUND - no exchange 'missing'"):
        writer(numbers(spark, 1), broker, "missing").save()
    with pytest.raises(PySparkException, match="the sink needs a column body"):
        writer(spark.range(1).selectExpr("id as key"), broker).save()
    with pytest.raises(PySparkException, match="what was published cannot be overwritten"):
        writer(numbers(spark, 1), broker).mode("overwrite").save()


def test_a_streaming_query(spark: SparkSession, broker: Program, channel: Channel, tmp_path: Path) -> None:
    """A batch whose end was not noted is published again, and arrives once."""
    source, checkpoint = tmp_path / "source", tmp_path / "checkpoint"

    def run() -> None:
        stream = spark.readStream.schema("key bigint, body string").json(str(source))
        given = {"url": url(broker), "managementUrl": http_url(broker), "exchange": "once"}
        query = stream.writeStream.format("leveret").option("checkpointLocation", str(checkpoint)).options(**given)
        query.trigger(availableNow=True).start().awaitTermination()

    for number in range(3):
        spark.range(number * 100, number * 100 + 100, 1, 2).selectExpr(
            "id as key", "cast(id as string) as body"
        ).write.mode("append").json(str(source))
        run()
    assert len(list((checkpoint / "commits").glob("[0-9]*"))) == 3
    for name in ("2", ".2.crc"):
        (checkpoint / "commits" / name).unlink()
    run()
    assert sorted(map(int, bodies(channel))) == [*range(300)]


def test_the_recipe_for_dead_letters(
    spark: SparkSession, broker: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data_dir = Path(broker.ready_line.rpartition(" data=")[2])
    monkeypatch.chdir(tmp_path)

    def script(name: str, containing: str) -> None:
        text = block("python", containing).replace("127.0.0.1:5672", broker.addresses["amqp"])
        text = text.replace("127.0.0.1:15672", broker.addresses["management"])
        # Spark was started in another directory.
        text = text.replace('"leveret-data"', f'"{data_dir}"').replace('"repaired-keys"', f'"{tmp_path}/repaired-keys"')
        Path(name).write_text(text)

    script("rejected.py", '"amount": -number')
    script("prepare.py", 'exchange_declare("repaired"')
    script("repair.py", "repaired-keys")
    reject, prepare, repair, delete = block("sh", "delete_messages invoices.dead").splitlines()
    names = ("rejected", "prepare", "repair")
    assert (reject, prepare, repair) == tuple(f".venv/bin/python {name}.py" for name in names)
    for name in ("rejected.py", "prepare.py"):
        subprocess.run([sys.executable, name], check=True, timeout=600)
    wait_until(lambda: package.scan(data_dir, queue="invoices.dead", columns=["seq"]).read_all().num_rows == 10, "10")
    before = register(spark).written
    # The second time is what is left to do after a job was killed at its end.
    for _ in range(2):
        runpy.run_path("repair.py")
    assert register(spark).written.rows - before.rows == 2 * 10
    assert register(spark).written.warnings == before.warnings
    program, *words = shlex.split(delete)
    assert program == "leveretctl"
    shown = Leveretctl(http_url(broker)).output(*words, "-q")
    assert shown == "Deleted 10 messages, skipped 0\n"
    with Connection(url(broker)) as connection:
        channel = connection.channel()
        assert bodies(channel, "invoices.dead") == []
        first = channel.get("invoices", no_ack=True)
        assert first is not None
        # As it was published, and no dead letter any more.
        assert (first.routing_key, first.properties["message_id"]) == ("invoices", "3")
        assert {name for name, _, _ in first.properties["headers"]} == {"tenant", "x-deduplication-header"}
        found = [json.loads(body) for body in (first.body.decode(), *bodies(channel, "invoices"))]
        assert sorted((each["invoice"], each["amount"]) for each in found) == [(at, at) for at in range(3, 31, 3)]
