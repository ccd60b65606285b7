"""What all connections of a broker share."""

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

#: Read at most so much at once. One buffer serves all connections, so idle ones cost none.
_READ_BUFFER_SIZE: Final = 262_144

#: What Leveret can do, as clients look for it (they refuse features that are missing here).
_CAPABILITIES: Final = (
    "publisher_confirms", "exchange_exchange_bindings", "basic.nack", "consumer_cancel_notify",
    "connection.blocked", "consumer_priorities", "authentication_failure_close", "per_consumer_qos",
    "direct_reply_to",
)  # fmt: skip


class Server:
    """The context of all connections.

    Args:
        settings: The broker's configuration.
        broker: Its state.
        accounts: Its users.
        loop: The event loop that everything runs in.

    Attributes:
        sockets: All open connections, also those that have not opened a virtual host.
        all_gone: Set once the last connection has gone; the listener waits for it when it stops.
        read_buffer: What connections read into, one at a time.
        received: Bytes that all connections have received.
        watch_at: When they are as many, watch() is called once.
        watch: Looks at the memory, soon: what comes in fast may fill it between two regular looks.
    """

    def __init__(self, settings: Settings, broker: Broker, accounts: Accounts, loop: asyncio.AbstractEventLoop) -> None:
        self.settings = settings
        self.broker = broker
        self.accounts = accounts
        self.loop = loop
        self.sockets: set[Connection] = set()
        self.all_gone = asyncio.Event()
        self.read_buffer = memoryview(bytearray(_READ_BUFFER_SIZE))
        self.received = 0
        self.watch_at = math.inf
        self.watch: Callable[[], object] = lambda: None
        if settings.cluster_name:
            broker.default_cluster_name = settings.cluster_name

    def watch_after(self, byte_count: float) -> None:
        """Have watch() called after this many more bytes."""
        self.watch_at = self.received + byte_count

    def note_received(self, byte_count: int) -> None:
        """A connection has received something."""
        self.received += byte_count
        if self.received >= self.watch_at:
            self.watch_at = math.inf
            self.loop.call_soon(self.watch)

    @property
    def cluster_name(self) -> str:
        """What the cluster is called."""
        return self.broker.cluster_name

    @property
    def properties(self) -> FieldTable:
        """What connection.start tells clients; the cluster may have got another name since the last one."""
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

    def check_all_gone(self) -> None:
        """Set ``all_gone`` if no connection is open."""
        if not self.sockets:
            self.all_gone.set()
