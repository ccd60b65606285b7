"""Virtual hosts and queues that a test moves by hand."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

from leveret.broker.core.consumers import Holder
from leveret.broker.core.queues.declaration import QueueDeclaration
from leveret.broker.core.queues.queue import Queue
from leveret.broker.core.timers import Timers
from leveret.broker.core.turn import Turn
from leveret.broker.core.vhost import VirtualHost
from leveret.protocol.field_table import FieldTable
from leveret.storage.interface import Entry
from tests.support.manual_loop import ManualLoop


class ManualTimers(Timers):
    """The clock and the timers of a manual loop.

    Args:
        loop: Its clock counts from 1970.

    Attributes:
        set_by: Seconds by which somebody has set the machine's clock.
    """

    __slots__ = ("_loop", "set_by")

    def __init__(self, loop: ManualLoop) -> None:
        super().__init__(loop.call_later)
        self._loop = loop
        self.set_by = 0.0

    def now(self) -> int:
        """Microseconds since 1970."""
        return round((self._loop.now + self.set_by) * 1_000_000)

    def monotonic(self) -> int:
        """Microseconds that the loop has counted."""
        return round(self._loop.now * 1_000_000)


def new_vhost(loop: ManualLoop, name: str = "v", clock: Callable[[], int] = lambda: 0) -> VirtualHost:
    """A virtual host without queues, with the exchanges that every one has.

    Args:
        loop: Moves it.
        name: Its name.
        clock: For slices of time; by default they are never over.
    """
    return VirtualHost(name, Turn(loop.call_soon, clock=clock), ManualTimers(loop))


def declare(
    vhost: VirtualHost,
    name: str = "q",
    *,
    durable: bool = True,
    auto_delete: bool = False,
    owner: object | None = None,
    arguments: FieldTable = (),
) -> Queue:
    """Declare a queue; with an owner, an exclusive one.

    Raises:
        AmqpFault: See VirtualHost.declare_queue.
    """
    declaration = QueueDeclaration(name, durable, auto_delete, owner, owner, arguments)
    return vhost.declare_queue(declaration, lambda _: None)


def settle(holder: Holder, entries: Sequence[Entry], outcome: Literal["acknowledge", "reject", "requeue"]) -> None:
    """Give up messages of one holder, as a channel does."""
    holder.queue.release(holder, entries)
    getattr(holder.queue, outcome)(entries)
