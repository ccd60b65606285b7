"""Who publishes and takes messages over HTTP, as traced messages say it."""

from __future__ import annotations

from leveret.broker.auth.users import User
from leveret.broker.core.tracing import Origin


def http_origin(user: User) -> Origin:
    """The origin of what a user does; RabbitMQ opens a connection of its own for it, and names that by its process."""
    return Origin("<http>", 1, user.name)
