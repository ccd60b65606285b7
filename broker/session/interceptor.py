"""The interface of what gets the events of AMQP connections before they do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from leveret.broker.core.clients import ClientConnection
from leveret.protocol.events import Event


class Interceptor(Protocol):
    """Gets the events of all connections of a broker inside a test; other brokers have none."""

    def wrap(self, connection: ClientConnection, handle: Callable[[Event], None]) -> Callable[[Event], None]:
        """Return what handles the events of a new connection.

        Args:
            connection: The connection, before its handshake.
            handle: Handles its events, and does not raise.
        """
