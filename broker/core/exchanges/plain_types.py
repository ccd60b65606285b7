"""The exchange types that route a message at once: all but x-delayed-message, which has one of them inside.

A new type needs a file in this folder and a row here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from leveret.broker.core.exchanges.base import Exchange
from leveret.broker.core.exchanges.consistent_hash import ConsistentHashExchange
from leveret.broker.core.exchanges.deduplicating import DeduplicatingExchange
from leveret.broker.core.exchanges.direct import DirectExchange
from leveret.broker.core.exchanges.fanout import FanoutExchange
from leveret.broker.core.exchanges.headers import HeadersExchange
from leveret.broker.core.exchanges.local_random import LocalRandomExchange
from leveret.broker.core.exchanges.modulus_hash import ModulusHashExchange
from leveret.broker.core.exchanges.random_exchange import RandomExchange
from leveret.broker.core.exchanges.recent_history import RecentHistoryExchange
from leveret.broker.core.exchanges.topic import TopicExchange

#: Words that exist as atoms in RabbitMQ but are not exchange types: its error text is ``invalid``, not ``unknown``.
_OTHER_WORDS: Final = frozenset(
    (
        *("", "all", "amqp", "classic", "consistent", "default", "durable", "exchange", "exchanges", "false"),
        *("federation", "hash", "internal", "lazy", "local", "message", "mqtt", "none", "null", "policy", "priority"),
        *("queue", "queues", "quorum", "rabbit", "random", "stream", "system", "true", "undefined"),
    )
)


def index_types(types: Iterable[type[Exchange]]) -> dict[str, type[Exchange]]:
    """Return exchange types by name.

    Raises:
        ValueError: Two types have the same name.
    """
    index: dict[str, type[Exchange]] = {}
    for exchange_type in types:
        name = exchange_type.type_name
        if name in index:
            raise ValueError(f"exchange type {name!r} is registered twice: {index[name]}, {exchange_type}")
        index[name] = exchange_type
    return index


PLAIN_TYPES: Final[Mapping[str, type[Exchange]]] = index_types(
    (
        DirectExchange,
        FanoutExchange,
        HeadersExchange,
        TopicExchange,
        ConsistentHashExchange,
        DeduplicatingExchange,
        LocalRandomExchange,
        ModulusHashExchange,
        RandomExchange,
        RecentHistoryExchange,
    )
)


def unknown_type_text(type_name: str) -> str:
    """Return RabbitMQ's error text for an exchange type that does not exist."""
    adjective = "invalid" if type_name in _OTHER_WORDS else "unknown"
    return f"{adjective} exchange type '{type_name}'"
