"""Origin of messages that are published and got over HTTP, for tracing."""

from __future__ import annotations

from leveret.broker.auth.users import User
from leveret.broker.core.messages.tracing import Origin


def http_origin(user: User) -> Origin:
    """Return the origin of a user's requests. RabbitMQ opens a connection for them, named after its process."""
    return Origin("<http>", 1, user.name)
