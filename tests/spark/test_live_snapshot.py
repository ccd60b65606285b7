from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from leveret.analytics.options import parse_options
from leveret.analytics.spark.readers import LeveretReader
from leveret.analytics.tables.partitions import MessagesPartition
from leveret.analytics.tables.table_query import make_query
from leveret.storage.snapshots.lease import SnapshotLease
from tests.spark.live_writer import QUEUES, body_of
from tests.support.plain_reader import Reader, open_reader

ROOT = Path(__file__).parents[2]
ROUNDS = int(os.environ.get("SNAPSHOT_ROUNDS", "25"))
#: Seconds, far more than the rounds should take.
SECONDS = 30.0 * max(1, ROUNDS // 25)


class Writer:
    """A live writer and what it has said so far."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.lines: list[dict[str, Any]] = []
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(json.loads(line))

    @property
    def running(self) -> bool:
        return self.process.poll() is None

    def stop(self) -> None:
        self.process.send_signal(signal.SIGINT)
        self.join()

    def join(self) -> None:
        self._thread.join()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()

    def model_at(self, cut: int) -> dict[str, list[int]]:
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline:
            for line in self.lines:
                if line["until"] >= cut:
                    found: dict[str, list[int]] = line["queues"]
                    return found
            time.sleep(0.001)
        raise AssertionError(f"nothing is known of {cut}")


@contextmanager
def live_writer(path: Path, seconds: float, seed: int = 1) -> Iterator[Writer]:
    command = [sys.executable, "-m", "tests.spark.live_writer", str(path), str(seed), str(seconds)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT)
    writer = Writer(process)
    try:
        deadline = time.monotonic() + 180
        while not writer.lines and time.monotonic() < deadline:
            time.sleep(0.01)
        assert writer.lines
        yield writer
    finally:
        process.kill()
        writer.join()


def shown(reader: Reader) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for queue in reader.queues:
        seqs, sizes = [], 0
        for message in reader.messages(queue):
            assert message.body == body_of(message.seq)
            seqs.append(message.seq)
            sizes += len(message.body)
        assert len(seqs) == len(set(seqs))
        found[queue.name] = [len(seqs), sum(seqs), sizes]
    return found


def shown_in_bulk(path: str) -> tuple[dict[str, list[int]], int]:
    """As a Spark task reads it."""
    reader = LeveretReader(make_query(parse_options({"path": path}), None, ["queue", "seq", "body_bytes", "body"]))
    found = {name: [0, 0, 0] for name in QUEUES}
    cut, lease = 0, ""
    for partition in reader.partitions():
        (part,) = partition.value.parts
        assert isinstance(part, MessagesPartition)
        cut, lease = part.place.cut, part.place.lease
        for batch in reader.read(partition):
            rows = batch.to_pylist()
            seqs = [row["seq"] for row in rows]
            sums = found[rows[0]["queue"]]
            sums[:] = [sums[0] + len(seqs), sums[1] + sum(seqs), sums[2] + sum(row["body_bytes"] for row in rows)]
            assert all(row["body"] == body_of(row["seq"]) for row in rows)
    SnapshotLease(lease).release()
    return found, cut


def test_what_a_reader_counts_is_what_was_there_at_the_tick(tmp_path: Path) -> None:
    cuts: set[int] = set()
    with live_writer(tmp_path, SECONDS) as writer:
        rounds = 0
        while writer.running and rounds < ROUNDS:
            if rounds % 2:
                found, cut = shown_in_bulk(str(tmp_path))
            else:
                with open_reader(str(tmp_path)) as reader:
                    found, cut = shown(reader), reader.snapshot.cut.time
            assert found == writer.model_at(cut)
            cuts.add(cut)
            rounds += 1
        assert rounds == ROUNDS
        writer.stop()
        # Stopped in order: the last word.
        with open_reader(str(tmp_path)) as reader:
            assert shown(reader) == writer.lines[-1]["queues"]
    assert len(cuts) >= 5
    assert list((tmp_path / "snap").iterdir()) == []
