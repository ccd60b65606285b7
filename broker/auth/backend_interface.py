"""What a backend of authentication and authorization is.

A login is asked for asynchronously. What its user may do afterwards is checked where an event is handled, and so is
answered at once: from what the login has brought, or from an answer of another server. If that still has to be asked,
the check raises Unanswered, its connection holds its input until the answer has come, and then handles the event again.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, NamedTuple, Protocol, TypeAlias

#: What a permission is for.
Resource: TypeAlias = Literal["queue", "exchange"]


@dataclass(frozen=True, slots=True)
class Login:
    """Someone who wants to log in.

    Args:
        name: The name that the client sent, or that its certificate proves.
        secret: The password or token; None if the name is proved by other means.
        address: The client's IP address.
        from_loopback: Whether it connects from this machine.
        protocol: AMQP or HTTP, as which the attempt is counted, see attempts.py; None for no count.
        tags: Tags that the backend has given that authenticated it; see Backend.authorize().
        vhost: Virtual host in the path of an HTTP request, which the backend `http` tells; empty for none.
    """

    name: str
    secret: bytes | None = field(repr=False)
    address: str
    from_loopback: bool
    protocol: str | None
    tags: tuple[str, ...] = ()
    vhost: str = ""


class Question(NamedTuple):
    """What a backend is asked about a user.

    Attributes:
        about: What it is about.
        vhost: The virtual host.
        kind: The permission; "" for the virtual host.
        name: Name of the queue or exchange, the default exchange as ``amq.default``; "" for the virtual host.
        routing_key: Routing key of a topic.
    """

    about: Literal["vhost", "queue", "exchange", "topic"]
    vhost: str
    kind: Literal["", "configure", "write", "read"] = ""
    name: str = ""
    routing_key: str = ""


class Refused(Exception):
    """A login is refused.

    Args:
        reason: The reason, for the log; nothing secret.
        is_remote: Whether the user may log in, but from this machine only.
    """

    def __init__(self, reason: str, is_remote: bool = False) -> None:
        super().__init__(reason)
        self.is_remote = is_remote


class Unavailable(Refused):
    """A backend cannot tell, since a server is away, slow, or answers nonsense. Logins and checks are refused.

    Args:
        backend: RabbitMQ's name of the backend's module.
        reason: What happened, for the log and the client; nothing secret.
    """

    def __init__(self, backend: str, reason: str) -> None:
        super().__init__(reason)
        self.backend = backend

    @property
    def suffix(self) -> str:
        """What RabbitMQ appends to the text of a refusal."""
        return f", backend {self.backend} returned an error: {self}"


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why something is allowed or refused.

    Args:
        is_allowed: The decision.
        backend: Name of the backend that decides, as in `auth_backends`.
        reason: The pattern, scope, query or answer that decides, or what is missing.
        is_known: Whether the backend knows the user.
    """

    is_allowed: bool
    backend: str
    reason: str
    is_known: bool = True


class Rights(Protocol):
    """What one user may do, who has logged in from one address.

    A check raises Unanswered if a server has to be asked first, and Unavailable if it could not be asked.
    """

    def allows(self, question: Question) -> bool:
        """Return the answer to a question about the user; the virtual host exists."""

    async def explain(self, question: Question) -> Explanation:
        """Return what decides about a permission."""

    async def renew(self, secret: bytes) -> Identity | None:
        """Take a new password or token of the user; see connection.update-secret.

        Returns:
            What the user may do from now on; None if that does not depend on the secret.
        Raises:
            Refused: The secret is not valid for this user.
        """


@dataclass(frozen=True, slots=True)
class Identity:
    """Who has logged in.

    Args:
        name: Name of the user, which may be another one than was sent.
        tags: User tags.
        rights: What the user may do; None: what the broker's own permissions of a user with this name say.
        expires_at: When the login ends, in seconds since 1970; None for never.
    """

    name: str
    tags: tuple[str, ...] = ()
    rights: Rights | None = None
    expires_at: float | None = None


class Backend(Protocol):
    """One backend of authentication and authorization.

    Attributes:
        module: RabbitMQ's name of its module, for texts.
    """

    module: str

    async def authenticate(self, login: Login) -> Identity:
        """Check a name and password, or token.

        Raises:
            Refused: They are not valid.
            Unavailable: It cannot tell.
        """

    async def authorize(self, login: Login) -> Identity:
        """Return the rights and tags of a user whom another backend has authenticated.

        Raises:
            Refused: It does not know this user.
            Unavailable: It cannot tell.
        """

    async def close(self) -> None:
        """Close all connections to other servers."""
