"""Looks at messages that wait in an exchange x-delayed-message, and takes them out before they are due."""

from __future__ import annotations

from collections.abc import Callable

from leveret.broker.core.delays.waiting import WaitingMessages
from leveret.broker.core.exchanges.delayed import DelayedExchange
from leveret.broker.operations.principal import Principal
from leveret.protocol.faults import precondition_failed
from leveret.storage.event_format import EventKind


def open_waiting(principal: Principal, name: str) -> WaitingMessages:
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
    return exchange.waiting


def cancel(waiting: WaitingMessages, number: int) -> bool:
    """Remove a message; return whether it still waited.

    Args:
        waiting: See open_waiting().
        number: Number of the message.
    """
    entry = waiting.schedule.take(number)
    if entry is None:
        return False
    waiting.schedule.settle([entry], EventKind.CANCELLED)
    return True


def deliver_now(principal: Principal, waiting: WaitingMessages, number: int, done: Callable[[bool], None]) -> None:
    """Route a message to its queues, as if it were due.

    Args:
        principal: Who asks.
        waiting: See open_waiting().
        number: Number of the message.
        done: Called with whether it still waited, when it has been routed.
    """
    principal.vhost.due_messages.route_now(waiting, number, done)
