"""Limits the file descriptors of clients, so that enough are left for message storage."""

from __future__ import annotations

import logging
import os
import resource
from collections.abc import Callable, Sized
from typing import Final

log = logging.getLogger("leveret.connection")

#: File descriptors reserved for databases, event log, listeners and the event loop.
_RESERVED_FILES: Final = 100
#: HTTP clients may use one in this many client descriptors; AMQP clients may use those that HTTP does not use.
_HTTP_SHARE: Final = 4
#: The maximum for HTTP clients, as in RabbitMQ.
_HTTP_MAX: Final = 1024
#: HTTP connections that are always possible, so that operators can inspect an overloaded broker.
_HTTP_MIN: Final = 16
#: Descriptors of a TLS handshake: its socket is duplicated, so that the client can be told why it failed.
_HANDSHAKE: Final = 2


def open_files() -> int:
    """Return the number of open file descriptors; 0 if unknown."""
    try:
        return len(os.listdir("/proc/self/fd"))
    except OSError:
        return 0


def open_files_max() -> int:
    """Return the limit of open file descriptors."""
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


class Clients:
    """The sockets of the clients of one protocol.

    Args:
        protocol: Name of the protocol, for the log.
        limit: Returns the number of descriptors that they may use.

    Attributes:
        handshakes: Number of pending handshakes: TLS, or a PROXY header that has not arrived yet.
    """

    def __init__(self, protocol: str, limit: Callable[[], int]) -> None:
        self._protocol = protocol
        self._limit = limit
        self._was_full = False
        self._connections: list[Sized] = []
        self.handshakes = 0

    def count(self, connections: Sized) -> None:
        """Count the connections in a collection of a server, from now on."""
        self._connections.append(connections)

    @property
    def used(self) -> int:
        """File descriptors in use."""
        return sum(map(len, self._connections)) + _HANDSHAKE * self.handshakes

    @property
    def is_full(self) -> bool:
        """Whether no further connection is allowed."""
        return self.used >= self._limit()

    @property
    def _is_full_of_handshakes(self) -> bool:
        """Whether handshakes use half of the descriptors; the rest is for clients without a handshake."""
        return 2 * _HANDSHAKE * self.handshakes >= self._limit()

    def refuse(self, with_handshake: bool = False) -> bool:
        """Check whether a new client must be refused. This is logged once until a client is accepted again.

        Args:
            with_handshake: Whether the client needs a handshake before it is a connection.
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
        store_files: Number of message files that may be open.

    Attributes:
        amqp: Sockets of AMQP clients.
        http: Sockets of clients of the HTTP API, the web pages and the metrics.
    """

    def __init__(self, store_files: int) -> None:
        self.store_files = store_files
        self.amqp = Clients("AMQP", self._amqp_limit)
        self.http = Clients("HTTP", self._http_limit)

    @property
    def total(self) -> int:
        """Descriptors that clients may use: all but those for files, and at least half of all."""
        files = open_files_max()
        return max(files - _RESERVED_FILES - self.store_files, files // 2)

    @property
    def used(self) -> int:
        """Descriptors that clients use."""
        return self.amqp.used + self.http.used

    def _amqp_limit(self) -> int:
        return self.total - self.http.used

    def _http_limit(self) -> int:
        part = min(self.total // _HTTP_SHARE, _HTTP_MAX)
        return max(min(part, self.total - self.amqp.used), min(part, _HTTP_MIN))
