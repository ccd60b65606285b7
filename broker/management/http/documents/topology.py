"""Exchanges and bindings as JSON."""

from __future__ import annotations

from typing import Any, Final

from leveret.broker.core.exchanges.base import Exchange
from leveret.broker.core.exchanges.bindings import Binding
from leveret.broker.core.exchanges.default import DEFAULT_EXCHANGE
from leveret.broker.core.json_values.tables import table_to_json
from leveret.broker.core.queues.queue import Queue
from leveret.broker.core.stats.counters import ExchangeCounters
from leveret.broker.core.vhost import VirtualHost
from leveret.broker.management.http.binding_keys import properties_key
from leveret.broker.management.http.documents.losses import loss_stats
from leveret.broker.management.http.rates import Rates, message_stats, numbers

#: Separate groups, so that each number is shown if it is more than 0.
_MESSAGES: Final = tuple(numbers(ExchangeCounters.FIELDS, name) for name in ExchangeCounters.FIELDS)


def exchange_document(exchange: Exchange, rates: Rates | None) -> dict[str, Any]:
    """Return an exchange.

    Args:
        exchange: The exchange.
        rates: Rates of the request; None without statistics.
    """
    document = {
        "name": exchange.name,
        "vhost": exchange.vhost_name,
        "type": exchange.type_name,
        "durable": exchange.durable,
        "auto_delete": exchange.auto_delete,
        "internal": exchange.internal,
        "arguments": table_to_json(exchange.arguments),
    }
    if exchange.policy is not None:
        document["policy"] = exchange.policy.name
    if rates is not None:
        stats = message_stats(rates, _MESSAGES, exchange.counters.row(), exchange.counters)
        if stats:
            document["message_stats"] = stats
        lost = loss_stats(exchange.counters, rates)
        if lost:
            document["loss_stats"] = lost
    return document


def default_binding(vhost: VirtualHost, queue: Queue) -> Binding:
    """Return the implicit binding of a queue to the default exchange."""
    return Binding(vhost.topology.exchanges[DEFAULT_EXCHANGE], queue, queue.name)


def binding_document(binding: Binding) -> dict[str, Any]:
    """Return a binding."""
    identity = binding.identity
    return {
        "source": identity.source,
        "vhost": binding.source.vhost_name,
        "destination": identity.destination,
        "destination_type": identity.destination_type,
        "routing_key": identity.routing_key,
        "arguments": table_to_json(binding.arguments),
        "properties_key": properties_key(binding),
    }
