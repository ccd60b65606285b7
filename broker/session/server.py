"""State shared by all AMQP connections."""

from __future__ import annotations

import asyncio
import math
import platform
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from leveret.broker.auth.accounts import Accounts
from leveret.broker.config.options import Settings
from leveret.broker.core.broker import Broker
from leveret.broker.version import VERSION
from leveret.protocol.field_table import FieldTable, FieldValue, longstr

if TYPE_CHECKING:
    from leveret.broker.session.connection import Connection

#: Maximum bytes of one read. All connections share one buffer, so idle ones need none.
_READ_BUFFER_SIZE: Final = 262_144

#: Server capabilities; clients check them before they use a feature.
_CAPABILITIES: Final = (
    "publisher_confirms", "exchange_exchange_bindings", "basic.nack", "consumer_cancel_notify",
    "connection.blocked", "consumer_priorities", "authentication_failure_close", "per_consumer_qos",
    "direct_reply_to",
)  # fmt: skip


class Server:
    """State shared by all AMQP connections.

    Args:
        settings: The broker's configuration.
        broker: The broker.
        accounts: Users and permissions.
        loop: The event loop.

    Attributes:
        sockets: All open connections, including those in the handshake.
        all_closed: Set when no connection is open; the listener waits for it at shutdown.
        read_buffer: Read buffer of all connections; emptied before the next one reads.
        received: Total bytes received by all connections.
        check_memory_at: Value of received at which check_memory() is called once.
        check_memory: Checks memory use: fast input may fill the memory between two regular checks.
    """

    def __init__(self, settings: Settings, broker: Broker, accounts: Accounts, loop: asyncio.AbstractEventLoop) -> None:
        self.settings = settings
        self.broker = broker
        self.accounts = accounts
        self.loop = loop
        self.sockets: set[Connection] = set()
        self.all_closed = asyncio.Event()
        self.read_buffer = memoryview(bytearray(_READ_BUFFER_SIZE))
        self.received = 0
        self.check_memory_at = math.inf
        self.check_memory: Callable[[], object] = lambda: None
        if settings.cluster_name:
            broker.default_cluster_name = settings.cluster_name

    def check_memory_after(self, byte_count: float) -> None:
        """Schedule a call of check_memory() after this many more received bytes."""
        self.check_memory_at = self.received + byte_count

    def count_received(self, byte_count: int) -> None:
        """Count received bytes, and call check_memory() if it is due."""
        self.received += byte_count
        if self.received >= self.check_memory_at:
            self.check_memory_at = math.inf
            self.loop.call_soon(self.check_memory)

    @property
    def cluster_name(self) -> str:
        """Name of the cluster."""
        return self.broker.cluster_name

    @property
    def properties(self) -> FieldTable:
        """Server properties of connection.start; computed each time, as the cluster name may change."""
        advertised = self.settings.compat.advertise
        capabilities = tuple((name, FieldValue("t", True)) for name in _CAPABILITIES)
        return (
            ("capabilities", FieldValue("F", capabilities)),
            ("cluster_name", longstr(self.cluster_name)),
            ("copyright", longstr("Copyright the Leveret authors")),
            ("information", longstr(f"Leveret {VERSION}. Licensed under the Apache License 2.0")),
            (
                "platform",
                longstr(f"Leveret {VERSION} on {platform.python_implementation()} {platform.python_version()}"),
            ),
            ("product", longstr(advertised.product if advertised else "Leveret")),
            ("version", longstr(advertised.version if advertised else VERSION)),
        )

    def check_all_closed(self) -> None:
        """Set ``all_closed`` if no connection is open."""
        if not self.sockets:
            self.all_closed.set()
