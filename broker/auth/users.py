"""A user of the broker."""

from __future__ import annotations

from dataclasses import dataclass, field

from leveret.broker.auth.passwords import SHA256


@dataclass(slots=True)
class UserLimits:
    """What one user may have open, over all its connections. Changes count for live connections.

    Args:
        max_connections: 0 refuses all; None or a negative number is no limit.
        max_channels: Likewise.
    """

    max_connections: int | None = None
    max_channels: int | None = None


@dataclass(frozen=True, slots=True)
class User:
    """One user. A change makes a new object, so that a connection keeps the tags it logged in with.

    Args:
        name: Its name.
        password_hash: As hash_password returns it; "" for a user that cannot log in with a password.
        hashing_algorithm: Of the password hash.
        tags: What it may manage; AMQP only knows ``impersonator``.
        limits: One object for all changes of this user.
    """

    name: str
    password_hash: str = field(default="", repr=False)
    hashing_algorithm: str = SHA256
    tags: tuple[str, ...] = ()
    limits: UserLimits = field(default_factory=UserLimits)

    @property
    def max_connections(self) -> int | None:
        """Connections that it may have open; None or a negative number is no limit."""
        return self.limits.max_connections

    @property
    def max_channels(self) -> int | None:
        """Channels that it may have open; None or a negative number is no limit."""
        return self.limits.max_channels
