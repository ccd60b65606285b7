"""Streams in a data directory, without sockets: for tests of what a broker does with them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from queue import SimpleQueue
from typing import Final

from leveret.broker.core.message_stores import MessageStores
from leveret.broker.core.queues.queue import QueueDeclaration
from leveret.broker.core.scheduling.turn import Turn
from leveret.broker.core.vhosts.vhost import VirtualHost
from leveret.protocol.field_table import FieldTable, FieldValue, longstr
from leveret.storage.engine import EngineOptions, StorageEngine
from leveret.storage.interface import Entry
from leveret.storage.message import Message
from tests.support.manual_loop import ManualLoop
from tests.support.messages import ENVELOPE
from tests.support.queues import ManualTimers, declare_stream
from tests.support.simulated_files import ROOT, SimulatedFiles

STREAM: Final[FieldTable] = (("x-queue-type", longstr("stream")),)
OPTIONS: Final = EngineOptions(disk_free_limit=0, ballast_bytes=0)


class StreamBroker:
    """A virtual host in a data directory, with a stream."""

    def __init__(
        self,
        files: SimulatedFiles | None = None,
        arguments: FieldTable = (),
        options: EngineOptions = OPTIONS,
        now: float = 1000.0,
        slice_clock: Callable[[], int] = lambda: 0,
        commits_later: bool = False,
        name: str = "s",
        qids: Mapping[str, int | None] | None = None,
    ) -> None:
        self.files = files or SimulatedFiles()
        self.loop = ManualLoop()
        self.loop.now = now
        self._calls: SimpleQueue[Callable[[], None]] = SimpleQueue()
        turn = Turn(self.loop.call_soon, slice_clock)
        turn.before_writing.append(lambda: self.stores.write())
        timers = ManualTimers(self.loop)
        deliver = self._calls.put if commits_later else None
        on_work = turn.end_later
        self.engine = StorageEngine(ROOT, deliver, files=self.files, clock=timers, options=options, on_work=on_work)
        self.stores = MessageStores(self.engine, turn.end_later, timers.real_call_later)
        self.vhost = VirtualHost("v", turn, timers, stores=self.stores)
        for known, qid in (qids or {}).items():
            self.vhost.restore_queue(QueueDeclaration(known, True, False, None, STREAM), qid)
        self.stream = declare_stream(self.vhost, name, *arguments)

    def publish(self, *bodies: str) -> None:
        """Publish messages, and end the turn."""
        messages = [Message(ENVELOPE, body.encode()) for body in bodies]
        self.stream.publish_varied(messages, sum(map(len, bodies)), max(map(len, bodies)))
        self.loop.run()

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self.loop.advance(seconds)
        while not self._calls.empty():
            self._calls.get()()
            self.loop.run()


def number(name: str, value: int) -> tuple[str, FieldValue]:
    """Return an integer argument."""
    return name, FieldValue("l", value)


def offsets(entries: Sequence[Entry]) -> list[int]:
    """Return the offsets of messages."""
    return [entry[0] - 1 for entry in entries]
