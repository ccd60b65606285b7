from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.spark.directories import DirectoryBuilder

ROOT = Path(__file__).parents[2]
KILLS = int(os.environ.get("STREAM_KILLS", "1"))

# Each start of Spark takes a while where there is little processor to be had.
pytestmark = [pytest.mark.spark, pytest.mark.timeout(1800 + 1200 * KILLS)]


def start(directory: Path, output: Path, records: int, *more: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "tests.spark.streaming_query", str(directory), str(output), str(records), *more]
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable, "PYTHONPATH": str(ROOT)}
    # A group of its own, so that Java and the workers go with it.
    return subprocess.Popen(command, cwd=ROOT, env=environment, start_new_session=True, stderr=subprocess.DEVNULL)


def wait_for(condition: Callable[[], bool], process: subprocess.Popen[bytes], work: Callable[[], None]) -> None:
    deadline = time.monotonic() + 1200
    while not condition():
        assert process.poll() is None
        assert time.monotonic() < deadline
        work()
        time.sleep(0.02)


def test_a_query_that_is_killed_goes_on_where_it_was(spark: SparkSession, tmp_path: Path) -> None:
    builder = DirectoryBuilder(tmp_path / "data")
    stores = {name: builder.store(builder.queue(name)) for name in ("a", "b")}
    attributes = {"vhost": "/", "name": "log", "persists_transient": True, "stream_segment_bytes": 4000}
    stores["log"] = builder.store(builder.engine.create_queue(True, attributes))
    output = tmp_path / "output"
    rng = random.Random(1)
    published: list[tuple[str, int]] = []

    def batches(kind: str) -> int:
        folder = output / "_checkpoint" / kind
        return sum(name.name.isdigit() for name in folder.iterdir()) if folder.is_dir() else 0

    def work() -> None:
        """Publish, and consume what the query may or may not have seen: its segments go to the trash."""
        if len(published) > 400 * (2 + batches("commits")):
            return
        for name, store in stores.items():
            first, count = store.next_seq, rng.randrange(20)
            builder.publish(store, [b"%d" % number for number in range(count)])
            published.extend((name, seq) for seq in range(first, first + count))
            if name != "log":
                builder.settle(store, rng.randrange(20))
        builder.tick()

    work()
    for _ in range(KILLS):
        before = batches("offsets")
        process = start(tmp_path / "data", output, 300)
        try:
            wait_for(lambda before=before: batches("offsets") >= before + 2, process, work)  # type: ignore[misc]
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        work()
    last = start(tmp_path / "data", output, 300, "once")
    assert last.wait(timeout=1200) == 0
    rows = spark.read.parquet(str(output)).select("queue", "seq").collect()
    assert sorted((row.queue, row.seq) for row in rows) == sorted(published)
    # The checkpoint has the stream's offsets.
    positions = output / "_checkpoint" / "offsets"
    newest = max((each for each in positions.iterdir() if each.name.isdigit()), key=lambda each: int(each.name))
    assert json.loads(newest.read_text().splitlines()[-1])["offsets"] == {"/": {"log": stores["log"].next_seq - 1}}
