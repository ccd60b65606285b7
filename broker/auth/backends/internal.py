"""The broker's own users and permissions as a backend."""

from __future__ import annotations

from typing import Final

from leveret.broker.auth.accounts import Accounts
from leveret.broker.auth.backends.interface import Explanation, Identity, Login, Refused
from leveret.broker.printable import escape_line
from leveret.policies.permissions import DEFAULT_EXCHANGE, Kind

NAME: Final = "internal"

#: Characters of a refused user name that are logged.
_NAME_MAX: Final = 255


class InternalBackend:
    """See Backend. It knows at once.

    Args:
        accounts: The users and permissions.
    """

    module = "rabbit_auth_backend_internal"

    def __init__(self, accounts: Accounts) -> None:
        self._accounts = accounts

    def verify(self, login: Login) -> Identity:
        """Check a name and password at once; see authenticate().

        Raises:
            Refused: They are not valid.
        """
        accounts, name, secret = self._accounts, login.name, login.secret
        user = accounts.users.get(name) if secret is None else accounts.verify(name, secret)
        if user is None:
            raise Refused(f"user '{shortened(name)}' - invalid credentials")
        return Identity(user.name, user.tags)

    async def authenticate(self, login: Login) -> Identity:
        """Check a name and password."""
        return self.verify(login)

    async def authorize(self, login: Login) -> Identity:
        """Return the tags of a user; its rights are its permissions."""
        user = self._accounts.users.get(login.name)
        if user is None:
            raise Refused(f"user '{shortened(login.name)}' - invalid credentials")
        return Identity(user.name, user.tags)

    async def close(self) -> None:
        """Do nothing: there are no connections."""

    def explain(self, user: str, vhost: str, kind: Kind | None, name: str) -> Explanation:
        """Return what decides about a permission; see Rights.explain()."""
        permissions = self._accounts.permissions(user, vhost)
        if permissions is None:
            known = "has no permissions" if user in self._accounts.users else "does not exist, and so has none"
            return Explanation(False, NAME, f"user '{user}' {known} in vhost '{vhost}'")
        if kind is None:
            return Explanation(True, NAME, f"user '{user}' has permissions in vhost '{vhost}'")
        pattern = {"configure": permissions.configure, "write": permissions.write, "read": permissions.read}[kind]
        is_allowed = permissions.allow(kind, name)
        verb = "matches" if is_allowed else "does not match"
        return Explanation(is_allowed, NAME, f"the {kind} pattern '{pattern}' {verb} '{name or DEFAULT_EXCHANGE}'")


def shortened(username: str) -> str:
    """Return a user name for the log: that of a user, or the beginning of a very long text."""
    username = escape_line(username)
    return username if len(username) <= _NAME_MAX else f"{username[:_NAME_MAX]}..."
