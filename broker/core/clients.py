"""Clients, as the rest of the broker sees them: connections, their channels, and the consumers there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

from leveret.broker.core.queues.queue import Queue
from leveret.broker.core.stats.counters import ChannelCounters, ConnectionCounters
from leveret.broker.core.tracing import Tracer
from leveret.protocol.faults import AmqpFault
from leveret.protocol.field_table import FieldTable


class ClientConsumer(Protocol):
    """A consumer of a client.

    Attributes:
        channel: Where it consumes.
        queue: What it consumes from.
        tag: Its consumer tag.
        no_ack: Messages count as settled once sent.
        exclusive: No other consumer beside it.
        prefetch: Unacked messages it may hold; 0 for any number.
        arguments: As they came.
    """

    tag: str
    queue: Queue
    no_ack: bool
    exclusive: bool
    prefetch: int
    arguments: FieldTable

    @property
    def channel(self) -> ClientChannel:
        """Where it consumes."""


class ClientChannel(Protocol):
    """An open channel.

    Attributes:
        number: 1..65535.
        default_prefetch: Limit of consumers to come; 0 for none.
        counters: What has happened on it.
        tracer: That of its virtual host while tracing is on.
    """

    number: int
    default_prefetch: int
    counters: ChannelCounters
    tracer: Tracer | None

    @property
    def connection(self) -> ClientConnection:
        """Its connection."""

    @property
    def prefetch(self) -> int:
        """Limit of all consumers together; 0 for none."""

    @property
    def consumers(self) -> Mapping[str, ClientConsumer]:
        """Its consumers by tag."""

    @property
    def confirming(self) -> bool:
        """Whether it is in confirm mode."""

    @property
    def transactional(self) -> bool:
        """Whether it is in transaction mode."""

    @property
    def unacked_count(self) -> int:
        """Messages that the client has yet to acknowledge."""

    @property
    def unconfirmed_count(self) -> int:
        """Publishes that are to be confirmed."""

    @property
    def uncommitted(self) -> tuple[int, int]:
        """Publishes and acknowledgements that wait for commit."""


class ClientChannels(Iterable[ClientChannel], Protocol):
    """The open channels of a connection."""

    def __len__(self) -> int:
        """How many they are."""


class ClientOutput(Protocol):
    """The sending half of a connection.

    Attributes:
        counters: Bytes read and written.
    """

    counters: ConnectionCounters

    def pending_bytes(self) -> int:
        """Bytes that the client has yet to take."""


class ClientTls(Protocol):
    """How a connection is encrypted."""

    @property
    def protocol(self) -> str:
        """For example ``tlsv1.3``."""

    @property
    def cipher(self) -> str:
        """The cipher suite."""

    @property
    def subject(self) -> str:
        """Whom the client's certificate names; "" without a certificate."""

    @property
    def issuer(self) -> str:
        """Who issued it."""

    @property
    def validity(self) -> str:
        """From when to when it is valid."""


class ClientConnection(Protocol):
    """An open connection.

    Attributes:
        username: Who is logged in.
        vhost_name: The virtual host it has opened.
        name: Address and port of the client, an arrow, those of the broker.
        peer: Address and port of the client.
        local: Address and port of the broker.
        client_properties: As the client sent them.
        auth_mechanism: How the client has logged in.
        connected_at: When it connected, in milliseconds since 1970.
        heartbeat: Seconds without a sign of life after which it is dropped; 0 for never.
        channel_max: Channels it may have open at once.
        frame_max: Largest frame in bytes.
    """

    username: str
    vhost_name: str
    name: str
    peer: tuple[str, int]
    local: tuple[str, int]
    client_properties: FieldTable
    auth_mechanism: str
    connected_at: int
    heartbeat: int
    channel_max: int
    frame_max: int

    @property
    def blocked(self) -> bool:
        """Whether it is not read from, for it has published while an alarm was set."""

    @property
    def channels(self) -> ClientChannels:
        """Its open channels."""

    @property
    def tls(self) -> ClientTls | None:
        """How it is encrypted; None if it is not."""

    @property
    def output(self) -> ClientOutput:
        """Its sending half."""

    def terminate(self, fault: AmqpFault) -> None:
        """Close it with this reason."""
