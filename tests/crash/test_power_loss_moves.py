"""Power that goes while messages move from queue to queue: each that was confirmed is in one of them, or in two."""

from __future__ import annotations

import random
from collections.abc import Callable
from queue import SimpleQueue
from typing import Final

import pytest

from leveret.broker.core.message_stores.data_directory import DiskMessageStores
from leveret.broker.core.queues.holders import Holder
from leveret.broker.core.queues.queue import Queue
from leveret.broker.core.scheduling.turn import Turn
from leveret.broker.core.vhost import VirtualHost
from leveret.protocol.field_table import FieldTable, FieldValue
from leveret.storage.engine import EngineOptions, StorageEngine
from leveret.storage.message import Envelope, Message
from tests.crash.power_cuts import check_power_cuts
from tests.support.manual_loop import ManualLoop
from tests.support.queues import ManualTimers, declare, settle
from tests.support.segment_stores import Clock
from tests.support.simulated_files import ROOT, SimulatedFiles


def _dead_letter_to(queue: str, **more: tuple[str, object]) -> FieldTable:
    arguments: dict[str, tuple[str, object]] = {"x-dead-letter-exchange": ("S", b"")}
    arguments["x-dead-letter-routing-key"] = "S", queue.encode()
    arguments |= {f"x-{name.replace('_', '-')}": value for name, value in more.items()}
    return tuple((name, FieldValue(kind, value)) for name, (kind, value) in arguments.items())


_QUORUM: Final = ("S", b"quorum")
#: What is published to, and how messages leave: by limit, by TTL, by reject, at once, by the delivery limit, also after
#: they have waited; and where they go from there. `letters` and `short` are dead-letter queues with dead-letter queues
#: of their own.
QUEUES: Final[dict[str, FieldTable]] = {
    "limited": _dead_letter_to("letters", max_length=("l", 3)),
    "timed": _dead_letter_to("letters", message_ttl=("l", 20)),
    "rejected": _dead_letter_to("short"),
    "at-once": _dead_letter_to("letters", message_ttl=("l", 0)),
    "quorum": _dead_letter_to("short", queue_type=_QUORUM, delivery_limit=("l", 3)),
    "quorum-tail": (("x-queue-type", FieldValue("S", b"quorum")),),
    "at-least-once": _dead_letter_to(
        "last", queue_type=_QUORUM, overflow=("S", b"reject-publish"), dead_letter_strategy=("S", b"at-least-once")
    ),
    "counted": _dead_letter_to("short", redelivery_limit=("l", 2), max_priority=("l", 2)),
    "retried": _dead_letter_to("short", redelivery_limit=("l", 4), delayed_retry_steps=("S", b"15ms,40ms,20s")),
    "retried-quorum": _dead_letter_to("short", queue_type=_QUORUM, delayed_retry_steps=("S", b"15ms,1h")),
    "letters": _dead_letter_to("last", max_length=("l", 4)),
    "short": _dead_letter_to("letters", max_length=("l", 1)),
    "last": (),
}
_TARGETS: Final = ("letters", "short", "last")


class MovingLoad:
    """Queues of every kind that hand their messages on, and what has been promised."""

    def __init__(self, files: SimulatedFiles, options: EngineOptions) -> None:
        self._options = options
        self._calls: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self.engine = StorageEngine(ROOT, self._calls.put, files=files, clock=Clock(), options=options)
        self._loop = ManualLoop()
        turn = Turn(self._loop.call_soon)
        turn.before_writing.append(lambda: self._stores.write())
        timers = ManualTimers(self._loop)
        self._stores = DiskMessageStores(self.engine, turn.end_later, timers.real_call_later)
        vhost = VirtualHost("v", turn, timers, stores=self._stores)
        self._queues = {name: declare(vhost, name, arguments=arguments) for name, arguments in QUEUES.items()}
        self._published: set[bytes] = set()
        self.confirmed: set[bytes] = set()
        self.consumed: set[bytes] = set()

    def turn(self, rng: random.Random) -> None:
        """Publish something, consume something, and end the turn."""
        for name, queue in self._queues.items():
            if name not in _TARGETS:
                for _ in range(rng.choice((0, 0, 1, 3))):
                    self._publish(name, queue, rng)
            self._consume(queue, rng)
        published = set(self._published)
        self._stores.when_synced(lambda: self.confirmed.update(published))
        self._loop.advance(0.01)
        if rng.random() < 0.2:
            # Whatever has been written of the event log is synced.
            self.engine.commit(events=True)
        if rng.random() < 0.1:
            self.engine.housekeeping()
        if rng.random() < 0.05:
            self.engine.checkpoint()
        while not self._calls.empty():
            self._calls.get()()

    def _publish(self, name: str, queue: Queue, rng: random.Random) -> None:
        body = b"%d:" % len(self._published) + b"x" * rng.randrange(200)
        envelope = Envelope(b"\x00" + bytes([len(name)]) + name.encode(), b"\x00\x3c" + bytes(12), True)
        assert queue.publish([Message(envelope, body)], len(body)) == 1
        self._published.add(body)

    def _consume(self, queue: Queue, rng: random.Random) -> None:
        """Take some messages, and acknowledge, reject or return them; dead-letter queues only lose what is acked."""
        for _ in range(rng.choice((0, 1, 2))):
            holder = Holder(queue)
            entry = queue.get(holder)
            if entry is None:
                return
            outcome = rng.choice(("acknowledge", "reject", "requeue", "requeue"))
            if outcome == "reject" and queue.settings.dead_letter_exchange is None:
                outcome = "acknowledge"
            if outcome == "acknowledge":
                self.consumed.add(entry[1].body)
            settle(holder, [entry], outcome)  # type: ignore[arg-type]

    def missing(self, files: SimulatedFiles) -> set[bytes]:
        """Recover what is left, and tell which messages are in no queue that were confirmed and not consumed."""
        engine = StorageEngine(ROOT, files=files, clock=Clock(1_800_000_000_000_000), options=self._options)
        stores = [store for queue in engine.queues.values() for store in queue.stores.values()]
        found = {message.body for store in stores for _, message, _ in store.take(1 << 30, 1 << 40)[0]}
        assert found <= self._published
        assert engine.report.failures == []
        return self.confirmed - self.consumed - found


@pytest.mark.parametrize("redo_segments", [0, 3])
def test_power_goes_while_messages_move(power_cuts: int, redo_segments: int) -> None:
    check_power_cuts(power_cuts, redo_segments, MovingLoad)
