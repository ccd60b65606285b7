"""What the channels of one connection use of it and of the broker."""

from __future__ import annotations

from leveret.broker.auth.accounts import Accounts
from leveret.broker.auth.users import User
from leveret.broker.config.options import Settings
from leveret.broker.core.broker import Broker
from leveret.broker.core.vhosts.vhost import VirtualHost
from leveret.broker.operations.principal import Principal
from leveret.broker.session.output import Output
from leveret.broker.session.routes import RouteCache, RouteSearch
from leveret.protocol.field_table import FieldTable


class ChannelHost:
    """What the channels of one connection share. It is also the owner of the connection's exclusive queues.

    Args:
        frame_max: Maximum frame size in bytes, including the frame header and end.

    Attributes:
        consumer_max: Maximum number of consumers of a channel; None for no limit.
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
        "client_properties",
        "consumer_max",
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
        self.routes, self.route_search = RouteCache(), RouteSearch(broker.turn)
        self.max_message_size = settings.max_message_size
        self.consumer_max = settings.consumer_max_per_channel
