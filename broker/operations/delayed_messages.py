"""Messages that wait in an exchange x-delayed-message, or in a queue for their retry: look, cancel, deliver now."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from leveret.broker.core.delays.schedule import Schedule
from leveret.broker.core.delays.waiting import WaitingMessages
from leveret.broker.core.exchanges.delayed import DelayedExchange
from leveret.broker.core.queues.queue import Queue
from leveret.broker.operations import queues
from leveret.broker.operations.principal import Principal
from leveret.protocol.faults import precondition_failed
from leveret.storage.event_format import EventKind


class Waiting(Protocol):
    """Messages that wait until they are due."""

    @property
    def schedule(self) -> Schedule | None:
        """The messages; None if none has ever waited."""

    def cancel(self, number: int) -> bool:
        """Remove a message; return whether it still waited."""

    def deliver_now(self, number: int, done: Callable[[bool], None]) -> None:
        """Treat a message as if it were due.

        Args:
            number: Number of the message.
            done: Called with whether it still waited, when that is done.
        """


class WaitingInExchange:
    """The messages of an exchange x-delayed-message; see Waiting."""

    def __init__(self, principal: Principal, waiting: WaitingMessages) -> None:
        self._principal = principal
        self._waiting = waiting
        self.schedule: Schedule = waiting.schedule

    def cancel(self, number: int) -> bool:
        """Remove a message, which reaches no queue."""
        entry = self.schedule.take(number)
        if entry is None:
            return False
        self.schedule.settle([entry], EventKind.CANCELLED)
        return True

    def deliver_now(self, number: int, done: Callable[[bool], None]) -> None:
        """Route a message to its queues."""
        self._principal.vhost.due_messages.route_now(self._waiting, number, done)


class WaitingInQueue:
    """The messages of a queue that wait for their retry; see Waiting."""

    def __init__(self, queue: Queue) -> None:
        self._queue = queue

    @property
    def schedule(self) -> Schedule | None:
        """The messages; None if none has ever waited."""
        return self._queue.contents.waiting

    def cancel(self, number: int) -> bool:
        """Remove a message from the queue; it is not dead-lettered."""
        delayed, values = self._queue.contents.delayed, self._queue.outbox.values
        message = None if delayed is None else delayed.cancel(number)
        if message is not None and values.is_active:
            values.release_waiting(message)
        return message is not None

    def deliver_now(self, number: int, done: Callable[[bool], None]) -> None:
        """Make a message ready."""
        delayed = self._queue.contents.delayed
        done(delayed is not None and delayed.return_now(number))


def open_exchange(principal: Principal, name: str) -> WaitingInExchange:
    """Find the waiting messages of an exchange that the principal may read from.

    Args:
        principal: Who asks.
        name: Name of the exchange.
    Raises:
        ChannelFault: ACCESS_REFUSED (403), NOT_FOUND (404); PRECONDITION_FAILED (406) for an exchange of another type.
    """
    principal.check("read", "exchange", name)
    exchange = principal.vhost.topology.exchange(name)
    if not isinstance(exchange, DelayedExchange) or exchange.waiting is None:
        raise precondition_failed(
            f"exchange '{name}' in vhost '{principal.vhost.name}' has type '{exchange.type_name}',"
            f" not '{DelayedExchange.type_name}': no messages wait in it"
        )
    return WaitingInExchange(principal, exchange.waiting)


def open_queue(principal: Principal, name: str) -> WaitingInQueue:
    """Find the messages of a queue that wait for their retry; the principal may read from the queue.

    Args:
        principal: Who asks.
        name: Name of the queue.
    Raises:
        ChannelFault: ACCESS_REFUSED (403), NOT_FOUND (404), RESOURCE_LOCKED (405).
    """
    return WaitingInQueue(queues.open_for_reading(principal, name))
