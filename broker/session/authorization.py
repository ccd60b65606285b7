"""Permission checks of one connection."""

from __future__ import annotations

from typing import Literal

from leveret.broker.auth.accounts import Accounts
from leveret.broker.auth.users import User
from leveret.broker.core.vhost import VirtualHost
from leveret.protocol.faults import access_refused


class Authorization:
    """The permissions of one connection.

    Args:
        accounts: All users and permissions.
        user: The authenticated user.
        vhost: The virtual host of the connection.
    """

    __slots__ = ("_accounts", "_user", "_vhost")

    def __init__(self, accounts: Accounts, user: User, vhost: VirtualHost) -> None:
        self._accounts = accounts
        self._user = user
        self._vhost = vhost

    @property
    def generation(self) -> int:
        """Number that increases with every change of topology or permissions, which invalidates cached routes."""
        return self._vhost.topology.generation + self._accounts.generation

    def check(
        self, kind: Literal["configure", "write", "read"], resource: Literal["queue", "exchange"], name: str
    ) -> None:
        """Refuse an operation on a queue or exchange without permission.

        Raises:
            ChannelFault: ACCESS_REFUSED (403).
        """
        self._accounts.check(self._user, self._vhost.name, kind, resource, name)

    def check_any(self, resource: Literal["queue", "exchange"], name: str) -> None:
        """Refuse a passive declaration if the user has no permission on the resource (as in RabbitMQ 4.2.7).

        Raises:
            ChannelFault: ACCESS_REFUSED (403).
        """
        if not self._accounts.has_any(self._user, self._vhost.name, name):
            shown = name or "amq.default"
            raise access_refused(
                f"access to {resource} '{shown}' in vhost '{self._vhost.name}' refused for user '{self._user.name}'"
            )

    def check_topic(self, kind: Literal["write", "read"], exchange: str, routing_key: str) -> None:
        """Refuse a routing key on a topic exchange without topic permission.

        Raises:
            ChannelFault: ACCESS_REFUSED (403).
        """
        self._accounts.check_topic(self._user, self._vhost.name, kind, exchange, routing_key)

    def check_topic_binding(self, source: str, routing_key: str) -> None:
        """Refuse a binding key without topic permission, if the source is a topic exchange.

        Raises:
            ChannelFault: ACCESS_REFUSED (403).
        """
        exchange = self._vhost.topology.exchanges.get(source)
        if exchange is not None and exchange.type_name == "topic":
            self.check_topic("read", source, routing_key)
