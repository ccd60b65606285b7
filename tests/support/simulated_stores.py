"""The message stores of the product on a simulated disk, for brokers and virtual hosts on a ManualLoop."""

from __future__ import annotations

from collections.abc import Callable

from leveret.broker.core.message_stores import MessageStores
from leveret.broker.core.scheduling.timers import Timers
from leveret.broker.core.scheduling.turn import Turn
from leveret.storage.backings import QueueBacking, StoreRequest
from leveret.storage.engine import EngineOptions, StorageEngine
from tests.support.manual_loop import ManualLoop
from tests.support.simulated_files import SimulatedFiles


class NoTimer:
    """A timer that never fires."""

    def cancel(self) -> None:
        """Do nothing."""


def simulated_stores(turn: Turn, timers: Timers, files: SimulatedFiles | None = None) -> MessageStores:
    """Return stores on a simulated disk, which write at the end of each turn and sync at once, without housekeeping.

    Args:
        turn: The turn.
        timers: The clock.
        files: The disk; a new one by default.
    """
    options = EngineOptions(ballast_bytes=0)
    engine = StorageEngine("/data", files=files or SimulatedFiles(), clock=timers, options=options)
    stores = MessageStores(engine, turn.end_later, _never)
    turn.before_writing.append(stores.write)
    return stores


def memory_backing(name: str = "q") -> QueueBacking:
    """Return where a transient queue keeps its messages, for queues that no virtual host has."""
    return _STORES.open(StoreRequest("v", name, False))


def _never(seconds: float, callback: Callable[[], None]) -> NoTimer:
    return NoTimer()


_STORES = simulated_stores(Turn(ManualLoop().call_soon), Timers(_never))
