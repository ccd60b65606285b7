"""Metrics of exchanges that delay messages. RabbitMQ's plugin has none."""

from __future__ import annotations

from typing import Final

from leveret.broker.core.broker import Broker
from leveret.broker.core.delays.waiting import WaitingMessages
from leveret.broker.core.exchanges.delayed import DelayedExchange
from leveret.broker.management.http.prometheus.families import Family, Vhosts, gauge

_DELAYED: Final = (
    gauge("exchange_messages_delayed", "Messages that wait in an exchange x-delayed-message until they are due"),
    gauge("exchange_messages_delayed_bytes", "Size in bytes of messages that wait in an exchange x-delayed-message"),
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


EXCHANGE_FAMILIES: Final[tuple[Family[WaitingMessages], ...]] = (
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
