"""A broker that is killed again and again under load: what it has promised holds."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import pytest

from tests.crash.broker_load import Client, Kind, compare
from tests.support.leveret_process import LeveretProcess
from tests.support.management import Management
from tests.support.transport import ConnectionDropped

LAZY = ("x-queue-mode", "S", "lazy")
_PATIENCE = 180.0
#: Maximum number of messages in a queue at the start of a round.
_BACKLOG = 400


def make_clients(seed: int) -> list[Client]:
    """Clients that between them use queues of every kind."""
    quorum = [("x-queue-type", "S", "quorum"), ("x-delivery-limit", "l", 1_000_000)]
    return [
        Client([Kind("default"), Kind("lazy", [LAZY])], "letters-0", seed),
        Client([Kind("switched", switched=True), Kind("quorum", quorum, quorum=True)], "letters-1", seed + 1, [LAZY]),
        Client(
            [
                Kind("priority", [("x-max-priority", "I", 3)], levels=4, switched=True),
                Kind("lazy-priority", [("x-max-priority", "I", 2), LAZY], levels=3),
            ],
            "letters-2",
            seed + 2,
        ),
    ]


class Round:
    """All clients at work in threads, until the broker dies.

    Args:
        clients: connected.
    """

    def __init__(self, clients: Sequence[Client]) -> None:
        self._clients = clients
        self._things = threading.Semaphore(0)
        self._killed = threading.Event()
        self._failures: list[BaseException] = []
        self._threads = [threading.Thread(target=self._work, args=[client]) for client in clients]
        for thread in self._threads:
            thread.start()

    def kill(self, process: LeveretProcess, after: int) -> None:
        """Kill the broker after this many actions of the clients; raise the error of a client that failed."""
        try:
            for _ in range(after):
                if not self._things.acquire(timeout=_PATIENCE) or self._failures:
                    break
        finally:
            self._killed.set()
            process.kill()
            for thread in self._threads:
                thread.join(_PATIENCE)
            for client in self._clients:
                client.disconnect()
        for failure in self._failures:
            raise failure

    def _work(self, client: Client) -> None:
        try:
            while not self._killed.is_set():
                client.work()
                self._things.release()
        except (ConnectionDropped, OSError) as error:
            # Until then the broker has no reason to drop a connection.
            if not self._killed.is_set():
                self._failures.append(error)
        except BaseException as error:  # noqa: BLE001 - raised by kill()
            self._failures.append(error)
        finally:
            # One that fails early must not be waited for.
            self._things.release()


def start(process: LeveretProcess, rng: random.Random) -> None:
    """Start the broker; sometimes only after it has been killed while it recovered, or right after that."""

    def kill() -> None:
        with suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGKILL)

    if rng.random() < 0.2:
        timer = threading.Timer(rng.uniform(0.2, 1.0), kill)
        timer.start()
        with suppress(RuntimeError):
            process.start()
        timer.join()
        process.kill()
    process.start()


def test_what_was_promised_holds(tmp_path: Path, kill_rounds: int, kill_seed: int) -> None:
    rng = random.Random(kill_seed)
    clients = make_clients(kill_seed)
    started, found = time.monotonic(), 0
    settings = {"storage.segment_size": 65_536, "log_level": "warning"}
    with LeveretProcess(tmp_path, settings=settings) as process:
        for done in range(kill_rounds):
            for client in clients:
                client.connect(process.url, Management(process.http_url))
            try:
                Round(clients).kill(process, rng.randrange(5, 300))
                start(process, rng)
                found += compare(process.url, clients, rng, _BACKLOG)
            except Exception as error:
                error.add_note(f"in round {done + 1} with --kill-seed {kill_seed}\n{process.log_text()[-3000:]}")
                raise
        # A write that the kill has cut short does not count as damage.
        warnings = [line for line in process.log_text().splitlines() if "a write that was cut short" not in line]
        assert not warnings
    counts: Counter[str] = sum((Counter(client.counts) for client in clients), Counter())
    took = time.monotonic() - started
    print(f"seed {kill_seed}: {kill_rounds} rounds in {took:.0f} s, {found} messages found, {dict(counts)}")  # noqa: T201
    assert counts["confirmed"], pytest.fail("the load has published nothing")
