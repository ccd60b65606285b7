"""Virtual hosts and queues on a ManualLoop."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, Protocol, TypeAlias

from leveret.broker.core.broker import Broker
from leveret.broker.core.queues.classic_queue import ClassicQueue
from leveret.broker.core.queues.queue import Queue, QueueDeclaration, UnackedHolder
from leveret.broker.core.queues.stream_queue import StreamQueue
from leveret.broker.core.scheduling.timers import Timers
from leveret.broker.core.scheduling.turn import Turn
from leveret.broker.core.vhosts.vhost import VirtualHost
from leveret.protocol.field_table import FieldTable, FieldValue, longstr
from leveret.storage.interface import Entry
from tests.support.manual_loop import ManualLoop
from tests.support.simulated_stores import simulated_stores

#: How messages are settled.
Outcome: TypeAlias = Literal["acknowledge", "reject", "requeue"]


class ManualTimers(Timers):
    """The clock and the timers of a manual loop."""

    __slots__ = ("_loop", "set_by")

    def __init__(self, loop: ManualLoop) -> None:
        super().__init__(loop.call_later)
        self._loop = loop
        self.set_by = 0.0

    def now(self) -> int:
        """Return the wall-clock time in microseconds since 1970."""
        return round((self._loop.now + self.set_by) * 1_000_000)

    def monotonic(self) -> int:
        """Return the monotonic time in microseconds."""
        return round(self._loop.now * 1_000_000)


def new_vhost(
    loop: ManualLoop,
    name: str = "v",
    clock: Callable[[], int] = lambda: 0,
    trust_publishers: bool = False,
    timers: Timers | None = None,
) -> VirtualHost:
    """Return a virtual host with the predeclared exchanges and no queues."""
    turn, timers = Turn(loop.call_soon, clock=clock), timers or ManualTimers(loop)
    return VirtualHost(name, turn, timers, simulated_stores(turn, timers), trust_publishers)


def new_broker(loop: ManualLoop) -> Broker:
    """Return a broker without virtual hosts, on a simulated disk."""
    turn, timers = Turn(loop.call_soon), ManualTimers(loop)
    return Broker(turn, timers, simulated_stores(turn, timers))


def declare(
    vhost: VirtualHost,
    name: str = "q",
    *,
    durable: bool = True,
    auto_delete: bool = False,
    owner: object | None = None,
    arguments: FieldTable = (),
) -> ClassicQueue:
    """Declare a queue, which is no stream; it is exclusive if an owner is set."""
    declaration = QueueDeclaration(name, durable, auto_delete, owner, arguments)
    queue = vhost.declare_queue(declaration, lambda _: None)
    assert isinstance(queue, ClassicQueue)
    return queue


def declare_stream(vhost: VirtualHost, name: str, *arguments: tuple[str, FieldValue]) -> StreamQueue:
    """Declare a stream."""
    given = (("x-queue-type", longstr("stream")), *arguments)
    stream = vhost.declare_queue(QueueDeclaration(name, True, False, None, given), lambda _: None)
    assert isinstance(stream, StreamQueue)
    return stream


class AnyHolder(UnackedHolder, Protocol):
    """A holder of unacked messages, of the product or of the tests."""

    @property
    def queue(self) -> Queue:
        """The queue of the messages."""


def settle(holder: AnyHolder, entries: Sequence[Entry], outcome: Outcome) -> None:
    """Settle messages of one holder, as a channel does."""
    holder.queue.release(holder, entries, "returned" if outcome == "requeue" else "settled")
    getattr(holder.queue, outcome)(entries)
