"""The exchange types there are. A new type is a file in this folder and a row here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from leveret.broker.core.exchanges.base import Exchange
from leveret.broker.core.exchanges.direct import DirectExchange
from leveret.broker.core.exchanges.fanout import FanoutExchange
from leveret.broker.core.exchanges.headers import HeadersExchange
from leveret.broker.core.exchanges.topic import TopicExchange
from leveret.protocol.faults import ConnectionFault, ReplyCode, precondition_failed

#: Words that RabbitMQ knows, though not as an exchange type: it says ``invalid`` instead of ``unknown`` for them.
_OTHER_WORDS: Final = frozenset(
    (
        *("", "all", "amqp", "classic", "consistent", "default", "durable", "exchange", "exchanges", "false"),
        *("federation", "hash", "internal", "lazy", "local", "message", "mqtt", "none", "null", "policy", "priority"),
        *("queue", "queues", "quorum", "rabbit", "random", "stream", "system", "true", "undefined"),
    )
)

#: The type that RabbitMQ's federation wants on the broker that it gets messages from. It takes a fanout exchange
#: instead where the type is refused as 3.10 refuses it, and does not come about where it is refused in another way.
_FEDERATION_TYPE: Final = "x-federation-upstream"


def index_types(types: Iterable[type[Exchange]]) -> dict[str, type[Exchange]]:
    """Exchange types by name.

    Raises:
        ValueError: Two have the same name.
    """
    index: dict[str, type[Exchange]] = {}
    for exchange_type in types:
        name = exchange_type.type_name
        if name in index:
            raise ValueError(f"exchange type {name!r} is there twice: {index[name]}, {exchange_type}")
        index[name] = exchange_type
    return index


EXCHANGE_TYPES: Final[Mapping[str, type[Exchange]]] = index_types(
    (
        DirectExchange,
        FanoutExchange,
        HeadersExchange,
        TopicExchange,
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
    """What RabbitMQ says of an exchange type that does not exist."""
    judgement = "invalid" if type_name in _OTHER_WORDS else "unknown"
    return f"{judgement} exchange type '{type_name}'"
