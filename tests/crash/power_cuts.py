"""Cuts the power again and again under a load, and counts what was promised and is missing."""

from __future__ import annotations

import random
from collections.abc import Callable, Set
from typing import Final, Protocol

from leveret.storage.commit.committer import SyncMode
from leveret.storage.engine import EngineOptions, StorageEngine
from tests.crash.test_power_loss import SlowFiles
from tests.support.simulated_files import SimulatedFiles

#: Power failures before it starts again with an empty disk.
_CUTS_A_RUN: Final = 20
_TURNS_BETWEEN_CUTS: Final = 4


class Load(Protocol):
    """What a broker does on a disk.

    Attributes:
        engine: The storage engine.
        confirmed: Bodies of the messages that were confirmed.
    """

    engine: StorageEngine
    confirmed: set[bytes]

    def turn(self, rng: random.Random) -> None:
        """Do something, and end the turn."""

    def missing(self, files: SimulatedFiles) -> Set[bytes]:
        """Return which confirmed messages are not on a disk, of those that have to be."""


def check_power_cuts(
    power_cuts: int, redo_segments: int, make_load: Callable[[SimulatedFiles, EngineOptions], Load]
) -> None:
    """Assert that no confirmed message is missing after any of these cuts; the load goes on after each.

    Args:
        power_cuts: Number of cuts.
        redo_segments: The option of the engine.
        make_load: Makes a load on an empty disk.
    """
    options = EngineOptions(
        segment_bytes=1500, disk_free_limit=0, ballast_bytes=0, sync=SyncMode.ALWAYS, redo_segments=redo_segments
    )
    lost: list[str] = []
    cuts = confirmed = 0
    while cuts < power_cuts:
        seed = 1 + cuts // _CUTS_A_RUN
        rng, files = random.Random(seed), SlowFiles(seed)
        load = make_load(files, options)
        for _ in range(_CUTS_A_RUN):
            for _ in range(_TURNS_BETWEEN_CUTS):
                load.turn(rng)
            cuts += 1
            missing = load.missing(files.after_power_loss(rng))
            if missing:
                lost.append(f"seed {seed}, cut {cuts}: {sorted(missing)}")
        assert load.engine.close()
        assert not load.missing(files.after_power_loss(rng))
        confirmed += len(load.confirmed)
    print(f"{cuts} cuts, {confirmed} messages confirmed, {len(lost)} cuts that lost some")  # noqa: T201
    assert confirmed
    assert not lost
