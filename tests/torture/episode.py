"""A broker from its first start through the steps of a history."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from tests.crash.broker_load import Client, make_clients
from tests.crash.comparison import End, compare
from tests.crash.delayed_client import DelayedClient
from tests.crash.rounds import Round, kill_while_starting
from tests.crash.stream_client import StreamClient
from tests.support.leveret_process import LeveretProcess
from tests.support.management import Management
from tests.torture.damaged_copy import start_on_damaged_copy
from tests.torture.disturbances import DISTURBANCES, Scene
from tests.torture.history import Step
from tests.torture.preloaded_disk import Call, PreloadedDisk

#: Maximum number of messages in a queue at the start of a round.
_BACKLOG: Final = 400
_SETTINGS: Final = {"storage.segment_size": 65_536, "log_level": "warning", "disk_free_limit.absolute": 1_000_000}


class FailedStep(Exception):
    """A promise was broken."""

    def __init__(self, history: Sequence[Step], error: BaseException, log: str) -> None:
        super().__init__(f"{type(error).__name__}: {error}")
        self.history = history
        self.log = log


class Episode:
    """A broker, its clients, and what was found."""

    def __init__(self, directory: Path, library: Path | None, seed: int, settings: Mapping[str, str]) -> None:
        data = directory.resolve() / "data"
        data.mkdir(mode=0o750)
        self._disk = PreloadedDisk(library, data, directory) if library is not None else None
        self._clients = make_clients(seed)
        self._stream = StreamClient(seed)
        self._delayed = DelayedClient(seed)
        self.counts: Counter[str] = Counter()
        environment = {} if self._disk is None else self._disk.environment
        before_kill = None if self._disk is None else self._disk.stop_between_calls
        self._process = LeveretProcess(
            directory.resolve(), settings={**_SETTINGS, **settings}, environment=environment, before_kill=before_kill
        )

    def run(self, history: Sequence[Step], deadline: float) -> None:
        """Do the steps until time.monotonic() has reached the deadline."""
        for done, step in enumerate(history, 1):
            if time.monotonic() > deadline:
                break
            try:
                self._do(step)
            except Exception as error:
                raise FailedStep(history[:done], error, self._process.log_text()[-4000:]) from error

    def close(self) -> None:
        """End the broker, and add what the clients have counted."""
        self._process.kill()
        for client in self._everybody():
            self.counts.update(client.counts)

    def _everybody(self) -> list[Client | StreamClient | DelayedClient]:
        return [*self._clients, self._stream, self._delayed]

    def _do(self, step: Step) -> None:
        rng = random.Random(step.seed)
        logged = len(self._process.log_text())
        self._load(step, rng)
        if step.end is End.POWER:
            assert self._disk is not None, "a loss of power needs a C compiler"
            self._disk.cut_power(rng)
        self._start(step, rng)
        disturbance = DISTURBANCES[step.disturbance]
        are_returned = step.end is End.STOP or disturbance.refusals
        end = End.POWER if step.end is End.KILL and disturbance.delays_events else step.end
        self.counts += compare(self._process.url, self._clients, rng, _BACKLOG, end, are_returned)
        self._stream.compare(self._process, step.end)
        self._delayed.compare(self._process, step.end)
        self.counts.update(
            ["rounds", f"disturbance {step.disturbance}", f"end {step.end.value}", f"start {step.start}"]
        )
        text = self._process.log_text()[logged:]
        assert "Traceback" not in text, "there is a traceback in the log"

    def _load(self, step: Step, rng: random.Random) -> None:
        """Let clients work, disturb the broker, and end it."""
        disturbance = DISTURBANCES[step.disturbance]
        if step.disturbance == "clock-step":
            self._delayed.is_clock_right = False
        clients = self._everybody()
        for client in clients:
            client.may_be_refused = disturbance.refusals
            client.connect(self._process.url, Management(self._process.http_url))
        load = Round(clients, disturbance.refusals)
        load.wait(rng.randrange(5, 200))
        if disturbance.disturb(Scene(self._process, load, self._disk, rng)):
            self.counts[f"effect of {step.disturbance}"] += 1
        load.wait(rng.choice((0, rng.randrange(1, 100))), 10)
        if step.end is End.STOP:
            load.end(self._stop, is_stop=True)
        else:
            load.end(self._process.kill)

    def _stop(self) -> None:
        self.counts[f"stopped with status {self._process.stop()}"] += 1

    def _start(self, step: Step, rng: random.Random) -> None:
        if step.start == "damaged":
            outcome = start_on_damaged_copy(self._process.directory, rng, self._clients, [self._stream, self._delayed])
            self.counts[f"damaged {outcome}"] += 1
        elif step.start == "killed":
            kill_while_starting(self._process, rng.uniform(0.1, 1.0))
        elif step.start == "failing":
            self._fail_while_starting(rng)
        self._process.start()

    def _fail_while_starting(self, rng: random.Random) -> None:
        assert self._disk is not None, "failing calls need a C compiler"
        call = rng.choice([*Call])
        self._disk.fail(call, rng.randrange(60), rng.choice((1, 3)))
        try:
            self._process.start()
        except RuntimeError:
            self.counts["starts refused because of a failing call"] += 1
        finally:
            self._process.kill()
            if self._disk.succeed(call):
                self.counts["starts with a failing call"] += 1
