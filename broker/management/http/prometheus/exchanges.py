"""Metrics of exchanges that delay messages or drop duplicates. RabbitMQ's plugins have none."""

from __future__ import annotations

from typing import Final

from leveret.broker.core.broker import Broker
from leveret.broker.core.delays.waiting import WaitingMessages
from leveret.broker.core.exchanges.base import Exchange
from leveret.broker.core.exchanges.deduplicating import DeduplicatingExchange
from leveret.broker.core.exchanges.delayed import DelayedExchange
from leveret.broker.management.http.prometheus.families import Family, Vhosts, counter, gauge

_DELAYED: Final = (
    gauge("exchange_messages_delayed", "Messages that wait in an exchange x-delayed-message until they are due"),
    gauge("exchange_messages_delayed_bytes", "Size in bytes of messages that wait in an exchange x-delayed-message"),
)

_DEDUPLICATED: Final = (
    counter("exchange_deduplicated_total", "Duplicates that an exchange x-message-deduplication has dropped"),
    gauge("exchange_remembered_values", "Header values that an exchange x-message-deduplication remembers"),
)


def _waiting_in(broker: Broker, vhosts: Vhosts) -> list[WaitingMessages]:
    """Return the waiting messages of the delayed exchanges in some virtual hosts."""
    return [
        exchange.waiting
        for vhost in broker.vhosts.values()
        if vhosts is None or vhost.name in vhosts
        for exchange in vhost.topology.exchanges.values()
        if isinstance(exchange, DelayedExchange) and exchange.waiting is not None
    ]


def _deduplicating_in(broker: Broker, vhosts: Vhosts) -> list[Exchange]:
    """Return the exchanges in some virtual hosts that drop duplicates."""
    return [
        exchange
        for vhost in broker.vhosts.values()
        if vhosts is None or vhost.name in vhosts
        for exchange in vhost.topology.exchanges.values()
        if isinstance(exchange.router(), DeduplicatingExchange)
    ]


def _remembered(exchange: Exchange) -> int:
    """Return the number of values that an exchange remembers."""
    inner = exchange.router()
    return inner.duplicates.info().entries if isinstance(inner, DeduplicatingExchange) and inner.duplicates else 0


EXCHANGE_FAMILIES: Final[tuple[Family[WaitingMessages] | Family[Exchange], ...]] = (
    Family(
        "exchange_deduplication",
        _DEDUPLICATED,
        ("vhost", "exchange"),
        _deduplicating_in,
        lambda exchange: (exchange.vhost_name, exchange.name),
        lambda exchange: (exchange.counters.deduplicated, _remembered(exchange)),
        prefix="leveret_",
    ),
    Family(
        "exchange_delayed",
        _DELAYED,
        ("vhost", "exchange"),
        _waiting_in,
        lambda waiting: (waiting.vhost_name, waiting.name),
        lambda waiting: (waiting.count, waiting.body_bytes),
        lambda waiting: not waiting.deleted,
        prefix="leveret_",
    ),
)
