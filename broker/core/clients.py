"""Connections, channels and consumers as the core and the HTTP API see them, and how many each user has."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Set
from typing import Any, Final, Protocol

from leveret.broker.core.counters.counters import BrokerStatistics, ChannelCounters, ConnectionCounters
from leveret.broker.core.events import Actor, Events
from leveret.broker.core.queues.queue import Queue
from leveret.broker.core.vhosts.tracing import Tracer
from leveret.protocol.faults import AmqpFault
from leveret.protocol.field_table import FieldTable, as_text, find

#: AMQP 0-9-1, as RabbitMQ's events name it.
_PROTOCOL: Final = "{0,9,1}"


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
        events: Who is told of them.

    Attributes:
        by_user: Number of connections by user name, without zeros.
        by_vhost: Number of connections by virtual host, without zeros.
        channels_by_user: Number of open channels by user name, without zeros.
    """

    def __init__(self, statistics: BrokerStatistics, events: Events) -> None:
        self._statistics = statistics
        self._events = events
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
        self._events.tell(
            "connection.created", connection_fields, connection, self._events.node, actor=actor_of(connection)
        )

    def remove(self, connection: ClientConnection) -> None:
        """Remove a closed connection."""
        self._connections.remove(connection)
        self._statistics.connection_closed += 1
        _count_down(self.by_user, connection.username)
        _count_down(self.by_vhost, connection.vhost_name)
        self._events.tell("connection.closed", _identity_fields, connection, self._events.node)

    def channel_opened(self, channel: ClientChannel) -> None:
        """Count a new channel."""
        self._statistics.channel_created += 1
        self.channels_by_user[channel.client.username] += 1
        self._events.tell("channel.created", channel_fields, channel, actor=actor_of(channel.client))

    def channel_closed(self, channel: ClientChannel) -> None:
        """Count a closed channel."""
        self._statistics.channel_closed += 1
        _count_down(self.channels_by_user, channel.client.username)
        self._events.tell("channel.closed", closed_channel_fields, channel, actor=actor_of(channel.client))


def actor_of(client: ClientIdentity) -> Actor:
    """Return who acts over a connection."""
    return Actor(client.username, client.peer[0])


def client_provided_name(connection: ClientIdentity) -> str | None:
    """Return the client-provided connection name; None if there is none."""
    name = find(connection.client_properties, "connection_name")
    return as_text(name) if name is not None and name.kind == "S" else None


def channel_name(channel: ClientChannel) -> str:
    """Return the name of a channel: its connection's name and its number in brackets."""
    return f"{channel.client.name} ({channel.number})"


# -- fields of events, as in RabbitMQ's; names stand for processes ---------------------------------------


def connection_fields(connection: ClientConnection, node: str) -> dict[str, Any]:
    """Return the fields of ``connection.created``."""
    tls = connection.tls
    return {
        **_identity_fields(connection, node),
        "type": "network",
        "host": connection.local[0],
        "port": connection.local[1],
        "peer_host": connection.peer[0],
        "peer_port": connection.peer[1],
        "ssl": tls is not None,
        "ssl_protocol": "" if tls is None else tls.protocol,
        "ssl_cipher": "" if tls is None else tls.cipher,
        "ssl_key_exchange": "",
        "ssl_hash": "",
        "peer_cert_subject": "" if tls is None else tls.subject,
        "peer_cert_issuer": "" if tls is None else tls.issuer,
        "peer_cert_validity": "" if tls is None else tls.validity,
        "auth_mechanism": connection.auth_mechanism,
        "protocol": _PROTOCOL,
        "user": connection.username,
        "vhost": connection.vhost_name,
        "timeout": connection.heartbeat,
        "frame_max": connection.frame_max,
        "channel_max": connection.channel_max,
        "connected_at": connection.connected_at,
    }


def _identity_fields(connection: ClientIdentity, node: str) -> dict[str, Any]:
    return {
        "name": connection.name,
        "pid": connection.name,
        "node": node,
        "client_properties": connection.client_properties,
        "user_provided_name": client_provided_name(connection),
    }


def channel_fields(channel: ClientChannel) -> dict[str, Any]:
    """Return the fields of ``channel.created``."""
    client, name = channel.client, channel_name(channel)
    of_client = {"connection": client.name, "user": client.username, "vhost": client.vhost_name}
    return {"pid": name, "name": name, "number": channel.number, **of_client}


def closed_channel_fields(channel: ClientChannel) -> dict[str, Any]:
    """Return the fields of ``channel.closed``."""
    return {"pid": channel_name(channel)}


def consumer_fields(consumer: ClientConsumer) -> dict[str, Any]:
    """Return the fields of ``consumer.created``."""
    return {
        **ended_consumer_fields(consumer),
        "exclusive": consumer.exclusive,
        "ack_required": not consumer.no_ack,
        "prefetch_count": consumer.prefetch,
        "arguments": consumer.arguments,
    }


def ended_consumer_fields(consumer: ClientConsumer) -> dict[str, Any]:
    """Return the fields of ``consumer.deleted``."""
    of_queue = {"queue": consumer.queue.name, "vhost": consumer.queue.vhost_name}
    return {"consumer_tag": consumer.tag, "channel": channel_name(consumer.channel), **of_queue}


def login_fields(
    name: str,
    connection: str,
    ends: tuple[tuple[str, int], tuple[str, int]],
    mechanism: str,
    is_tls: bool,
    error: str = "",
) -> dict[str, Any]:
    """Return the fields of ``user.authentication.success`` and, with an error, ``user.authentication.failure``.

    Args:
        name: The user name that the client sent.
        connection: Name of the connection.
        ends: Address and port of the client and of the broker.
        mechanism: The SASL mechanism.
    """
    (peer_host, peer_port), (host, _) = ends
    return {
        "connection_type": "network",
        "name": name,
        "host": host,
        "connection_name": connection,
        "peer_host": peer_host,
        "peer_port": peer_port,
        "protocol": _PROTOCOL,
        "auth_mechanism": mechanism,
        "ssl": is_tls,
        "error": error or None,
    }


def _count_down(counts: Counter[str], name: str) -> None:
    counts[name] -= 1
    if not counts[name]:
        del counts[name]
