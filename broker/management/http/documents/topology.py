"""Exchanges and bindings as JSON."""

from __future__ import annotations

import base64
import hashlib
from typing import Any, Final
from urllib.parse import quote_plus, unquote_plus

from leveret.broker.core.counters.counters import ExchangeCounters
from leveret.broker.core.exchanges.base import Binding, Exchange
from leveret.broker.core.exchanges.deduplicating import DeduplicatingExchange
from leveret.broker.core.exchanges.default import DEFAULT_EXCHANGE
from leveret.broker.core.exchanges.delayed import DelayedExchange
from leveret.broker.core.json_values.tables import table_to_json
from leveret.broker.core.queues.queue import Queue
from leveret.broker.core.vhosts.vhost import VirtualHost
from leveret.broker.management.http.documents.losses import loss_stats
from leveret.broker.management.http.statistics import Rates, message_stats, numbers
from leveret.protocol.field_table import encode_table

#: Separate groups, so that each number is shown if it is more than 0.
_MESSAGES: Final = tuple(numbers(ExchangeCounters.FIELDS, name) for name in ExchangeCounters.FIELDS)
#: The key of a binding without routing key and arguments.
_EMPTY_KEY: Final = "~"
_HASH_SIZE: Final = 4


def exchange_document(exchange: Exchange, node: str, rates: Rates | None) -> dict[str, Any]:
    """Return an exchange.

    Args:
        exchange: The exchange.
        node: Name of the node.
        rates: Rates of the request; None without statistics.
    """
    document: dict[str, Any] = {
        "name": exchange.name,
        "vhost": exchange.vhost_name,
        "type": exchange.type_name,
        "durable": exchange.durable,
        "auto_delete": exchange.auto_delete,
        "internal": exchange.internal,
        "arguments": table_to_json(exchange.arguments),
    }
    if isinstance(exchange, DelayedExchange) and exchange.waiting is not None:
        document["messages_delayed"] = exchange.waiting.count
        document["message_bytes_delayed"] = exchange.waiting.body_bytes
        due = exchange.waiting.schedule.due_times()
        document["next_delayed_at"] = None if due is None else -(-due[0] // 1000)
    deduplicating = exchange.router()
    if isinstance(deduplicating, DeduplicatingExchange) and deduplicating.duplicates is not None:
        info, size = deduplicating.duplicates.info(), deduplicating.duplicates.size
        document["cache_info"] = {"bytes": info.memory, "entries": info.entries, "nodes": [node], "size": size}
        document["deduplicated"] = exchange.counters.deduplicated
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


def properties_key(binding: Binding) -> str:
    """Return the properties key of a binding: its percent-encoded routing key and a hash of its arguments, if any."""
    # quote_plus does not encode the tilde, which separates key and hash here.
    key = quote_plus(binding.routing_key, errors="surrogateescape").replace("~", "%7E")
    if not binding.arguments:
        return key or _EMPTY_KEY
    digest = hashlib.blake2b(encode_table(binding.arguments), digest_size=_HASH_SIZE).digest()
    return f"{key}~{base64.urlsafe_b64encode(digest).decode('ascii').rstrip('=')}"


def matches_properties_key(key: str, segment: str) -> bool:
    """Check whether a path segment names the binding with a properties key.

    Args:
        key: The properties key.
        segment: The segment, decoded once. Some clients encode the properties key again for the path.
    """
    return segment == key or unquote_plus(segment) == unquote_plus(key)
