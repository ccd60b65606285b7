"""The open connections and channels of a broker, and how many each user and virtual host has."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Set

from leveret.broker.core.clients import ClientConnection
from leveret.broker.core.stats.totals import BrokerStatistics


class Connections(Set[ClientConnection]):
    """The connections that have opened a virtual host.

    Args:
        statistics: Counts opened and closed connections and channels.

    Attributes:
        by_user: Number of connections by user name, without zeros.
        by_vhost: Number of connections by virtual host, without zeros.
        channels_by_user: Number of open channels by user name, without zeros.
    """

    def __init__(self, statistics: BrokerStatistics) -> None:
        self._statistics = statistics
        self._connections: set[ClientConnection] = set()
        self.by_user: Counter[str] = Counter()
        self.by_vhost: Counter[str] = Counter()
        self.channels_by_user: Counter[str] = Counter()

    def __contains__(self, connection: object) -> bool:
        return connection in self._connections

    def __iter__(self) -> Iterator[ClientConnection]:
        return iter(self._connections)

    def __len__(self) -> int:
        return len(self._connections)

    @property
    def channel_count(self) -> int:
        """Number of open channels of all connections."""
        return self._statistics.channel_created - self._statistics.channel_closed

    def add(self, connection: ClientConnection) -> None:
        """Add a connection that has opened its virtual host."""
        self._connections.add(connection)
        self._statistics.connection_created += 1
        self.by_user[connection.username] += 1
        self.by_vhost[connection.vhost_name] += 1

    def remove(self, connection: ClientConnection) -> None:
        """Remove a closed connection."""
        self._connections.remove(connection)
        self._statistics.connection_closed += 1
        _count_down(self.by_user, connection.username)
        _count_down(self.by_vhost, connection.vhost_name)

    def channel_opened(self, username: str) -> None:
        """Count a new channel of a user."""
        self._statistics.channel_created += 1
        self.channels_by_user[username] += 1

    def channel_closed(self, username: str) -> None:
        """Count a closed channel of a user."""
        self._statistics.channel_closed += 1
        _count_down(self.channels_by_user, username)


def _count_down(counts: Counter[str], name: str) -> None:
    counts[name] -= 1
    if not counts[name]:
        del counts[name]
