"""A user in a virtual host, with the checks of its permissions."""

from __future__ import annotations

from typing import Literal

from leveret.broker.auth.accounts import Accounts, User
from leveret.broker.core.vhosts.vhost import VirtualHost
from leveret.protocol.faults import precondition_failed

_IMPERSONATOR = "impersonator"


class Principal:
    """Who does an operation, and where. An AMQP connection has one, and so does an HTTP request.

    Args:
        accounts: All users and permissions.

    Attributes:
        user: See Args.
        vhost: See Args.
        generated: Name of a queue that has got none from its client, until it exists: to declare it may take answers
            of another server about this name.
    """

    __slots__ = ("_accounts", "_topology", "generated", "user", "vhost")

    def __init__(self, accounts: Accounts, user: User, vhost: VirtualHost) -> None:
        self._accounts = accounts
        self._topology = vhost.topology
        self.generated = ""
        self.user = user
        self.vhost = vhost

    @property
    def generation(self) -> int:
        """Number that increases with every change of topology or permissions, which invalidates cached routes."""
        return self._topology.generation + self._accounts.generation

    def check(
        self, kind: Literal["configure", "write", "read"], resource: Literal["queue", "exchange"], name: str
    ) -> None:
        """Refuse an operation on a queue or exchange without permission.

        Raises:
            ChannelFault: ACCESS_REFUSED (403).
        """
        self._accounts.check(self.user, self.vhost.name, kind, resource, name)

    def check_any(self, resource: Literal["queue", "exchange"], name: str) -> None:
        """Refuse a passive declaration if the user has no permission on the resource (as in RabbitMQ 4.2.7).

        Raises:
            ChannelFault: ACCESS_REFUSED (403).
        """
        self._accounts.check_any(self.user, self.vhost.name, resource, name)

    def check_topic(self, kind: Literal["write", "read"], exchange: str, routing_key: str) -> None:
        """Refuse a routing key without topic permission, if the exchange exists and is a topic exchange.

        Raises:
            ChannelFault: ACCESS_REFUSED (403).
        """
        found = self.vhost.topology.exchanges.get(exchange)
        if found is not None and found.type_name == "topic":
            self._accounts.check_topic(self.user, self.vhost.name, kind, exchange, routing_key)

    def check_user_id(self, user_id: str | None) -> None:
        """Refuse the property user-id of a message if it names another user.

        Args:
            user_id: The property; None if the message has none.
        Raises:
            ChannelFault: PRECONDITION_FAILED (406).
        Source: https://www.rabbitmq.com/docs/validated-user-id
        """
        name = self.user.name
        if user_id is not None and user_id != name and _IMPERSONATOR not in self.user.tags:
            raise precondition_failed(f"user_id property set to '{user_id}' but authenticated user was '{name}'")
