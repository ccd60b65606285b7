"""Times in Spark and in Arrow against the arithmetic of integers."""

from __future__ import annotations

import random
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

import leveret
from leveret.storage.analytics.job_options import JobOptions
from leveret.storage.analytics.times import microseconds, utc_time
from leveret.storage.analytics.whole_spans import whole_spans
from leveret.storage.event_format import EventKind
from tests.spark.directories import START, DirectoryBuilder

LENGTHS = {"second": 1_000_000, "minute": 60_000_000, "hour": 3_600_000_000, "day": 86_400_000_000}
#: The years 1 and 10,000.
FIRST, END = -62_135_596_800_000_000, 253_402_300_800_000_000


def boundaries() -> list[int]:
    """Times next to the begin of a second, minute, hour or day, in all years and in those of today."""
    chance = random.Random(7)
    found = [FIRST, FIRST + 1, -1, 0, 1, END - 1]
    for length in LENGTHS.values():
        for first, end in ((FIRST // length + 1, END // length), (0, 4_000_000_000_000_000 // length)):
            begins = [chance.randrange(first, end) * length for _ in range(200)]
            found += [begin + at for begin in begins for at in (-1, 0, 1)]
    return found


@pytest.mark.spark
def test_spans_of_time(spark: SparkSession) -> None:
    times = boundaries()
    frame = spark.createDataFrame([(each,) for each in times], "us bigint").withColumn("at", f.timestamp_micros("us"))
    grains = ("minute", "hour", "day")
    starts = [f.unix_micros(JobOptions("/data", grain=grain).span("at")).alias(grain) for grain in grains]
    counts = [whole_spans(f.col("us"), length).alias(f"n_{name}") for name, length in LENGTHS.items()]
    for row in frame.select("us", *starts, *counts).toArrow().to_pylist():
        assert {grain: row[grain] for grain in grains} == {
            grain: row["us"] // LENGTHS[grain] * LENGTHS[grain] for grain in grains
        }
        assert {name: row[f"n_{name}"] for name in LENGTHS} == {name: row["us"] // LENGTHS[name] for name in LENGTHS}


def test_times_of_python() -> None:
    for each in boundaries():
        assert microseconds(utc_time(each)) == each
        text = utc_time(each).isoformat()
        assert microseconds(datetime.fromisoformat(text)) == each


@pytest.mark.parametrize("step", [1, 999, 1000, 1001, 59_999_999])
def test_waits_and_expiry(tmp_path: Path, step: int) -> None:
    builder = DirectoryBuilder(tmp_path)
    store = builder.store(builder.queue("q"))
    expires = [START + 5_000_000 + each for each in (-1, 0, 1, 999, 1000)]
    for each in expires:
        builder.publish(store, [b"m"], expires=each)
    builder.tick()
    rows = leveret.scan(builder.path, columns=["seq", "enqueued_at", "expires_at"]).read_all().to_pylist()
    arrived = {row["seq"]: microseconds(row["enqueued_at"]) for row in rows}
    assert [microseconds(row["expires_at"]) for row in rows] == expires
    builder.clock.time = arrived[1] + step - 10
    builder.settle(store, 1, EventKind.EXPIRED)
    builder.tick()
    (event,) = leveret.scan(builder.path, "events").read_all().to_pylist()
    assert event["wait_ms"] == (microseconds(event["at"]) - arrived[1]) // 1000
    assert datetime.fromtimestamp(START // 1_000_000, UTC) < event["at"]
    builder.close()
