"""Consumers race a query with a named reader, and broker and query are killed: it gets every message once."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from tests.crash.racing_clients import RacingClients, metrics_of, wait_until
from tests.support.leveret_process import LeveretProcess

#: A longer run: READER_SECONDS=600.
SECONDS: Final = float(os.environ.get("READER_SECONDS", "0"))
#: Minimum number of times that the broker is killed.
KILLS: Final = 2
_QUEUES: Final = ("q1", "q2", "q3")
_ROOT: Final = Path(__file__).parents[2]

pytestmark = pytest.mark.timeout(600 + 6 * SECONDS)


class _Query:
    """The process of tests.crash.reading_query, which can be killed."""

    def __init__(self, directory: Path, output: Path) -> None:
        output.mkdir()
        self._command = [sys.executable, "-m", "tests.crash.reading_query", str(directory), str(output), "lake"]
        self._output = output
        self._log = (output.parent / "query.log").open("wb")
        self.start()

    def start(self) -> None:
        environment = {**os.environ, "PYTHONPATH": str(_ROOT)}
        self._process = subprocess.Popen(self._command, cwd=_ROOT, env=environment, stderr=self._log)

    def kill(self) -> None:
        assert self._process.poll() is None, (self._output.parent / "query.log").read_text()
        self._process.kill()
        self._process.wait()

    def rows(self) -> list[str]:
        paths = sorted(self._output.glob("rows-*[0-9]"))
        return [row for path in paths for row in json.loads(path.read_bytes())]

    def missed(self) -> dict[str, dict[str, int]]:
        newest = max(self._output.glob("offset-*[0-9]"), key=lambda path: int(path.name.partition("-")[2]))
        missed: dict[str, dict[str, int]] = json.loads(newest.read_bytes()).get("missed", {})
        return missed

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        self._log.close()


def test_a_named_reader_gets_every_message_once_over_kills(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    rng = random.Random(5)
    settings = {"storage.segment_size": 65_536}
    clients = RacingClients(_QUEUES)
    deadline, rounds = time.monotonic() + SECONDS, 0
    with LeveretProcess(tmp_path, settings=settings) as broker:
        wait_until(lambda: any((broker.data_dir / "ckpt").iterdir()))
        query = _Query(broker.data_dir, tmp_path / "output")
        try:
            wait_until((broker.data_dir / "readers" / "lake").exists)
            # The broker looks once a second.
            wait_until(lambda: "leveret_readers 1.0" in metrics_of(broker))
            while True:
                rounds += 1
                is_last = rounds > KILLS and time.monotonic() >= deadline
                with clients.round(broker, is_last):
                    time.sleep(rng.uniform(1, 3))
                    if rounds % 2:
                        query.kill()
                        query.start()
                if is_last:
                    break
                broker.start()
            wait_until(lambda: clients.confirmed <= set(query.rows()))
        finally:
            query.close()
    rows = Counter(query.rows())
    record_property(
        "ledger",
        f"{rounds - 1} kills, {len(clients.confirmed)} confirmed, {len(clients.sent)} sent, {rows.total()} read",
    )
    assert max(rows.values()) == 1
    assert set(rows) <= clients.sent
    assert query.missed() == {}
