"""Exchanges, bindings and virtual hosts as JSON."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable
from typing import Any, Final
from urllib.parse import quote_plus, unquote_plus

from leveret.broker.core.counters.counters import ExchangeCounters
from leveret.broker.core.deduplication.filter import DuplicateFilter
from leveret.broker.core.delays.waiting_messages import WaitingMessages
from leveret.broker.core.exchanges.amqp_types import DEFAULT_EXCHANGE
from leveret.broker.core.exchanges.base import Binding, Exchange
from leveret.broker.core.exchanges.types import DeduplicatingExchange, DelayedExchange
from leveret.broker.core.json_values import table_to_json
from leveret.broker.core.queues.queue import Queue
from leveret.broker.core.vhosts.vhost import VirtualHost
from leveret.broker.management.fields import BINDING, EXCHANGE, VHOST
from leveret.broker.management.http.documents.views import document_maker, sort_keys
from leveret.broker.management.http.statistics import Rates, loss_stats, message_stats, numbers
from leveret.protocol.field_table import encode_table

#: Separate groups, so that each number is shown if it is more than 0.
_MESSAGES: Final = tuple(numbers(ExchangeCounters.FIELDS, name) for name in ExchangeCounters.FIELDS)
#: The key of a binding without routing key and arguments.
_EMPTY_KEY: Final = "~"
_HASH_SIZE: Final = 4


class ExchangeView:
    """The attributes of an exchange that the fields of EXCHANGE are read from.

    Args:
        rates: Rates of the request; None without statistics.
    """

    __slots__ = ("_node", "_rates", "exchange")

    def __init__(self, exchange: Exchange, node: str = "", rates: Rates | None = None) -> None:
        self.exchange = exchange
        self._node = node
        self._rates = rates

    arguments = property(lambda self: table_to_json(self.exchange.arguments))

    @property
    def waiting(self) -> WaitingMessages | None:
        """The messages that wait in it, if it delays messages and is open."""
        return self.exchange.waiting if isinstance(self.exchange, DelayedExchange) else None

    @property
    def deleted(self) -> bool:
        """Whether it delays messages and has been deleted."""
        return self.waiting is not None and self.waiting.deleted

    @property
    def next_delayed_at(self) -> int | None:
        """When the first of the messages is due, in milliseconds since 1970, rounded up: none is early."""
        due = None if self.waiting is None else self.waiting.schedule.due_times()
        return None if due is None else -(-due[0] // 1000)

    @property
    def duplicates(self) -> DuplicateFilter | None:
        """The header values that it remembers, if it drops duplicates and is open."""
        inner = self.exchange.router()
        return inner.duplicates if isinstance(inner, DeduplicatingExchange) else None

    @property
    def cache_info(self) -> dict[str, Any]:
        """The values that it remembers."""
        assert self.duplicates is not None
        info = self.duplicates.info()
        return {"bytes": info.memory, "entries": info.entries, "nodes": [self._node], "size": self.duplicates.size}

    @property
    def remembered(self) -> int:
        """Number of these values."""
        return 0 if self.duplicates is None else self.duplicates.info().entries

    @property
    def message_stats(self) -> dict[str, Any] | None:
        """Numbers of messages with their rates."""
        counters = self.exchange.counters
        return (message_stats(self._rates, _MESSAGES, counters.row(), counters) or None) if self._rates else None

    @property
    def loss_stats(self) -> dict[str, Any] | None:
        """Lost messages with their rates."""
        return (loss_stats(self.exchange.counters, self._rates) or None) if self._rates else None


class VirtualHostView:
    """The attributes of a virtual host that the fields of VHOST are read from."""

    __slots__ = ("metadata", "node", "vhost")

    def __init__(self, vhost: VirtualHost, node: str = "") -> None:
        self.vhost = vhost
        self.metadata = vhost.metadata
        self.node = node

    @property
    def further(self) -> dict[str, Any]:
        """RabbitMQ shows description, tags and the default queue type a second time."""
        metadata = self.metadata
        inner: dict[str, Any] = {"description": metadata.description, "tags": list(metadata.tags)}
        if metadata.default_queue_type is not None:
            inner["default_queue_type"] = metadata.default_queue_type
        return inner


class BindingView:
    """The attributes of a binding that the fields of BINDING are read from."""

    __slots__ = ("binding", "identity")

    def __init__(self, binding: Binding) -> None:
        self.binding = binding
        self.identity = binding.identity

    arguments = property(lambda self: table_to_json(self.binding.arguments))
    properties_key = property(lambda self: properties_key(self.binding))


def _exchange_maker(*kinds: str) -> Callable[[object], dict[str, Any]]:
    return document_maker(field for field in EXCHANGE if not field.single and (not field.of or field.of[0] in kinds))


#: By whether it delays messages, and whether it drops duplicates.
_EXCHANGES: Final = {
    (False, False): _exchange_maker(),
    (True, False): _exchange_maker("delayed"),
    (False, True): _exchange_maker("deduplicating"),
    (True, True): _exchange_maker("delayed", "deduplicating"),
}
_more_of_exchange: Final = document_maker(field for field in EXCHANGE if field.single)
#: Values that lists are sorted by, by field. Sorting by others makes all documents.
EXCHANGE_SORT_KEYS: Final = sort_keys((field for field in EXCHANGE if not field.of), ExchangeView)
_vhost: Final = document_maker(VHOST)
_binding: Final = document_maker(BINDING)


def exchange_document(exchange: Exchange, node: str, rates: Rates | None) -> dict[str, Any]:
    """Return an exchange. See ExchangeView."""
    view = ExchangeView(exchange, node, rates)
    return _EXCHANGES[view.waiting is not None, view.duplicates is not None](view)


def single_exchange_document(exchange: Exchange, node: str, rates: Rates | None) -> dict[str, Any]:
    """Return an exchange with all fields. See ExchangeView."""
    return exchange_document(exchange, node, rates) | _more_of_exchange(ExchangeView(exchange))


def vhost_document(vhost: VirtualHost, node: str) -> dict[str, Any]:
    """Return a virtual host without statistics. See VirtualHostView."""
    return _vhost(VirtualHostView(vhost, node))


def default_binding(vhost: VirtualHost, queue: Queue) -> Binding:
    """Return the implicit binding of a queue to the default exchange."""
    return Binding(vhost.topology.exchanges[DEFAULT_EXCHANGE], queue, queue.name)


def binding_document(binding: Binding) -> dict[str, Any]:
    """Return a binding."""
    return _binding(BindingView(binding))


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
        segment: The segment, decoded once. Some clients encode the properties key again for the path.
    """
    return segment == key or unquote_plus(segment) == unquote_plus(key)
