"""A broker that is killed again and again under load: what it has promised holds."""

from __future__ import annotations

import random
import time
from collections import Counter
from pathlib import Path

import pytest

from tests.crash.broker_load import make_clients
from tests.crash.comparison import compare
from tests.crash.rounds import Round, start
from tests.support.leveret_process import LeveretProcess
from tests.support.management import Management

#: Maximum number of messages in a queue at the start of a round.
_BACKLOG = 400
#: A write that the kill has cut short does not count as damage. What bounded queues drop, which a long round logs, is
#: compared message by message.
_EXPECTED = "a write that was cut short", "leveret.losses:"


def test_what_was_promised_holds(tmp_path: Path, kill_rounds: int, kill_seed: int) -> None:
    rng = random.Random(kill_seed)
    clients = make_clients(kill_seed)
    started, found = time.monotonic(), Counter[str]()
    settings = {"storage.segment_size": 65_536, "log_level": "warning"}
    with LeveretProcess(tmp_path, settings=settings) as process:
        for done in range(kill_rounds):
            for client in clients:
                client.connect(process.url, Management(process.http_url))
            try:
                load = Round(clients)
                load.wait(rng.randrange(5, 300))
                load.end(process.kill)
                start(process, rng)
                found += compare(process.url, clients, rng, _BACKLOG)
            except Exception as error:
                error.add_note(f"in round {done + 1} with --kill-seed {kill_seed}\n{process.log_text()[-3000:]}")
                raise
        warnings = [line for line in process.log_text().splitlines() if not any(text in line for text in _EXPECTED)]
        assert not warnings
    counts: Counter[str] = sum((Counter(client.counts) for client in clients), Counter())
    took = time.monotonic() - started
    print(f"seed {kill_seed}: {kill_rounds} rounds in {took:.0f} s, {dict(found + counts)}")  # noqa: T201
    assert counts["confirmed"], pytest.fail("the load has published nothing")
