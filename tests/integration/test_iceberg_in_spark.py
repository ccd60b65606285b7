"""Spark reads what comes to an Iceberg table, while files are put together and old rows removed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from leveret.analytics.archive.archive_files import ArchiveFiles
from tests.spark.directories import START, DirectoryBuilder
from tests.support.documentation import ROOT
from tests.support.iceberg import archive_into, keys_of_archive, table_in, tables_of
from tests.torture.iceberg_tables import make_environment

_STREAM = """
import json, sys
from pyspark.sql import SparkSession
jar, warehouse, at, options = sys.argv[1:]
lake = "spark.sql.catalog.lake"
spark = (
    SparkSession.builder.master("local[1]").config("spark.jars", jar).config("spark.ui.enabled", "false")
    .config(lake, "org.apache.iceberg.spark.SparkCatalog").config(f"{lake}.type", "hadoop")
    .config(f"{lake}.warehouse", warehouse).getOrCreate()
)
read = spark.readStream.format("iceberg").options(**json.loads(options)).load("lake.leveret.messages")
found = []
take = lambda rows, number: found.extend(row[0] for row in rows.selectExpr("cast(body as string)").collect())
writing = read.writeStream.foreachBatch(take).option("checkpointLocation", at).trigger(availableNow=True)
writing.start().awaitTermination()
print(json.dumps(found))
"""


def stream(archive: str, checkpoint: Path, options: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Read what has come since the last call with the checkpoint."""
    environment = ROOT / "build" / "iceberg-spark"
    make_environment(environment)
    (jar,) = environment.glob("*.jar")
    packages = environment / "packages"
    return subprocess.run(
        [sys.executable, "-c", _STREAM, str(jar), f"{archive}/iceberg", str(checkpoint), json.dumps(options)],
        env={**os.environ, "PYTHONPATH": str(packages), "SPARK_HOME": str(packages / "pyspark")},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_spark_reads_each_new_row_once(tmp_path: Path) -> None:
    builder = DirectoryBuilder(tmp_path / "data", start=START)
    store, files = builder.store(builder.queue("orders")), ArchiveFiles(str(tmp_path / "archive"))
    keep = 4 * 86_400_000_000

    def publish(number: int, **changes: Any) -> None:
        builder.publish(store, [b"%d" % number])
        builder.tick()
        archive_into(builder, files, tables_of(files, "archive"), **changes)

    def read(options: dict[str, str]) -> Counter[int]:
        done = stream(files.url, tmp_path / "checkpoint", options)
        assert done.returncode == 0, done.stderr
        return Counter(json.loads(done.stdout.splitlines()[-1]))

    skips = {"streaming-skip-overwrite-snapshots": "true"}
    try:
        publish(0)
        publish(1)
        assert keys_of_archive(files.url).total() == 2
        assert read(skips) == Counter(["0", "1"])
        # The files of a day that is over are put together.
        builder.wait(2 * 86_400)
        publish(2)
        publish(3)
        builder.wait(3 * 86_400)
        # The first day is too old.
        publish(4, keep=keep)
        summaries = [each.summary for each in table_in("archive", files).metadata.snapshots]
        assert sum(1 for each in summaries if each is not None and each.operation.value == "overwrite") >= 2
        assert keys_of_archive(files.url).total() == 3
        assert "streaming-skip-overwrite-snapshots" in stream(files.url, tmp_path / "checkpoint", {}).stderr
        assert read(skips) == Counter(["2", "3", "4"])
    finally:
        builder.close()
