"""What is done to a broker while clients use it."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from tests.crash.rounds import Round
from tests.support.leveret_process import LeveretProcess
from tests.support.wire import Connection, ConnectionClosed, ConnectionDropped
from tests.torture.preloaded_disk import Call, PreloadedDisk

#: Seconds that a disturbance lasts at most.
_SECONDS: Final = 2.0
_SLOW_QUEUE: Final = "slow"
_HOUR: Final = 3600


@dataclass
class Scene:
    """A round under way."""

    process: LeveretProcess
    load: Round
    disk: PreloadedDisk | None
    rng: random.Random


@dataclass(frozen=True)
class Disturbance:
    """Something that is done during a round."""

    disturb: Callable[[Scene], bool]
    needs_disk: bool = False
    refusals: bool = False
    delays_events: bool = False


def _nothing(scene: Scene) -> bool:
    return True


def _fill_disk(scene: Scene) -> bool:
    disk = _disk(scene)
    before = disk.refused_writes
    disk.limit_room(scene.rng.choice((0, 5_000, 200_000)))
    scene.load.wait(400, _SECONDS)
    disk.limit_room(None)
    return disk.refused_writes > before


def _fail(call: Call) -> Callable[[Scene], bool]:
    def disturb(scene: Scene) -> bool:
        disk = _disk(scene)
        disk.fail(call, scene.rng.randrange(20), scene.rng.choice((1, 1, 3, 1000)))
        scene.load.wait(100, _SECONDS)
        return disk.succeed(call) > 0

    return disturb


def _pause(scene: Scene) -> bool:
    with suppress(ProcessLookupError):
        os.kill(scene.process.pid, signal.SIGSTOP)
        time.sleep(scene.rng.uniform(0.1, _SECONDS))
        os.kill(scene.process.pid, signal.SIGCONT)
    return True


def _step_clock(scene: Scene) -> bool:
    # It goes on to be wrong over the next rounds, until the next step.
    _disk(scene).step_clock(scene.rng.choice((-1, 1)) * scene.rng.choice((1, 60, _HOUR, 24 * _HOUR, 400 * 24 * _HOUR)))
    return True


def _read_slowly(scene: Scene) -> bool:
    """A client takes large messages without acknowledgements, and does not read what is delivered."""
    with suppress(ConnectionDropped, ConnectionClosed, OSError):
        connection = Connection(scene.process.url, timeout=_SECONDS)
        try:
            channel = connection.channel()
            channel.queue_declare(_SLOW_QUEUE, arguments=[("x-max-length", "I", 1000)])
            channel.consume(_SLOW_QUEUE, no_ack=True)
            for _ in range(200):
                channel.publish("", _SLOW_QUEUE, bytes(100_000))
            scene.load.wait(100, _SECONDS)
        finally:
            connection.abort()
    return True


def _disk(scene: Scene) -> PreloadedDisk:
    assert scene.disk is not None, "this disturbance needs a C compiler"
    return scene.disk


DISTURBANCES: Final = {
    "none": Disturbance(_nothing),
    "pause": Disturbance(_pause),
    "slow-client": Disturbance(_read_slowly),
    "clock-step": Disturbance(_step_clock, needs_disk=True),
    "full-disk": Disturbance(_fill_disk, needs_disk=True, refusals=True),
    "failing-writes": Disturbance(_fail(Call.WRITE), needs_disk=True, refusals=True, delays_events=True),
    "failing-syncs": Disturbance(_fail(Call.SYNC), needs_disk=True, refusals=True),
    "failing-reads": Disturbance(_fail(Call.READ), needs_disk=True, refusals=True),
    "failing-opens": Disturbance(_fail(Call.OPEN), needs_disk=True, refusals=True),
    "failing-names": Disturbance(_fail(Call.NAME), needs_disk=True, refusals=True),
}
