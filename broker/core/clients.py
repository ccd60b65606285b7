"""Connections, channels and consumers as the core and the HTTP API see them, and how many each user has."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Set
from typing import Protocol

from leveret.broker.core.counters.counters import ChannelCounters, ConnectionCounters
from leveret.broker.core.counters.totals import BrokerStatistics
from leveret.broker.core.queues.queue import Queue
from leveret.broker.core.vhosts.tracing import Tracer
from leveret.protocol.faults import AmqpFault
from leveret.protocol.field_table import FieldTable


class ClientIdentity(Protocol):
    """What identifies an open connection, and its user.

    Attributes:
        username: Name of the user.
        vhost_name: Name of the virtual host.
        name: ``CLIENT -> BROKER``, each with address and port.
        peer: Address and port of the client.
        client_properties: Client properties as received.
    """

    username: str
    vhost_name: str
    name: str
    peer: tuple[str, int]
    client_properties: FieldTable


class ClientConsumer(Protocol):
    """A consumer of a client.

    Attributes:
        channel: Its channel.
        queue: The queue consumed from.
        tag: The consumer tag.
        no_ack: Whether messages are settled once sent.
        exclusive: Whether it is the only consumer allowed on the queue.
        prefetch: Limit of unacked messages; 0 for no limit.
        arguments: Consumer arguments as received.
    """

    tag: str
    queue: Queue
    no_ack: bool
    exclusive: bool
    prefetch: int
    arguments: FieldTable

    @property
    def channel(self) -> ClientChannel:
        """The channel of the consumer."""

    @property
    def timeout_ms(self) -> int | None:
        """Its own acknowledgement timeout in milliseconds; None if the option consumer_timeout applies."""


class ClientChannel(Protocol):
    """An open channel.

    Attributes:
        number: 1..65535.
        default_prefetch: Prefetch limit of new consumers; 0 for no limit.
        counters: Counters of the channel.
        tracer: Tracer of the virtual host; None while tracing is off.
    """

    number: int
    default_prefetch: int
    counters: ChannelCounters
    tracer: Tracer | None

    @property
    def client(self) -> ClientIdentity:
        """The connection of the channel, and its user."""

    @property
    def prefetch(self) -> int:
        """Prefetch limit of all consumers together; 0 for no limit."""

    @property
    def consumers(self) -> Mapping[str, ClientConsumer]:
        """Consumers by tag."""

    @property
    def confirming(self) -> bool:
        """Whether it is in confirm mode."""

    @property
    def transactional(self) -> bool:
        """Whether it is in transaction mode."""

    @property
    def unacked_count(self) -> int:
        """Number of unacked messages."""

    @property
    def unconfirmed_count(self) -> int:
        """Number of publishes that are not confirmed yet."""

    @property
    def uncommitted(self) -> tuple[int, int]:
        """Number of publishes and of acknowledgements in the current transaction."""


class ClientChannels(Iterable[ClientChannel], Protocol):
    """The open channels of a connection."""

    def __len__(self) -> int:
        """Return the number of open channels."""


class ClientOutput(Protocol):
    """The sending half of a connection.

    Attributes:
        counters: Bytes read and written.
    """

    counters: ConnectionCounters

    def pending_bytes(self) -> int:
        """Return the bytes in the output buffer."""


class ClientTls(Protocol):
    """TLS parameters of a connection."""

    @property
    def protocol(self) -> str:
        """The TLS version, for example ``tlsv1.3``."""

    @property
    def cipher(self) -> str:
        """The cipher suite."""

    @property
    def subject(self) -> str:
        """Subject of the client's certificate; "" without a certificate."""

    @property
    def issuer(self) -> str:
        """Issuer of the client's certificate."""

    @property
    def validity(self) -> str:
        """Validity period of the client's certificate."""


class ClientConnection(ClientIdentity, Protocol):
    """An open connection.

    Attributes:
        local: Address and port of the broker.
        auth_mechanism: SASL mechanism of the login.
        connected_at: Time of the connect, in milliseconds since 1970.
        heartbeat: Negotiated heartbeat timeout in seconds; 0 for none.
        channel_max: Limit of open channels.
        frame_max: Maximum frame size in bytes.
    """

    local: tuple[str, int]
    auth_mechanism: str
    connected_at: int
    heartbeat: int
    channel_max: int
    frame_max: int

    @property
    def blocked(self) -> bool:
        """Whether it is blocked by a resource alarm: it has published while one was set."""

    @property
    def channels(self) -> ClientChannels:
        """The open channels."""

    @property
    def tls(self) -> ClientTls | None:
        """TLS parameters; None without TLS."""

    @property
    def output(self) -> ClientOutput:
        """The sending half."""

    def terminate(self, fault: AmqpFault) -> None:
        """Close the connection with a fault."""


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
