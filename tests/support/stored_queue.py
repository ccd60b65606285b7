"""A queue in a simulated data directory, that a test can stop and start again."""

from __future__ import annotations

from typing import Any

from leveret.broker.core.message_stores import MessageStores
from leveret.broker.core.queues.classic_queue import ClassicQueue
from leveret.broker.core.queues.queue import Holder
from leveret.broker.core.scheduling.turn import Turn
from leveret.broker.core.vhosts.vhost import VirtualHost
from leveret.storage.engine import EngineOptions, StorageEngine
from leveret.storage.interface import Entry
from tests.support.manual_loop import ManualLoop
from tests.support.queue_content import arguments
from tests.support.queues import ManualTimers, declare
from tests.support.simulated_files import ROOT, SimulatedFiles
from tests.support.stepping_clock import SteppingClock


class Start:
    """A start of a broker with one queue."""

    def __init__(self, files: SimulatedFiles, now: float = 1000.0, durable: bool = True, **given: Any) -> None:
        self.loop = ManualLoop()
        self.loop.now = now
        timers = ManualTimers(self.loop)
        turn = Turn(self.loop.call_soon, SteppingClock())
        turn.before_writing.append(lambda: self.stores.write())
        options = EngineOptions(segment_bytes=20_000, disk_free_limit=0, ballast_bytes=0)
        self.engine = StorageEngine(ROOT, files=files, clock=timers, options=options, on_work=turn.end_later)
        self.stores = MessageStores(self.engine, turn.end_later, timers.real_call_later)
        self.vhost = VirtualHost("v", turn, timers, stores=self.stores)
        self.queue: ClassicQueue = declare(self.vhost, durable=durable, arguments=arguments(**given))

    def stop(self) -> None:
        """Stop it cleanly."""
        self.loop.run()
        assert self.stores.close()

    def got(self) -> Entry:
        """Get the message at the head, to be settled by the caller."""
        holder = Holder(self.queue)
        entry = self.queue.get(holder)
        assert entry is not None
        self.queue.release(holder, [entry])
        return entry

    def returned(self, times: int = 1) -> None:
        """Get and requeue the message at the head, so many times."""
        for _ in range(times):
            self.queue.requeue([self.got()])

    def drain(self) -> list[tuple[str, bool, int | None]]:
        """Take all ready messages: their bodies, redelivered flags and delivery counts."""
        found = []
        while (entry := self.queue.get(None)) is not None:
            found.append((entry[1].body.decode(), entry[2], entry[1].envelope.delivery_count))
        return found
