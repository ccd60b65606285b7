"""Registry of exchange types. A new type needs a file in this folder and a row in plain_types.py."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from leveret.broker.core.exchanges.base import Exchange
from leveret.broker.core.exchanges.delayed import DelayedExchange
from leveret.broker.core.exchanges.plain_types import PLAIN_TYPES, index_types, unknown_type_text
from leveret.protocol.faults import ConnectionFault, ReplyCode, precondition_failed

#: The type that RabbitMQ's federation declares on the upstream broker. If it is refused exactly as by RabbitMQ 3.10,
#: federation uses a fanout exchange instead; after any other error it does not start.
_FEDERATION_TYPE: Final = "x-federation-upstream"

EXCHANGE_TYPES: Final[Mapping[str, type[Exchange]]] = index_types((*PLAIN_TYPES.values(), DelayedExchange))


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
