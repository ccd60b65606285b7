"""Context that the controllers of the HTTP API share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from leveret.broker.auth.accounts import Accounts
from leveret.broker.config.options import Settings
from leveret.broker.core.broker import Broker
from leveret.broker.core.node import Node
from leveret.broker.management.http.access import Access


@dataclass(frozen=True, slots=True)
class RequestContext:
    """The parts of the broker that controllers read and change.

    Args:
        broker: Virtual hosts, connections, alarms, statistics.
        accounts: Users and permissions.
        node: Name and addresses of the node.
        settings: The configuration.
        access: Authentication and authorization.
        save: Makes changes durable; called after every request that may have changed something.
    """

    broker: Broker
    accounts: Accounts
    node: Node
    settings: Settings
    access: Access
    save: Callable[[], None]
