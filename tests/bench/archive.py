"""`python -m tests.bench.archive`: measures what an archiver costs, kills it often, and compares its archive."""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

import leveret
from leveret.analytics.archive.archive_files import ArchiveFiles
from tests.bench.__main__ import execute, positive_int
from tests.bench.accounting import ProcessAccount
from tests.bench.in_flight import BenchError
from tests.bench.scan import fill, wait_for
from tests.support.archived import data_files
from tests.support.archiver_process import ArchiverProcess
from tests.support.leveret_process import LeveretProcess

#: Seconds between two copies.
_INTERVAL: Final = 5.0
_KEY: Final = ["queue_id", "store_priority", "seq"]
_Keys: TypeAlias = npt.NDArray[np.int64]
_EPILOG: Final = f"""A new broker gets persistent messages of 200 bytes in ten lazy queues, once without an archiver,
and once while one copies them every {_INTERVAL:g} seconds into a directory. It is killed at any moment, as often as
asked for. At last the keys of all rows of the archive are compared with those in the files of the broker. Data are in
the directory for temporary files (TMPDIR), twice 0.3 kB for a message."""


@dataclass(frozen=True)
class Publishing:
    """What publishing cost."""

    per_second: float
    server_cpu_us: float


@dataclass(frozen=True)
class Archiving:
    """What the archiver did."""

    kills: int
    cpu_us: float
    behind_seconds: float
    rows: int
    missing: int
    double: int
    archive_bytes: int


class _Killer:
    """Kills an archiver at random moments in a thread of its own, and starts it again."""

    def __init__(self, archiver: ArchiverProcess, kills: int, pause: float, seed: int) -> None:
        self._archiver, self._kills, self._pause = archiver, kills, pause
        self._random = random.Random(seed)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.cpu_seconds = 0.0
        self._thread.start()

    def _run(self) -> None:
        for _ in range(self._kills):
            time.sleep(self._random.uniform(0.5, 1.5) * self._pause)
            self.cpu_seconds += ProcessAccount(self._archiver.pid).cpu_seconds()
            self._archiver.kill()
            self._archiver.start()

    def join(self) -> None:
        """Wait until it was killed for the last time."""
        self._thread.join()


def main(argv: Sequence[str] | None = None) -> int:
    """Run it."""
    options = _parser().parse_args(argv)
    try:
        alone = _publish_alone(options.messages)
        beside, found = _archive(options.messages, options.kills, options.messages / alone.per_second, options.seed)
    except (BenchError, OSError) as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    if options.json:
        print(json.dumps({"alone": asdict(alone), "beside": asdict(beside), "archiver": asdict(found)}, indent=2))
    else:
        print(table(alone, beside, found))
    return 1 if found.missing or found.double else 0


def _publish_alone(messages: int) -> Publishing:
    with _broker() as (broker, _):
        print("publishing without an archiver", file=sys.stderr, flush=True)
        return _publish(broker, messages)


def _archive(messages: int, kills: int, seconds: float, seed: int) -> tuple[Publishing, Archiving]:
    """Publish while the archiver runs; the seconds are what publishing is expected to take."""
    with _broker() as (broker, directory):
        archiver = ArchiverProcess(broker.data_dir, directory / "archive", _INTERVAL)
        try:
            wait_for("the reader of the archive", (broker.data_dir / "readers" / "archive").exists)
            print(f"publishing with an archiver that is killed {kills} times", file=sys.stderr, flush=True)
            killer = _Killer(archiver, kills, max(2.0, seconds / max(1, kills)), seed)
            published = _publish(broker, messages)
            ended = time.monotonic()
            killer.join()
            files = ArchiveFiles(str(directory / "archive"))
            wait_for(f"{messages} rows in the archive", lambda: _archived_rows(files) >= messages)
            behind = time.monotonic() - ended
            cpu = killer.cpu_seconds + ProcessAccount(archiver.pid).cpu_seconds()
        finally:
            archiver.close()
        rows, there = _archived_keys(files), _live_keys(str(broker.data_dir))
        distinct = np.unique(rows)
        size = sum(each.bytes for each in data_files(files, "messages"))
        missing = len(np.setdiff1d(there, distinct, assume_unique=True))
        found = Archiving(kills, cpu / messages * 1e6, behind, len(rows), missing, len(rows) - len(distinct), size)
        return published, found


@contextmanager
def _broker() -> Iterator[tuple[LeveretProcess, Path]]:
    with tempfile.TemporaryDirectory(prefix="bench-archive-") as name, LeveretProcess(Path(name)) as broker:
        yield broker, Path(name)


def _publish(broker: LeveretProcess, messages: int) -> Publishing:
    account = ProcessAccount(broker.pid)
    cpu, began = account.cpu_seconds(), time.monotonic()
    fill(broker.url, messages)
    seconds = time.monotonic() - began
    return Publishing(messages / seconds, (account.cpu_seconds() - cpu) / messages * 1e6)


def _archived_rows(files: ArchiveFiles) -> int:
    return sum(each.rows for each in data_files(files, "messages"))


def _archived_keys(files: ArchiveFiles) -> _Keys:
    """Return a number for the key of each row of the archive, as its files have it."""
    found = []
    for each in data_files(files, "messages"):
        with files.open(each.path) as file:
            found.append(_numbers(pq.read_table(file, columns=_KEY)))
    return np.concatenate(found)


def _live_keys(data_dir: str) -> _Keys:
    """Return a number for the key of each message in the files of the broker."""
    return _numbers(leveret.scan(data_dir, columns=_KEY).read_all())


def _numbers(table: pa.Table) -> _Keys:
    queue, priority, seq = (table[name].to_numpy().astype(np.int64) for name in _KEY)
    numbers: _Keys = (queue << 52) | (priority << 44) | seq
    return numbers


def table(alone: Publishing, beside: Publishing, archiver: Archiving) -> str:
    """Return the figures as text."""
    lines = ["publishing            messages/s  server µs/msg"]
    for name, each in (("without an archiver", alone), ("with an archiver", beside)):
        lines.append(f"{name:20}  {each.per_second:10,.0f}  {each.server_cpu_us:13,.2f}")
    lines.append(
        f"archiver: killed {archiver.kills} times, {archiver.cpu_us:,.2f} CPU µs/msg, complete "
        f"{archiver.behind_seconds:,.1f} s after the last confirm; {archiver.rows:,} rows in "
        f"{archiver.archive_bytes / 1e6:,.0f} MB, {archiver.missing} missing, {archiver.double} double"
    )
    return "\n".join(lines)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.archive", description=__doc__, epilog=_EPILOG)
    parser.add_argument(
        "--messages", type=positive_int, default=5_000_000, metavar="N", help="in all queues (default: 5000000)"
    )
    parser.add_argument("--kills", type=int, default=20, metavar="N", help="of the archiver (default: 20)")
    parser.add_argument("--seed", type=int, default=1, help="of the moments of the kills (default: 1)")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    return parser


if __name__ == "__main__":
    execute(main)
