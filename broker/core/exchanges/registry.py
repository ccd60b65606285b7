"""Registry of exchange types. A new type needs a file in this folder and a row here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from leveret.broker.core.exchanges.base import Exchange
from leveret.broker.core.exchanges.consistent_hash import ConsistentHashExchange
from leveret.broker.core.exchanges.direct import DirectExchange
from leveret.broker.core.exchanges.fanout import FanoutExchange
from leveret.broker.core.exchanges.headers import HeadersExchange
from leveret.broker.core.exchanges.local_random import LocalRandomExchange
from leveret.broker.core.exchanges.modulus_hash import ModulusHashExchange
from leveret.broker.core.exchanges.random_exchange import RandomExchange
from leveret.broker.core.exchanges.recent_history import RecentHistoryExchange
from leveret.broker.core.exchanges.topic import TopicExchange
from leveret.protocol.faults import ConnectionFault, ReplyCode, precondition_failed

#: Words that exist as atoms in RabbitMQ but are not exchange types: its error text is ``invalid``, not ``unknown``.
_OTHER_WORDS: Final = frozenset(
    (
        *("", "all", "amqp", "classic", "consistent", "default", "durable", "exchange", "exchanges", "false"),
        *("federation", "hash", "internal", "lazy", "local", "message", "mqtt", "none", "null", "policy", "priority"),
        *("queue", "queues", "quorum", "rabbit", "random", "stream", "system", "true", "undefined"),
    )
)

#: The type that RabbitMQ's federation declares on the upstream broker. If it is refused exactly as by RabbitMQ 3.10,
#: federation uses a fanout exchange instead; after any other error it does not start.
_FEDERATION_TYPE: Final = "x-federation-upstream"


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


EXCHANGE_TYPES: Final[Mapping[str, type[Exchange]]] = index_types(
    (
        DirectExchange,
        FanoutExchange,
        HeadersExchange,
        TopicExchange,
        ConsistentHashExchange,
        LocalRandomExchange,
        ModulusHashExchange,
        RandomExchange,
        RecentHistoryExchange,
    )
)


def check_exchange_type(type_name: str) -> None:
    """Refuse an exchange type that does not exist.

    Raises:
        ChannelFault: PRECONDITION_FAILED (406), as RabbitMQ since 4.0; 3.10 closes the connection with 503.
        ConnectionFault: COMMAND_INVALID (503) for the type of federation.
    """
    if type_name == _FEDERATION_TYPE:
        raise ConnectionFault(ReplyCode.COMMAND_INVALID, f"unknown exchange type '{type_name}'")
    if type_name not in EXCHANGE_TYPES:
        raise precondition_failed(unknown_type_text(type_name))


def unknown_type_text(type_name: str) -> str:
    """Return RabbitMQ's error text for an exchange type that does not exist."""
    adjective = "invalid" if type_name in _OTHER_WORDS else "unknown"
    return f"{adjective} exchange type '{type_name}'"
