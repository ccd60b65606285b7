"""Consumers race the archiver, and broker and archiver are killed: the archive has every message once."""

from __future__ import annotations

import os
import random
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pyarrow.parquet as pq
import pytest

from leveret.storage.analytics.archive.archive_files import ArchiveFiles
from leveret.storage.analytics.archive.manifest_log import read_manifests, store_ids
from tests.crash.racing_clients import RacingClients, metrics_of, wait_until
from tests.support.archived import data_files
from tests.support.archiver_process import ArchiverProcess
from tests.support.leveret_process import LeveretProcess

#: A longer run: ARCHIVE_SECONDS=600.
SECONDS: Final = float(os.environ.get("ARCHIVE_SECONDS", "0"))
#: Minimum number of times that the broker is killed; the archiver is killed more often.
KILLS: Final = 2
_QUEUES: Final = ("q/1", "q=2", "q 3")

pytestmark = pytest.mark.timeout(600 + 6 * SECONDS)


def _rows(archive: Path) -> Counter[str]:
    """Queue and body of what is in the archive."""
    files, found = ArchiveFiles(str(archive)), Counter[str]()
    for each in data_files(files, "messages"):
        with files.open(each.path) as file:
            table = pq.read_table(file, columns=["queue", "body"])
        pairs = zip(table["queue"].to_pylist(), table["body"].to_pylist(), strict=True)
        found.update(f"{queue} {body.decode()}" for queue, body in pairs)
    return found


def _missed(archive: Path) -> object:
    """What the newest manifest counts as missed."""
    files = ArchiveFiles(str(archive))
    last = read_manifests(files, store_ids(files)[0]).last
    return last.position["messages"].get("missed", {}) if last is not None else None


def _let_work(archiver: ArchiverProcess, rng: random.Random, seconds: float) -> None:
    """Let some seconds pass, in which the archiver is killed at any moments."""
    deadline = time.monotonic() + seconds
    while (left := deadline - time.monotonic()) > 0:
        time.sleep(min(left, rng.uniform(0.3, 2.5)))
        archiver.kill()
        archiver.start()


def test_an_archive_has_every_message_once_over_kills(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    rng, archive = random.Random(7), tmp_path / "archive"
    clients = RacingClients(_QUEUES)
    deadline, rounds = time.monotonic() + SECONDS, 0
    with LeveretProcess(tmp_path, settings={"storage.segment_size": 65_536}) as broker:
        wait_until(lambda: any((broker.data_dir / "ckpt").iterdir()))
        archiver = ArchiverProcess(broker.data_dir, archive)
        try:
            wait_until((broker.data_dir / "readers" / "archive").exists)
            # The broker looks once a second.
            wait_until(lambda: "leveret_readers 1.0" in metrics_of(broker))
            while True:
                rounds += 1
                is_last = rounds > KILLS and time.monotonic() >= deadline
                with clients.round(broker, is_last):
                    _let_work(archiver, rng, rng.uniform(2, 5))
                if is_last:
                    break
                broker.start()
            wait_until(lambda: clients.confirmed <= _rows(archive).keys())
        finally:
            archiver.close()
    rows = _rows(archive)
    numbers = f"{rounds - 1} kills of the broker, {archiver.kills} of the archiver, {len(clients.confirmed)} confirmed"
    record_property("ledger", f"{numbers}, {len(clients.sent)} sent, {rows.total()} in the archive")
    assert max(rows.values()) == 1
    assert set(rows) <= clients.sent
    assert _missed(archive) == {}
