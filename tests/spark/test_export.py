"""What the job `export` writes, as Spark and other programs read it."""

from __future__ import annotations

import fcntl
import os
import shutil
from datetime import date
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from leveret.analytics.errors import AnalyticsError, OptionError
from leveret.analytics.jobs import export
from leveret.analytics.jobs.job_options import JobOptions
from leveret.analytics.results.result_output import rows_of
from tests.spark.directories import DirectoryBuilder

#: Names that paths do not have as they are, or that readers take for something else in a path.
NAMES = (
    "a/b",
    "k=v",
    "50%",
    "%2F",
    "007",
    "7",
    "1.0",
    "1e5",
    "2023-11-14",
    "true",
    "null",
    " blank ",
    ".",
    "..",
    "two\nlines",
    "ü:*?<>|",
    "#~[]{}^\\'\"",
    "__HIVE_DEFAULT_PARTITION__",
    "/" * 255,
    "x" * 255,
    "é" * 127,
)
VHOSTS = ("/", "", "12", "a=b/c")


def parquet_files(lake: Path) -> list[Path]:
    return sorted(lake.glob("vhost_dir=*/**/*.parquet"))


@pytest.mark.spark
def test_all_names_come_back(spark: SparkSession, tmp_path: Path) -> None:
    builder = DirectoryBuilder(tmp_path / "data")
    expected = {(vhost, name) for vhost in VHOSTS for name in NAMES}
    for vhost, name in sorted(expected):
        builder.publish(builder.store(builder.queue(name, vhost)), [b"m"])
    builder.tick()
    lake = tmp_path / "lake"
    rows = rows_of(export.run(spark, JobOptions(builder.path, output=str(lake)))["export"])
    day = date(2023, 11, 14)
    assert [(row["vhost"], row["queue"], row["date"], row["messages"]) for row in rows] == [
        (*name, day, 1) for name in sorted(expected, key=lambda name: (name[0].encode(), name[1].encode()))
    ]
    frame = spark.read.parquet(str(lake))
    assert frame.schema["date"].dataType.simpleString() == "date"
    read = {(row.vhost, row.queue, row.date) for row in frame.select("vhost", "queue", "date").collect()}
    assert read == {(*name, day) for name in expected}
    table = ds.dataset(lake, format="parquet").to_table(columns=["vhost", "queue"])
    assert {(row["vhost"], row["queue"]) for row in table.to_pylist()} == expected
    dates = ds.partitioning(
        pa.schema([("vhost_dir", pa.string()), ("queue_dir", pa.string()), ("date", pa.date32())]), flavor="hive"
    )
    days = ds.dataset(lake, format="parquet", partitioning=dates).to_table(columns=["date"])
    assert set(days["date"].to_pylist()) == {day}
    assert all(pq.read_metadata(path).num_rows for path in parquet_files(lake))
    # Times are in UTC, with statistics.
    file = pq.read_metadata(parquet_files(lake)[0])
    assert file.schema.to_arrow_schema().field("enqueued_at").type.tz == "UTC"
    column = file.schema.names.index("enqueued_at")
    assert file.row_group(0).column(column).statistics.has_min_max


@pytest.mark.spark
def test_what_an_interrupted_export_has_left_is_removed(spark: SparkSession, tmp_path: Path) -> None:
    builder = DirectoryBuilder(tmp_path / "data")
    store = builder.store(builder.queue("q"))
    lake = tmp_path / "lake"
    options = JobOptions(builder.path, output=str(lake), values={"max_records": "5"})
    builder.publish(store, [b"m"] * 60)
    builder.tick()
    export.run(spark, options)
    (first, *_) = whole = parquet_files(lake)
    (first.parent / "part-00000-0.c000.snappy.parquet").touch()
    shutil.copyfile(first, first.parent / "part-00001-0.c000.snappy.parquet")
    # Of somebody else.
    (first.parent / "notes.txt").touch()
    builder.publish(store, [b"m"] * 3)
    builder.tick()
    rows = rows_of(export.run(spark, options)["export"])
    assert [row["messages"] for row in rows] == [63]
    there = parquet_files(lake)
    assert set(there) > set(whole)
    assert sum(pq.read_metadata(path).num_rows for path in there) == 63
    assert (first.parent / "notes.txt").exists()


@pytest.mark.spark
def test_one_export_at_a_time(spark: SparkSession, tmp_path: Path) -> None:
    builder = DirectoryBuilder(tmp_path / "data")
    builder.tick()
    (tmp_path / "lake").mkdir()
    handle = os.open(tmp_path / "lake", os.O_RDONLY)
    options = JobOptions(builder.path, output=str(tmp_path / "lake"))
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        with pytest.raises(AnalyticsError, match=r"another export writes to .*lake; wait"):
            export.run(spark, options)
    finally:
        os.close(handle)
    assert rows_of(export.run(spark, options)["export"]) == [], "there are no messages yet"


def test_another_layout_is_refused(tmp_path: Path) -> None:
    (tmp_path / "vhost=%2F").mkdir()
    with pytest.raises(OptionError, match="vhost=%2F is of an export with another layout"):
        export._check_layout(str(tmp_path))
