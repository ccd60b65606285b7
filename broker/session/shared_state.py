"""What all AMQP connections share, and what the channels of one connection share."""

from __future__ import annotations

import asyncio
import platform
from collections.abc import Callable
from typing import Final, Protocol

from leveret.broker.auth.accounts import Accounts
from leveret.broker.auth.backends.chain import AuthBackends
from leveret.broker.auth.users import User
from leveret.broker.config.options import Settings
from leveret.broker.core.broker import Broker
from leveret.broker.core.clients import ClientConnection
from leveret.broker.core.events import Actor
from leveret.broker.core.resources.memory_checks import MemoryChecks
from leveret.broker.core.vhosts.vhost import VirtualHost
from leveret.broker.operations.principal import Principal
from leveret.broker.session.output import Output
from leveret.broker.session.routes import RouteCache, RouteSearch
from leveret.broker.version import VERSION
from leveret.protocol.field_table import FieldTable, FieldValue, longstr
from leveret.protocol.frame_events import Event

#: Server capabilities; clients check them before they use a feature.
_CAPABILITIES: Final = (
    "publisher_confirms", "exchange_exchange_bindings", "basic.nack", "consumer_cancel_notify",
    "connection.blocked", "consumer_priorities", "authentication_failure_close", "per_consumer_qos",
    "direct_reply_to",
)  # fmt: skip


class Interceptor(Protocol):
    """Gets the events of all connections of a broker inside a test; other brokers have none."""

    def wrap(self, connection: ClientConnection, handle: Callable[[Event], None]) -> Callable[[Event], None]:
        """Return what handles the events of a new connection.

        Args:
            connection: The connection, before its handshake.
            handle: Handles its events, and does not raise.
        """


class Server:
    """State shared by all AMQP connections.

    Args:
        backends: Log users in.
        memory_checks: Count received bytes, to check memory in time.
        interceptor: Gets the events of all connections first, in tests; None for none.
    """

    def __init__(
        self,
        settings: Settings,
        broker: Broker,
        backends: AuthBackends,
        memory_checks: MemoryChecks,
        loop: asyncio.AbstractEventLoop,
        interceptor: Interceptor | None = None,
    ) -> None:
        self.settings = settings
        self.broker = broker
        self.backends = backends
        self.accounts = backends.accounts
        self.memory_checks = memory_checks
        self.loop = loop
        self.interceptor = interceptor

    @property
    def properties(self) -> FieldTable:
        """Server properties of connection.start; computed each time, as the cluster name may change."""
        advertised = self.settings.compat.advertise
        capabilities = tuple((name, FieldValue("t", True)) for name in _CAPABILITIES)
        return (
            ("capabilities", FieldValue("F", capabilities)),
            ("cluster_name", longstr(self.broker.cluster_name)),
            ("copyright", longstr("Copyright the Leveret authors")),
            ("information", longstr(f"Leveret {VERSION}. Licensed under the Apache License 2.0")),
            (
                "platform",
                longstr(f"Leveret {VERSION} on {platform.python_implementation()} {platform.python_version()}"),
            ),
            ("product", longstr(advertised.product if advertised else "Leveret")),
            ("version", longstr(advertised.version if advertised else VERSION)),
        )


class ChannelHost:
    """What the channels of one connection share. It is also the owner of the connection's exclusive queues.

    Args:
        frame_max: Maximum frame size in bytes, including the frame header and end.

    Attributes:
        actor: Who acts over the connection.
        consumer_max: Maximum number of consumers of a channel; None for no limit.
        events: Who is told what is done.
        gate: Holds output that depends on definitions that are not written yet.
        max_message_size: Maximum size of a body in bytes.
        principal: The user with its permissions.
        route_search: Search for routes of publishes.
        routes: Cached routes of publishes.
        stores: Notifies confirms and commits once messages are on disk.
        username: Name of the user.
        vhost_name: Name of the virtual host.
    """

    __slots__ = (
        "actor",
        "client_properties",
        "consumer_max",
        "events",
        "frame_max",
        "gate",
        "max_message_size",
        "name",
        "notifies_cancel",
        "output",
        "peer",
        "principal",
        "route_search",
        "routes",
        "stores",
        "user",
        "username",
        "vhost",
        "vhost_name",
    )

    def __init__(
        self,
        broker: Broker,
        settings: Settings,
        accounts: Accounts,
        user: User,
        vhost: VirtualHost,
        output: Output,
        name: str,
        peer: tuple[str, int],
        client_properties: FieldTable,
        frame_max: int,
        notifies_cancel: bool,
    ) -> None:
        self.principal = Principal(accounts, user, vhost)
        self.user, self.vhost = user, vhost
        self.username, self.vhost_name = user.name, vhost.name
        self.output = output
        self.name, self.peer, self.client_properties = name, peer, client_properties
        self.frame_max, self.notifies_cancel = frame_max, notifies_cancel
        self.gate, self.stores = broker.gate, broker.stores
        self.actor, self.events = Actor(user.name, peer[0]), broker.events
        self.routes, self.route_search = RouteCache(), RouteSearch(broker.turn)
        self.max_message_size = settings.max_message_size
        self.consumer_max = settings.consumer_max_per_channel

    def renew(self, user: User) -> None:
        """Go on with what the user may do now. What it was allowed to publish is checked again."""
        self.user = self.principal.user = user
        self.routes.clear()
