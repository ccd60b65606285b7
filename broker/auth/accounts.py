"""All users, and what each may do where."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Final, Literal

from leveret.broker.auth.attempts import AMQP, AuthAttempts, LoginThrottle
from leveret.broker.auth.passwords import SHA256, hash_password, verify_password
from leveret.broker.auth.users import User
from leveret.policies.permissions import DEFAULT_EXCHANGE, Kind, Permissions, TopicKind, TopicPermissions
from leveret.protocol.faults import access_refused

#: Positive answers remembered; each is four short strings, so some 2 MB.
_ANSWERS_MAX: Final = 8192

#: Verified in place of a missing user's hash, so that an answer takes as long whether a user exists or not.
_NOBODYS_HASH: Final = hash_password(b"")

_KINDS: Final[tuple[Kind, ...]] = ("configure", "write", "read")


class UnknownUser(LookupError):
    """There is no user of that name."""

    def __str__(self) -> str:
        return f"there is no user '{self.args[0]}'"


class UserExists(ValueError):
    """There is a user of that name already."""

    def __str__(self) -> str:
        return f"user '{self.args[0]}' exists already"


class Accounts:
    """Users and their permissions.

    Args:
        loopback_users: Names of users that may only log in from this machine.

    Attributes:
        generation: Grows with every change, so that others may remember answers.
        attempts: Counts logins.
        loopback_users: As given.
        throttle: Says how long the answers to failed ones are held back.
        unrestored: Section and entry of definitions that the start could not restore; they are kept as they are.
    """

    def __init__(self, loopback_users: Collection[str] = ()) -> None:
        self.generation = 0
        self.attempts = AuthAttempts()
        self.throttle = LoginThrottle()
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
        """Make a user.

        Args:
            name: Its name.
            password: In clear; with an empty one it cannot log in.
            tags: What it may manage.
        Raises:
            UserExists: The name is taken.
        """
        if name in self._users:
            raise UserExists(name)
        return self.put_user(User(name, hash_password(password) if password else "", SHA256, tuple(tags)))

    def put_user(self, user: User) -> User:
        """Make a user, or replace the one of that name, which keeps its permissions."""
        self._users[user.name] = user
        self._changed()
        return user

    def change_password(self, name: str, password: str | bytes) -> None:
        """Give a user another password; an empty one lets nobody in.

        Raises:
            UnknownUser: There is none of that name.
        """
        hashed = hash_password(password) if password else ""
        self.put_user(replace(self._user(name), password_hash=hashed, hashing_algorithm=SHA256))

    def set_tags(self, name: str, tags: Collection[str]) -> None:
        """Give a user other tags, for the connections it opens from now on.

        Raises:
            UnknownUser: There is none of that name.
        """
        self.put_user(replace(self._user(name), tags=tuple(tags)))

    def set_user_limits(self, name: str, max_connections: int | None, max_channels: int | None) -> None:
        """Limit what a user may have open, its live connections included.

        Args:
            name: Its name.
            max_connections: 0 refuses all; None or a negative number is no limit.
            max_channels: Likewise.
        Raises:
            UnknownUser: There is none of that name.
        """
        limits = self._user(name).limits
        limits.max_connections, limits.max_channels = max_connections, max_channels
        self._changed()

    def delete_user(self, name: str) -> None:
        """Delete a user and all its permissions. Closing its connections is the caller's part.

        Raises:
            UnknownUser: There is none of that name.
        """
        del self._users[self._user(name).name]
        self._permissions = {key: value for key, value in self._permissions.items() if key[0] != name}
        self._topic_permissions = {key: value for key, value in self._topic_permissions.items() if key[0] != name}
        self.unrestored = [each for each in self.unrestored if each[1].get("user") != name]
        self._changed()

    def authenticate(
        self, username: str, password: bytes, peer_is_loopback: bool, protocol: str | None = AMQP
    ) -> User | None:
        """Who a client is. The attempt is counted.

        Args:
            username: Who it says it is.
            password: As it came; an empty one is refused, whatever the user's is.
            peer_is_loopback: It connects from this machine.
            protocol: How it connects, see AuthAttempts; None is no attempt that counts.
        Returns:
            The user; None for a wrong name or password, and for a loopback user from elsewhere.
        """
        user = self._recognise(username, password)
        if user is not None and username in self.loopback_users and not peer_is_loopback:
            user = None
        if protocol is not None:
            self.attempts.count(protocol, user is not None)
        return user

    def recognise(self, username: str, peer_is_loopback: bool, protocol: str = AMQP) -> User | None:
        """Who a client is that has proved its name otherwise. The attempt is counted.

        Args:
            username: Who it is.
            peer_is_loopback: It connects from this machine.
            protocol: How it connects, see AuthAttempts.
        Returns:
            The user; None if there is none of that name, and for a loopback user from elsewhere.
        """
        user = self._users.get(username)
        if user is not None and username in self.loopback_users and not peer_is_loopback:
            user = None
        self.attempts.count(protocol, user is not None)
        return user

    def _recognise(self, username: str, password: bytes) -> User | None:
        user = self._users.get(username)
        if user is None or not user.password_hash:
            verify_password(password, _NOBODYS_HASH)
            return None
        if not verify_password(password, user.password_hash, user.hashing_algorithm) or not password:
            return None
        return user

    # -- permissions --------------------------------------------------------------------------------------

    def set_permissions(self, username: str, vhost: str, configure: str, write: str, read: str) -> None:
        """Set what a user may do in a virtual host; the patterns are those of Permissions.

        Raises:
            UnknownUser: There is none of that name.
            InvalidPattern: A pattern is not a regular expression.
        """
        self._permissions[self._user(username).name, vhost] = Permissions(configure, write, read)
        self._changed()

    def clear_permissions(self, username: str, vhost: str) -> None:
        """Take a user all its permissions in a virtual host, access to it included; fine if it has none.

        Raises:
            UnknownUser: There is none of that name.
        """
        self._permissions.pop((self._user(username).name, vhost), None)
        self._changed()

    def set_topic_permissions(self, username: str, vhost: str, exchange: str, write: str, read: str) -> None:
        """Set which routing keys a user may use on a topic exchange; patterns as in TopicPermissions.

        Raises:
            UnknownUser: There is none of that name.
            InvalidPattern: A pattern is not a regular expression.
        """
        name = self._user(username).name
        self._topic_permissions[name, vhost, exchange] = TopicPermissions(write, read, name, vhost)
        self._changed()

    def clear_topic_permissions(self, username: str, vhost: str, exchange: str | None = None) -> None:
        """Lift the restriction of routing keys on one topic exchange, or on all; fine if there is none.

        Raises:
            UnknownUser: There is none of that name.
        """
        of = (self._user(username).name, vhost)
        self._topic_permissions = {
            key: value
            for key, value in self._topic_permissions.items()
            if key[:2] != of or exchange not in (None, key[2])
        }
        self._changed()

    def forget_vhost(self, name: str) -> None:
        """Drop all permissions in a virtual host that has been deleted."""
        self._permissions = {key: value for key, value in self._permissions.items() if key[1] != name}
        self._topic_permissions = {key: value for key, value in self._topic_permissions.items() if key[1] != name}
        self.unrestored = [each for each in self.unrestored if each[1].get("vhost") != name]
        self._changed()

    def permissions(self, username: str, vhost: str) -> Permissions | None:
        """A user's permissions in a virtual host; None if it may not open it."""
        return self._permissions.get((username, vhost))

    @property
    def all_permissions(self) -> Mapping[tuple[str, str], Permissions]:
        """All permissions by user and virtual host."""
        return MappingProxyType(self._permissions)

    @property
    def all_topic_permissions(self) -> Mapping[tuple[str, str, str], TopicPermissions]:
        """All topic permissions by user, virtual host and exchange."""
        return MappingProxyType(self._topic_permissions)

    # -- questions ----------------------------------------------------------------------------------------

    def allows(self, user: User, vhost: str, kind: Kind, resource_name: str) -> bool:
        """Whether a user may do something with the queues and exchanges of a name.

        Args:
            user: Who asks.
            vhost: Name of the virtual host.
            kind: What it wants to do.
            resource_name: "" is the default exchange.
        """
        asked = (user.name, vhost, kind, resource_name)
        if asked in self._allowed:
            return True
        permissions = self._permissions.get((user.name, vhost))
        if permissions is None or not permissions.allow(kind, resource_name):
            return False
        if len(self._allowed) >= _ANSWERS_MAX:
            self._allowed.clear()
        self._allowed.add(asked)
        return True

    def has_any(self, user: User, vhost: str, name: str) -> bool:
        """Whether a user may do anything at all with the queues and exchanges of a name."""
        return any(self.allows(user, vhost, kind, name) for kind in _KINDS)

    def check(self, user: User, vhost: str, kind: Kind, resource: Literal["queue", "exchange"], name: str) -> None:
        """Refuse what a user may not do with a queue or exchange.

        Raises:
            ChannelFault: ACCESS_REFUSED (403).
        """
        if not self.allows(user, vhost, kind, name):
            raise access_refused(
                f"access to {resource} '{name or DEFAULT_EXCHANGE}' in vhost '{vhost}' refused for user '{user.name}'"
            )

    def check_topic(self, user: User, vhost: str, kind: TopicKind, exchange_name: str, routing_key: str) -> None:
        """Refuse a routing key on a topic exchange; without topic permissions for it all keys may be used.

        Raises:
            ChannelFault: ACCESS_REFUSED (403).
        """
        permissions = self._topic_permissions.get((user.name, vhost, exchange_name))
        if permissions is not None and not permissions.allow(kind, routing_key):
            raise access_refused(
                f"access to topic '{routing_key}' in exchange '{exchange_name}' in vhost '{vhost}'"
                f" refused for user '{user.name}'"
            )

    def _user(self, name: str) -> User:
        user = self._users.get(name)
        if user is None:
            raise UnknownUser(name)
        return user

    def _changed(self) -> None:
        self.generation += 1
        self._allowed.clear()
