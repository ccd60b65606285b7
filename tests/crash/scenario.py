"""A scenario, and how it is run with each kind of end."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from leveret.storage.commit import SyncMode
from leveret.storage.engine import EngineOptions
from tests.crash.comparison import End
from tests.crash.process_loads import ProcessLoad
from tests.crash.rounds import Round, kill_while_starting
from tests.crash.simulated_loads import SimulatedLoad
from tests.support.leveret_process import LeveretProcess
from tests.support.simulated_files import SimulatedFiles
from tests.support.slow_files import SlowFiles

#: Ends of a broker on a simulated disk before the next one starts on an empty disk.
_ENDS_A_DISK: Final = 20
_TURNS_BETWEEN_ENDS: Final = 4
#: What the log may say: a write that a kill has cut short is no damage; what bounded queues drop, which a long round
#: logs, is compared message by message; clients drop their connections.
_EXPECTED_LINES: Final = (
    "a write that was cut short",
    "its first write was cut short",
    "leveret.losses:",
    "client unexpectedly closed TCP connection",
)


@dataclass(frozen=True)
class Scenario:
    """A feature, what uses it, and what has to hold after the broker has ended."""

    name: str
    simulated: Callable[[SimulatedFiles, EngineOptions], SimulatedLoad] | None = None
    process: Callable[[int], ProcessLoad] | None = None
    redo: Sequence[Mapping[str, int]] = ({"redo_segments": 0}, {"redo_segments": 3})
    more_ends: int = 1
    settings: Mapping[str, object] = field(default_factory=dict)
    share: int = 1


def run_simulated(scenario: Scenario, end: End, ends: int) -> None:
    """End a broker on simulated disks again and again; what is left is looked at, and the load goes on."""
    assert scenario.simulated is not None
    for redo in scenario.redo:
        options = EngineOptions(
            segment_bytes=1500,
            disk_free_limit=0,
            ballast_bytes=0,
            sync=SyncMode.ALWAYS,
            **redo,  # type: ignore[arg-type]
        )
        confirmed = 0
        for seed in range(1, 1 + max(1, ends * scenario.more_ends // _ENDS_A_DISK)):
            rng, files = random.Random(seed), SlowFiles(seed)
            load = scenario.simulated(files, options)
            for number in range(1, 1 + _ENDS_A_DISK):
                for _ in range(_TURNS_BETWEEN_ENDS):
                    load.turn(rng)
                left = files.after_power_loss(rng) if end is End.POWER else files.after_kill()
                _compare(load, left, f"{redo}, seed {seed}, end {number}")
            load.stop()
            # Power may go right after a stop.
            _compare(load, files.after_power_loss(rng), f"{redo}, seed {seed}, after the stop")
            confirmed += len(load.confirmed)
        assert confirmed


def _compare(load: SimulatedLoad, left: SimulatedFiles, when: str) -> None:
    missing = load.missing(left)
    assert not missing, f"{when}: confirmed and lost: {sorted(missing)}"


def run_process(scenario: Scenario, end: End, ends: int, seed: int, directory: Path) -> None:
    """End a broker that is a process again and again while its clients work, and print what they have counted."""
    assert scenario.process is not None
    rng, load = random.Random(seed), scenario.process(seed)
    settings = {"storage.segment_size": 65_536, "log_level": "warning", **scenario.settings}
    began = time.monotonic()
    with LeveretProcess(directory, settings=settings) as broker:
        try:
            load.declare(broker)
            for number in range(ends):
                work = Round(load.workers(broker, seed + number))
                # On a busy machine nothing may happen in the first moments.
                work.wait_until(load.has_worked)
                load.meanwhile(work, rng)
                work.end(broker.kill if end is End.KILL else lambda: _stop(broker), is_stop=end is End.STOP)
                load.ended()
                if end is End.KILL and rng.random() < 0.2:
                    kill_while_starting(broker, rng.uniform(0.2, 1.0))
                    load.ended()
                broker.start()
                load.check(broker, end, rng)
            load.expect(broker)
        except Exception as error:
            error.add_note(f"{scenario.name} with --kill-seed {seed}\n{broker.log_text()[-3000:]}")
            raise
        finally:
            load.close()
        text = broker.log_text()
    unexpected = [line for line in text.splitlines() if not any(expected in line for expected in _EXPECTED_LINES)]
    assert not unexpected, unexpected
    counts = load.counts()
    print(f"{scenario.name}: {ends} ends in {time.monotonic() - began:.0f} s, {dict(counts)}")  # noqa: T201
    assert counts["confirmed"]


def _stop(broker: LeveretProcess) -> None:
    assert broker.stop() == 0
