"""A user of the broker."""

from __future__ import annotations

from dataclasses import dataclass, field

from leveret.broker.auth.backends.interface import Rights
from leveret.broker.auth.passwords import SHA256


@dataclass(slots=True)
class UserLimits:
    """Limits of one user. Changes apply to open connections, too.

    Args:
        max_connections: Open connections allowed; None or a negative number means no limit.
        max_channels: Open channels allowed over all connections; None or a negative number means no limit.
    """

    max_connections: int | None = None
    max_channels: int | None = None

    def document(self) -> dict[str, int]:
        """Return the limits that are set, including negative ones, by their names in definitions and the HTTP API."""
        limits = {"max-connections": self.max_connections, "max-channels": self.max_channels}
        return {name: value for name, value in limits.items() if value is not None}


@dataclass(frozen=True, slots=True)
class User:
    """An immutable user: a connection keeps the tags that were valid when it logged in.

    Args:
        password_hash: As hash_password returns it; "" for a user that cannot log in with a password.
        hashing_algorithm: Algorithm of the password hash.
        tags: User tags; over AMQP only ``impersonator`` has an effect.
        limits: Mutable, and shared by all versions of this user.
        rights: What a user may do that has logged in by another backend; None: what its permissions here say.
        expires_at: When its login ends, in seconds since 1970; None for never.
        backend: The entry of `auth_backends` that knows it.
    """

    name: str
    password_hash: str = field(default="", repr=False)
    hashing_algorithm: str = SHA256
    tags: tuple[str, ...] = ()
    limits: UserLimits = field(default_factory=UserLimits)
    rights: Rights | None = field(default=None, repr=False, compare=False)
    expires_at: float | None = None
    backend: str = "internal"
