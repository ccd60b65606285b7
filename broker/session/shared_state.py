"""What all AMQP connections share, and what the channels of one connection share, such as the routes of publishes."""

from __future__ import annotations

import asyncio
import platform
from collections.abc import Callable, Generator, Sequence
from typing import Final, Protocol

from leveret.broker.auth.accounts import Accounts, User
from leveret.broker.auth.backends.chain import AuthBackends
from leveret.broker.config.options import Settings
from leveret.broker.core.broker import Broker
from leveret.broker.core.clients import ClientConnection
from leveret.broker.core.events import Actor
from leveret.broker.core.exchanges.base import Exchange
from leveret.broker.core.messages import Remembering, Target
from leveret.broker.core.resources.memory_checks import MemoryChecks
from leveret.broker.core.scheduling.turn import Turn
from leveret.broker.core.vhosts.routing import Route, route_in_steps
from leveret.broker.core.vhosts.topology import Topology
from leveret.broker.core.vhosts.vhost import VirtualHost
from leveret.broker.operations.principal import Principal
from leveret.broker.session.output import Output
from leveret.broker.unfinished import Unfinished
from leveret.broker.version import VERSION
from leveret.protocol.field_table import FieldTable, FieldValue, longstr
from leveret.protocol.frame_reader import Event, Publish
from leveret.storage.message import NO_ENVELOPE

#: Maximum number of cached routes: the number of publishes that the frame reader caches.
_PUBLISHES_MAX: Final = 4096
#: Maximum number of queues in all routes: a route to 10,000 queues takes 80 kB, and each routing key has one.
_QUEUES_MAX: Final = 100_000


class PublishRoute:
    """Cached route of publishes with the same exchange, routing key and flags on one connection.

    Args:
        generation: Generation of topology and permissions for which the route is valid.
        keys_replies: Direct reply-to consumers named by the routing key alone.

    Attributes:
        header: The content header for which envelope, queues, awaits_sync and replies are valid; None if they are not
            reusable.
        envelope: Envelope of messages with this header.
        queues: Target queues of messages with this header.
        awaits_sync: Whether confirms of these messages wait for the sync to disk.
        replies: Target direct reply-to consumers, by name.
        varies: Whether the queues are those of one message only: the next one may go to others.
        histories: What has to remember messages with this header.
        keys_queues: Target queues by routing key alone, for messages without CC and BCC; None if they depend on
            headers.
        sync_checked_queues: The queues for which `needs_sync` was computed.
        needs_sync: Whether confirms of transient messages, and those of persistent ones, wait for the sync.
    """

    __slots__ = (
        "awaits_sync",
        "envelope",
        "exchange",
        "generation",
        "header",
        "histories",
        "keys_queues",
        "keys_replies",
        "queues",
        "replies",
        "needs_sync",
        "sync_checked_queues",
        "varies",
    )

    def __init__(self, generation: int, exchange: Exchange, keys_replies: tuple[str, ...]) -> None:
        self.generation = generation
        self.exchange = exchange
        self.header: bytes | None = None
        self.envelope = NO_ENVELOPE
        self.queues: tuple[Target, ...] = ()
        self.awaits_sync = False
        self.replies: tuple[str, ...] = ()
        self.varies = False
        self.histories: tuple[Remembering, ...] = ()
        self.keys_queues: tuple[Target, ...] | None = None
        self.keys_replies = keys_replies
        self.sync_checked_queues: tuple[Target, ...] = ()
        self.needs_sync = False, False


def cached_route(publish: Publish) -> PublishRoute | None:
    """Return the cached route of a publish; None if there is none."""
    memo = publish.memo
    return memo if isinstance(memo, PublishRoute) else None


class RouteCache:
    """Cached routes of publishes on one connection.

    Routes of an earlier generation are removed, since they refer to deleted queues and exchanges. The cache is cleared
    when it exceeds its limits.
    """

    __slots__ = ("_generation", "_publishes", "_queue_count")

    def __init__(self) -> None:
        self._generation = 0
        self._publishes: list[Publish] = []
        self._queue_count = 0

    def add(self, publish: Publish, route: PublishRoute) -> None:
        """Cache the route of a publish."""
        if route.generation != self._generation or len(self._publishes) >= _PUBLISHES_MAX:
            self.clear()
            self._generation = route.generation
        publish.memo = route
        self._publishes.append(publish)

    def add_queues(self, count: int) -> None:
        """Add the number of queues of a new route; clear the cache if it is too large."""
        self._queue_count += count
        if self._queue_count > _QUEUES_MAX:
            self.clear()

    def clear(self) -> None:
        """Remove all routes."""
        for publish in self._publishes:
            publish.memo = None
        self._publishes.clear()
        self._queue_count = 0


class RouteSearch:
    """Finds routes for one connection, one at a time.

    Attributes:
        is_outdated: True if the topology has changed since the search for the last route began.
    """

    __slots__ = ("_query", "_found", "_generation", "_steps", "_turn", "is_outdated")

    def __init__(self, turn: Turn) -> None:
        self._turn = turn
        self._query: tuple[Exchange, Sequence[str], FieldTable, bytes] | None = None
        self._steps: Generator[None, None, Route] | None = None
        self._found: Route | None = None
        self._generation = 0
        self.is_outdated = False

    def find(
        self, topology: Topology, exchange: Exchange, keys: Sequence[str], headers: FieldTable, header: bytes
    ) -> Route:
        """Find a route; for the arguments see route_in_steps().

        Raises:
            Unfinished: The search takes longer than a time slice. After it, the same call returns the route.
        """
        query = exchange, keys, headers, header
        self.is_outdated = False
        if self._query is not None:
            found, is_same = self._found, query == self._query
            self.cancel()
            if found is not None and is_same:
                self.is_outdated = topology.generation != self._generation
                return found
        steps = route_in_steps(topology, exchange, keys, headers, header, counters=exchange.counters)
        try:
            next(steps)
        except StopIteration as end:
            route: Route = end.value
            return route
        self._query, self._steps, self._generation = query, steps, topology.generation
        if not self._search_slice():
            raise Unfinished(self._search_slice)
        return self.find(topology, exchange, keys, headers, header)

    def cancel(self) -> None:
        """Cancel the current search."""
        self._query = self._steps = self._found = None

    def _search_slice(self) -> bool:
        """Continue the search while time is left; return whether it is finished."""
        steps = self._steps
        if steps is None:
            return True
        time_slice = self._turn.slice()
        try:
            next(steps)
            while not time_slice.is_over():
                next(steps)
        except StopIteration as end:
            self._found = end.value
            self._steps = None
            return True
        return False


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
