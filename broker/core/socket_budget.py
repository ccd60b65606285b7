"""How many file descriptors clients may have, all listeners together: the store needs some too."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from leveret.broker.core.stats.node import open_files_max

log = logging.getLogger("leveret.connection")

#: File descriptors besides those for clients and for the store's messages: databases, event log, listeners, the loop.
_OTHERS: Final = 100
#: Of the descriptors for clients HTTP has this part at most; AMQP has what HTTP leaves.
_HTTP_PART: Final = 4
#: And never more than so many, as in RabbitMQ.
_HTTP_MAX: Final = 1024
#: So many HTTP connections there may be even if AMQP has all others: somebody has to look what is wrong.
_HTTP_MIN: Final = 16
#: A TLS handshake has its socket twice, so that the client can be told why it failed.
_HANDSHAKE: Final = 2


class Clients:
    """The sockets of the clients of one protocol.

    Args:
        protocol: Its name.
        limit: How many descriptors they may have.

    Attributes:
        open: Counts the connections.
        handshakes: Those that are not connections yet: they come through TLS, or a proxy's header is awaited.
    """

    def __init__(self, protocol: str, limit: Callable[[], int]) -> None:
        self._protocol = protocol
        self._limit = limit
        self._was_full = False
        self.open: Callable[[], int] = lambda: 0
        self.handshakes = 0

    @property
    def used(self) -> int:
        """File descriptors that they have."""
        return self.open() + _HANDSHAKE * self.handshakes

    @property
    def is_full(self) -> bool:
        """Whether no further one may come."""
        return self.used >= self._limit()

    @property
    def _is_full_of_handshakes(self) -> bool:
        """Whether handshakes have half of what there is; the rest is for clients that come without one."""
        return 2 * _HANDSHAKE * self.handshakes >= self._limit()

    def refuse(self, with_handshake: bool = False) -> bool:
        """Whether a client has to be refused, which is logged once until there is room again.

        Args:
            with_handshake: It is not a connection at once.
        """
        is_full = self.is_full or (with_handshake and self._is_full_of_handshakes)
        if is_full and not self._was_full:
            log.error(
                "refusing %s connections: their clients have %d of %d file descriptors (ulimit -n), and there are none"
                " for more",
                self._protocol,
                self.used,
                open_files_max(),
            )
        self._was_full = is_full
        return is_full


class SocketBudget:
    """The file descriptors for the clients of all listeners.

    Args:
        store_files: Files that the store may have open for messages.

    Attributes:
        amqp: AMQP clients.
        http: Those of the HTTP API, the pages and the metrics.
    """

    def __init__(self, store_files: int = 384) -> None:
        self.store_files = store_files
        self.amqp = Clients("AMQP", self._amqp_limit)
        self.http = Clients("HTTP", self._http_limit)

    @property
    def total(self) -> int:
        """Descriptors that clients may have: those that nothing else needs, and half of all at least."""
        files = open_files_max()
        return max(files - _OTHERS - self.store_files, files // 2)

    @property
    def used(self) -> int:
        """Descriptors that clients have."""
        return self.amqp.used + self.http.used

    def _amqp_limit(self) -> int:
        return self.total - self.http.used

    def _http_limit(self) -> int:
        part = min(self.total // _HTTP_PART, _HTTP_MAX)
        return max(min(part, self.total - self.amqp.used), min(part, _HTTP_MIN))
