"""State shared by all AMQP connections."""

from __future__ import annotations

import asyncio
import platform
from collections.abc import Callable
from typing import Final, Protocol

from leveret.broker.auth.accounts import Accounts
from leveret.broker.config.options import Settings
from leveret.broker.core.broker import Broker
from leveret.broker.core.clients import ClientConnection
from leveret.broker.core.resources.memory_checks import MemoryChecks
from leveret.broker.version import VERSION
from leveret.protocol.events import Event
from leveret.protocol.field_table import FieldTable, FieldValue, longstr

#: Server capabilities; clients check them before they use a feature.
_CAPABILITIES: Final = (
    "publisher_confirms", "exchange_exchange_bindings", "basic.nack", "consumer_cancel_notify",
    "connection.blocked", "consumer_priorities", "authentication_failure_close", "per_consumer_qos",
    "direct_reply_to",
)  # fmt: skip


class Interceptor(Protocol):
    """Gets the events of all connections of a broker inside a test; other brokers have none."""

    def wrap(self, connection: ClientConnection, handle: Callable[[Event], None]) -> Callable[[Event], None]:
        """Return what handles the events of a new connection.

        Args:
            connection: The connection, before its handshake.
            handle: Handles its events, and does not raise.
        """


class Server:
    """State shared by all AMQP connections.

    Args:
        memory_checks: Count received bytes, to check memory in time.
        interceptor: Gets the events of all connections first, in tests; None for none.
    """

    def __init__(
        self,
        settings: Settings,
        broker: Broker,
        accounts: Accounts,
        memory_checks: MemoryChecks,
        loop: asyncio.AbstractEventLoop,
        interceptor: Interceptor | None = None,
    ) -> None:
        self.settings = settings
        self.broker = broker
        self.accounts = accounts
        self.memory_checks = memory_checks
        self.loop = loop
        self.interceptor = interceptor

    @property
    def properties(self) -> FieldTable:
        """Server properties of connection.start; computed each time, as the cluster name may change."""
        advertised = self.settings.compat.advertise
        capabilities = tuple((name, FieldValue("t", True)) for name in _CAPABILITIES)
        return (
            ("capabilities", FieldValue("F", capabilities)),
            ("cluster_name", longstr(self.broker.cluster_name)),
            ("copyright", longstr("Copyright the Leveret authors")),
            ("information", longstr(f"Leveret {VERSION}. Licensed under the Apache License 2.0")),
            (
                "platform",
                longstr(f"Leveret {VERSION} on {platform.python_implementation()} {platform.python_version()}"),
            ),
            ("product", longstr(advertised.product if advertised else "Leveret")),
            ("version", longstr(advertised.version if advertised else VERSION)),
        )
