"""Users, their permissions and authentication."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final

from leveret.broker.auth.attempts import AuthAttempts, LoginThrottle
from leveret.broker.auth.backend_interface import Question, Resource, Rights, Unavailable
from leveret.broker.auth.passwords import NO_RULES, SHA256, hash_password, verify_password
from leveret.policies.permissions import DEFAULT_EXCHANGE, Kind, Permissions, TopicKind, TopicPermissions
from leveret.protocol.faults import access_refused


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


#: Granted permission checks that are cached; each is four short strings, so about 2 MB in all.
_ALLOWED_MAX: Final = 8192

#: Verified for unknown users, so that the response time does not tell whether a user exists.
_DUMMY_HASH: Final = hash_password(b"")

#: The pattern of a permission for all names, as people write it.
_ANYTHING: Final = ".*"
_KINDS: Final[tuple[Kind, ...]] = ("configure", "write", "read")


class UnknownUser(LookupError):
    """The user does not exist."""

    def __str__(self) -> str:
        return f"there is no user '{self.args[0]}'"


class UserExists(ValueError):
    """A user of that name exists."""

    def __str__(self) -> str:
        return f"user '{self.args[0]}' exists already"


class Accounts:
    """Users and their permissions.

    Args:
        loopback_users: Names of users that may log in from this machine only.

    Attributes:
        generation: Incremented by every change, so that callers can cache permission checks.
        on_change: Called after every change.
        on_delete: Called with the name of a user who was deleted.
        tell: Called with the kind of an event and its fields, as in RabbitMQ's events.
        attempts: Counters of login attempts.
        throttle: Delays the answers to failed logins.
        password_rules: What is asked of new passwords.
        unrestored: Section and entry of definitions that the start could not restore; they are kept unchanged.
    """

    def __init__(self, loopback_users: Collection[str] = ()) -> None:
        self.generation = 0
        self.on_change: Callable[[], None] = _ignore
        self.on_delete: Callable[[str], None] = _ignore
        self.tell: Callable[[str, dict[str, Any]], None] = _ignore
        self.attempts = AuthAttempts()
        self.throttle = LoginThrottle()
        self.password_rules = NO_RULES
        self.unrestored: list[tuple[str, dict[str, Any]]] = []
        self.loopback_users = frozenset(loopback_users)
        self._users: dict[str, User] = {}
        self._permissions: dict[tuple[str, str], Permissions] = {}
        self._topic_permissions: dict[tuple[str, str, str], TopicPermissions] = {}
        self._allowed: set[tuple[str, str, Kind, str]] = set()

    # -- users --------------------------------------------------------------------------------------------

    @property
    def users(self) -> Mapping[str, User]:
        """All users by name."""
        return MappingProxyType(self._users)

    def add_user(self, name: str, password: str | bytes, tags: Collection[str] = ()) -> User:
        """Create a user.

        Args:
            password: The plain-text password; a user with an empty one cannot log in.
            tags: User tags, such as ``administrator``.
        Raises:
            UserExists: A user of that name exists.
            RefusedPassword: The password is against the rules.
        """
        self.password_rules.check(password)
        if name in self._users:
            raise UserExists(name)
        return self.put_user(User(name, hash_password(password) if password else "", SHA256, tuple(tags)))

    def put_user(self, user: User) -> User:
        """Create or replace a user; an existing one keeps its permissions."""
        known = self._users.get(user.name)
        self._users[user.name] = user
        self._changed()
        if known is None:
            self.tell("user.created", {"name": user.name})
        elif known.password_hash != user.password_hash:
            self.tell("user.password.changed", {"name": user.name})
        self.tell("user.tags.set", {"name": user.name, "tags": list(user.tags)})
        return user

    def set_user_limits(self, name: str, max_connections: int | None, max_channels: int | None) -> None:
        """Limit a user's connections and channels. The limits also apply to connections that are open.

        Args:
            max_connections: Open connections allowed; None or a negative number means no limit.
            max_channels: Open channels allowed; None or a negative number means no limit.
        Raises:
            UnknownUser: The user does not exist.
        """
        limits = self._user(name).limits
        limits.max_connections, limits.max_channels = max_connections, max_channels
        self._changed()
        left = limits.document()
        of_user = {"name": "limits", "username": name, **left}
        self.tell("user.limits.set" if left else "user.limits.cleared", of_user)

    def delete_user(self, name: str) -> None:
        """Delete a user and all its permissions. The caller closes its connections.

        Raises:
            UnknownUser: The user does not exist.
        """
        del self._users[self._user(name).name]
        self._permissions = {key: value for key, value in self._permissions.items() if key[0] != name}
        self._topic_permissions = {key: value for key, value in self._topic_permissions.items() if key[0] != name}
        self.unrestored = [each for each in self.unrestored if each[1].get("user") != name]
        self._changed()
        self.on_delete(name)
        self.tell("user.deleted", {"name": name})

    def verify(self, username: str, password: bytes) -> User | None:
        """Return the user of a name if this is its password; None otherwise."""
        user = self._users.get(username)
        if user is None or not user.password_hash:
            verify_password(password, _DUMMY_HASH)
            return None
        if not verify_password(password, user.password_hash, user.hashing_algorithm) or not password:
            return None
        return user

    # -- permissions --------------------------------------------------------------------------------------

    def set_permissions(self, username: str, vhost: str, configure: str, write: str, read: str) -> None:
        """Set a user's permissions in a virtual host; see Permissions for the patterns.

        Raises:
            UnknownUser: The user does not exist.
            InvalidPattern: A pattern is not a regular expression.
        """
        self._permissions[self._user(username).name, vhost] = Permissions(configure, write, read)
        self._changed()
        patterns = {"configure": configure, "write": write, "read": read}
        self.tell("permission.created", {"user": username, "vhost": vhost, **patterns})

    def clear_permissions(self, username: str, vhost: str) -> None:
        """Remove a user's permissions in a virtual host, which includes access to it. Does nothing if it has none.

        Raises:
            UnknownUser: The user does not exist.
        """
        self._permissions.pop((self._user(username).name, vhost), None)
        self._changed()
        self.tell("permission.deleted", {"user": username, "vhost": vhost})

    def set_topic_permissions(self, username: str, vhost: str, exchange: str, write: str, read: str) -> None:
        """Set which routing keys a user may use on a topic exchange; see TopicPermissions for the patterns.

        Raises:
            UnknownUser: The user does not exist.
            InvalidPattern: A pattern is not a regular expression.
        """
        name = self._user(username).name
        self._topic_permissions[name, vhost, exchange] = TopicPermissions(write, read, name, vhost)
        self._changed()
        patterns = {"exchange": exchange, "write": write, "read": read}
        self.tell("topic.permission.created", {"user": username, "vhost": vhost, **patterns})

    def clear_topic_permissions(self, username: str, vhost: str, exchange: str | None = None) -> None:
        """Remove a user's topic permissions on one exchange, or on all. Does nothing if it has none.

        Raises:
            UnknownUser: The user does not exist.
        """
        of = (self._user(username).name, vhost)
        self._topic_permissions = {
            key: value
            for key, value in self._topic_permissions.items()
            if key[:2] != of or exchange not in (None, key[2])
        }
        self._changed()
        self.tell("topic.permission.deleted", {"user": username, "vhost": vhost, "exchange": exchange})

    def forget_vhost(self, name: str) -> None:
        """Remove all permissions in a deleted virtual host."""
        lost = [user for user, vhost in self._permissions if vhost == name]
        self._permissions = {key: value for key, value in self._permissions.items() if key[1] != name}
        self._topic_permissions = {key: value for key, value in self._topic_permissions.items() if key[1] != name}
        self.unrestored = [each for each in self.unrestored if each[1].get("vhost") != name]
        self._changed()
        for user in lost:
            self.tell("permission.deleted", {"user": user, "vhost": name})

    def permissions(self, username: str, vhost: str) -> Permissions | None:
        """Return a user's permissions in a virtual host; None if the user has no access to it."""
        return self._permissions.get((username, vhost))

    @property
    def all_permissions(self) -> Mapping[tuple[str, str], Permissions]:
        """All permissions by user and virtual host."""
        return MappingProxyType(self._permissions)

    @property
    def all_topic_permissions(self) -> Mapping[tuple[str, str, str], TopicPermissions]:
        """All topic permissions by user, virtual host and exchange."""
        return MappingProxyType(self._topic_permissions)

    # -- checks -------------------------------------------------------------------------------------------

    def enters(self, user: User, vhost: str) -> bool:
        """Check whether a user may use a virtual host, which exists.

        Raises:
            Unanswered: Another server has to be asked first. So do all checks of users whom another backend authorizes.
            Unavailable: It could not be asked.
        """
        if user.rights is not None:
            return user.rights.allows(Question("vhost", vhost))
        return (user.name, vhost) in self._permissions

    def allows(self, user: User, vhost: str, kind: Kind, resource: Resource, name: str) -> bool:
        """Check whether a user has a permission on a queue or exchange.

        Args:
            name: Its name; "" is the default exchange.
        Raises:
            Unavailable: A server could not be asked.
        """
        if user.rights is not None:
            return user.rights.allows(Question(resource, vhost, kind, name or DEFAULT_EXCHANGE))
        request = (user.name, vhost, kind, name)
        if request in self._allowed:
            return True
        permissions = self._permissions.get((user.name, vhost))
        if permissions is None or not permissions.allow(kind, name):
            return False
        if len(self._allowed) >= _ALLOWED_MAX:
            self._allowed.clear()
        self._allowed.add(request)
        return True

    def reads_all(self, user: User, vhost: str) -> bool:
        """Return whether a user may read from whatever has been or will be in a virtual host.

        Only a permission that is written `.*` says so; what users of other servers may read has to be asked by name.
        """
        permissions = self._permissions.get((user.name, vhost))
        return user.rights is None and permissions is not None and permissions.read == _ANYTHING

    def check(self, user: User, vhost: str, kind: Kind, resource: Resource, name: str) -> None:
        """Require a permission on a queue or exchange.

        Raises:
            ChannelFault: ACCESS_REFUSED (403).
        """
        self._require((kind,), user, vhost, resource, name)

    def check_any(self, user: User, vhost: str, resource: Resource, name: str) -> None:
        """Require any permission on a queue or exchange.

        Raises:
            ChannelFault: ACCESS_REFUSED (403).
        """
        self._require(_KINDS, user, vhost, resource, name)

    def _require(self, kinds: tuple[Kind, ...], user: User, vhost: str, resource: Resource, name: str) -> None:
        _require(
            lambda: any(self.allows(user, vhost, kind, resource, name) for kind in kinds),
            f"{resource} '{name or DEFAULT_EXCHANGE}' in vhost '{vhost}'",
            user,
        )

    def check_topic(self, user: User, vhost: str, kind: TopicKind, exchange_name: str, routing_key: str) -> None:
        """Require permission for a routing key on a topic exchange. Without topic permissions all keys are allowed.

        Raises:
            ChannelFault: ACCESS_REFUSED (403).
        """
        _require(
            lambda: self._allows_topic(user, vhost, kind, exchange_name, routing_key),
            f"topic '{routing_key}' in exchange '{exchange_name}' in vhost '{vhost}'",
            user,
        )

    def _allows_topic(self, user: User, vhost: str, kind: TopicKind, exchange_name: str, routing_key: str) -> bool:
        if user.rights is not None:
            return user.rights.allows(Question("topic", vhost, kind, exchange_name, routing_key))
        permissions = self._topic_permissions.get((user.name, vhost, exchange_name))
        return permissions is None or permissions.allow(kind, routing_key)

    def _user(self, name: str) -> User:
        user = self._users.get(name)
        if user is None:
            raise UnknownUser(name)
        return user

    def _changed(self) -> None:
        self.generation += 1
        self._allowed.clear()
        self.on_change()


def _ignore(*_: Any) -> None:
    pass


def _require(check: Callable[[], bool], what: str, user: User) -> None:
    """Raise ACCESS_REFUSED unless a check is true; with what failed if a server could not be asked."""
    failure = ""
    try:
        if check():
            return
    except Unavailable as unavailable:
        failure = unavailable.suffix
    raise access_refused(f"access to {what} refused for user '{user.name}'{failure}")
