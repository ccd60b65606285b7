"""Several interceptors in a row."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from leveret.broker.core.clients import ClientConnection
from leveret.broker.session.server import Interceptor
from leveret.protocol.events import Event


class Interceptors:
    """Passes events through several interceptors. Implements Interceptor.

    Args:
        parts: The interceptors; the first one gets events first.
    """

    def __init__(self, parts: Sequence[Interceptor]) -> None:
        self._parts = parts

    def wrap(self, connection: ClientConnection, handle: Callable[[Event], None]) -> Callable[[Event], None]:
        """Return what handles the events of a new connection."""
        for part in reversed(self._parts):
            handle = part.wrap(connection, handle)
        return handle
