"""The broker's own users and permissions as a backend."""

from __future__ import annotations

from typing import Final

from leveret.broker.auth.accounts import Accounts
from leveret.broker.auth.backends.interface import Explanation, Identity, Login, Question, Refused
from leveret.broker.printable import escape_line
from leveret.policies.permissions import TopicKind

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

    def explain(self, user: str, question: Question) -> Explanation:
        """Return what decides about a permission; see Rights.explain()."""
        vhost, kind, name = question.vhost, question.kind, question.name
        permissions = self._accounts.permissions(user, vhost)
        if permissions is None:
            known = "has no permissions" if user in self._accounts.users else "does not exist, and so has none"
            return Explanation(False, NAME, f"user '{user}' {known} in vhost '{vhost}'")
        if not kind:
            return Explanation(True, NAME, f"user '{user}' has permissions in vhost '{vhost}'")
        if question.about == "topic":
            return self._explain_topic(user, question)
        pattern = {"configure": permissions.configure, "write": permissions.write, "read": permissions.read}[kind]
        is_allowed = permissions.allow(kind, name)
        return Explanation(is_allowed, NAME, f"the {kind} pattern '{pattern}' {_verb(is_allowed)} '{name}'")

    def _explain_topic(self, user: str, question: Question) -> Explanation:
        of, key = f"exchange '{question.name}'", question.routing_key
        permissions = self._accounts.all_topic_permissions.get((user, question.vhost, question.name))
        if permissions is None:
            return Explanation(
                True, NAME, f"user '{user}' has no topic permissions on {of}, so all routing keys are allowed"
            )
        kind: TopicKind = "write" if question.kind == "write" else "read"
        pattern = permissions.write if kind == "write" else permissions.read
        is_allowed = permissions.allow(kind, key)
        reason = f"the topic {kind} pattern '{pattern}' of {of} {_verb(is_allowed)} '{key}'"
        return Explanation(is_allowed, NAME, reason)


def _verb(is_allowed: bool) -> str:
    return "matches" if is_allowed else "does not match"


def shortened(username: str) -> str:
    """Return a user name for the log: that of a user, or the beginning of a very long text."""
    username = escape_line(username)
    return username if len(username) <= _NAME_MAX else f"{username[:_NAME_MAX]}..."
