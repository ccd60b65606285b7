"""The backends that `auth_backends` names, tried in order; one of them is that of the broker's own users.

Source: https://www.rabbitmq.com/docs/access-control#backends
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import secrets
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, TypeAlias
from weakref import WeakValueDictionary

from leveret.broker.auth.accounts import Accounts, User
from leveret.broker.auth.backend_interface import (
    Backend,
    Explanation,
    Identity,
    Login,
    Question,
    Refused,
    Rights,
    Unavailable,
)
from leveret.broker.printable import escape_line
from leveret.broker.unfinished import Unanswered
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


log = logging.getLogger("leveret.auth")

#: Logins that are known at most.
_LOGINS_MAX: Final = 4096
#: Reason of a refusal by a backend that failed in a way nobody foresaw.
_UNFORESEEN: Final = "internal error"


@dataclass(frozen=True, slots=True)
class _Entry:
    """One entry of `auth_backends`.

    Args:
        name: The entry as configured, such as ``ldap+internal``.
        authenticates: The backend that authenticates.
        authorizes: The one that authorizes; None for the same.
    """

    name: str
    authenticates: Backend
    authorizes: Backend | None


class AuthBackends:
    """All backends of a broker, in order.

    Args:
        accounts: The broker's own users, which the backend ``internal`` has.
        names: Names of backends, or of two joined by a plus sign: the first authenticates, the second authorizes.
        others: Backends besides ``internal``, by name.
        ttl: Seconds for which a login is known, beside those of ``internal``.
    """

    def __init__(
        self,
        accounts: Accounts,
        names: Sequence[str] = (NAME,),
        others: Mapping[str, Backend] | None = None,
        ttl: float = 0.0,
    ) -> None:
        self.accounts = accounts
        self._names = names
        self._logins = _LoginCache(ttl, accounts)
        self._key = secrets.token_bytes(32)
        #: By entry and user, as long as anyone is logged in with them.
        self._last_rights: WeakValueDictionary[tuple[str, str], Rights] = WeakValueDictionary()
        self._internal = InternalBackend(accounts)
        self._known: dict[str, Backend] = {NAME: self._internal, **(others or {})}
        self._entries = [self._entry(name) for name in names]
        self._knows_at_once = all(name == NAME for name in names)

    def of(self, accounts: Accounts) -> AuthBackends:
        """Return the same backends with other users of the broker's own, and without what is known of logins."""
        others = {name: each for name, each in self._known.items() if name != NAME}
        return AuthBackends(accounts, self._names, others)

    def _entry(self, name: str) -> _Entry:
        authenticates, plus, authorizes = name.partition("+")
        return _Entry(name, self._known[authenticates], self._known[authorizes] if plus else None)

    # -- logins -------------------------------------------------------------------------------------------

    def attempt(self, login: Login) -> LoginAttempt:
        """Return an attempt to log in, which has not asked anyone yet."""
        return LoginAttempt(partial(self.login_at_once, login), partial(self.login, login))

    def login_at_once(self, login: Login) -> User | None:
        """Return the user of a login; None if that takes asking.

        Raises:
            Refused: Name or password are wrong, or the user may not log in from there.
        """
        if not self._knows_at_once:
            return None
        with self._counting(login.protocol):
            return self._user(self._internal.verify(login), NAME, login)

    async def login(self, login: Login) -> User:
        """Return the user of a login: of the first backend that knows it.

        Raises:
            Refused: None does, or the user may not log in from there; the last backend's reason.
        """
        with self._counting(login.protocol):
            return await self._first(login)

    @contextmanager
    def _counting(self, protocol: str | None) -> Iterator[None]:
        succeeded = False
        try:
            yield
            succeeded = True
        finally:
            if protocol is not None:
                self.accounts.attempts.count(protocol, succeeded)

    async def _first(self, login: Login) -> User:
        refused = Refused("no backend is configured")
        for entry in self._entries:
            try:
                return self._user(await self._ask(entry, login), entry.name, login)
            except Refused as refusal:
                refused = refusal
                if refusal.is_remote:
                    break
        raise refused

    async def _ask(self, entry: _Entry, login: Login) -> Identity:
        """Ask one backend, or two, unless they have known the same login a moment ago."""
        key = entry.name, login.name, login.address, self._digest(login.secret), login.vhost
        known = self._logins.get(key)
        if known is not None:
            return known
        found = await self._ask_now(entry, login)
        if entry.name != NAME:
            self._logins.put(key, found)
        return found

    def _digest(self, secret: bytes | None) -> bytes:
        """Return what tells secrets from each other, so that memory has none."""
        return b"" if secret is None else hmac.digest(self._key, secret, "sha256")

    async def _ask_now(self, entry: _Entry, login: Login) -> Identity:
        known = await _failing_alike(entry.authenticates, "authenticating", login, entry.authenticates.authenticate)
        if entry.authorizes is None:
            return known
        login = replace(login, name=known.name, tags=known.tags)
        found = await _failing_alike(entry.authorizes, "authorizing", login, entry.authorizes.authorize)
        ends = [each.expires_at for each in (known, found) if each.expires_at is not None]
        tags = tuple(dict.fromkeys((*known.tags, *found.tags)))
        return Identity(known.name, tags, found.rights, min(ends, default=None))

    def _user(self, identity: Identity, backend: str, login: Login) -> User:
        """Return the user that a backend has found, with the limits of the broker's own user of the name."""
        accounts, name = self.accounts, identity.name
        # By name, whoever has authenticated it, as in RabbitMQ.
        if name in accounts.loopback_users and not login.from_loopback:
            raise Refused(f"user '{shortened(name)}' can only connect via localhost", is_remote=True)
        if identity.rights is not None:
            self._last_rights[backend, name] = identity.rights
        known = accounts.users.get(name)
        if known is not None and backend == NAME:
            return known
        user = User(name) if known is None else known
        return replace(
            user, tags=identity.tags, rights=identity.rights, expires_at=identity.expires_at, backend=backend
        )

    # -- users that have logged in ------------------------------------------------------------------------

    def renewal(self, user: User, secret: bytes) -> LoginAttempt:
        """Return an attempt to go on with another secret, which has not asked anyone yet."""
        return LoginAttempt(lambda: user if user.rights is None else None, partial(_renew, user, secret))

    def backend(self, name: str) -> Backend | None:
        """Return the backend of a name; None if `auth_backends` does not have it."""
        return self._known.get(name)

    async def explain(self, name: str, questions: Sequence[Question]) -> list[Explanation]:
        """Return what each entry of `auth_backends` says about a permission of a user.

        Args:
            name: Name of the user. Of one that is logged in the rights of its last login are explained.
            questions: What is checked, in this order: the first refusal decides, or else the last answer.
        """
        return [await self._explain(entry, name, questions) for entry in self._entries]

    async def _explain(self, entry: _Entry, name: str, questions: Sequence[Question]) -> Explanation:
        rights = self._last_rights.get((entry.name, name))
        if rights is None:
            backend = entry.authorizes or entry.authenticates
            try:
                rights = (await backend.authorize(Login(name, None, "127.0.0.1", True, None))).rights
            except Refused as refused:
                return Explanation(False, entry.name, str(refused), is_known=False)
        found = Explanation(False, entry.name, "nothing is asked")
        for question in questions:
            found = self._internal.explain(name, question) if rights is None else await rights.explain(question)
            if not found.is_allowed:
                break
        return replace(found, backend=entry.name)

    async def close(self) -> None:
        """Close all connections to other servers."""
        for backend in self._known.values():
            await backend.close()


#: Entry of the list, name, address, digest of the secret, and virtual host; see Login.
_LoginKey: TypeAlias = tuple[str, str, str, bytes, str]


class _LoginCache:
    """Logins that were known a moment ago, and whom they are of; refusals are not kept, as in RabbitMQ.

    Args:
        ttl: Seconds for which they are known.
        accounts: All are forgotten when permissions change.
    """

    def __init__(self, ttl: float, accounts: Accounts) -> None:
        self._ttl = ttl
        self._accounts = accounts
        self._generation = accounts.generation
        self._known: OrderedDict[_LoginKey, tuple[Identity, float]] = OrderedDict()

    def get(self, key: _LoginKey) -> Identity | None:
        """Return whom a login is of; None if it has to be asked."""
        if self._generation != self._accounts.generation:
            self._generation = self._accounts.generation
            self._known.clear()
        found = self._known.get(key)
        return found[0] if found is not None and asyncio.get_running_loop().time() < found[1] else None

    def put(self, key: _LoginKey, identity: Identity) -> None:
        """Note whom a login is of; what ends by itself is asked each time."""
        if not self._ttl or identity.expires_at is not None:
            return
        self._known.pop(key, None)
        self._known[key] = identity, asyncio.get_running_loop().time() + self._ttl
        if len(self._known) > _LOGINS_MAX:
            self._known.popitem(last=False)


class LoginAttempt:
    """An attempt to log in, or to go on with another password or token, which is made again when an answer has come.

    Args:
        at_once: Returns the user; None if that takes asking. Raises Refused.
        ask: Asks; raises Refused.
    """

    def __init__(self, at_once: Callable[[], User | None], ask: Callable[[], Coroutine[Any, Any, User]]) -> None:
        self._at_once = at_once
        self._ask = ask
        self._user: User | None = None
        self._refusal: Refused | None = None

    def user(self) -> User:
        """Return the user.

        Raises:
            Refused: It is refused.
            Unanswered: It has to be asked first.
        """
        if self._refusal is not None:
            raise self._refusal
        if self._user is None:
            self._user = self._at_once()
        if self._user is None:
            raise Unanswered(self._find)
        return self._user

    async def _find(self) -> None:
        try:
            self._user = await self._ask()
        except Refused as refusal:
            self._refusal = refusal


async def _renew(old: User, secret: bytes) -> User:
    assert old.rights is not None
    try:
        found = await old.rights.renew(secret)
    except Refused:
        raise
    except Exception:
        log.exception("renewing the secret of user '%s': internal error", shortened(old.name))
        raise Refused(_UNFORESEEN) from None
    if found is None:
        return old
    if found.name != old.name:
        raise Refused(f"the new secret is of user '{shortened(found.name)}'")
    return replace(old, tags=found.tags, rights=found.rights, expires_at=found.expires_at)


async def _failing_alike(
    backend: Backend, what: str, login: Login, ask: Callable[[Login], Coroutine[Any, Any, Identity]]
) -> Identity:
    """Ask a backend; log that it could not tell, in RabbitMQ's words."""
    try:
        return await ask(login)
    except Unavailable as failure:
        text = f"{backend.module} failed {what} {shortened(login.name)}: {failure}"
        log.warning("%s", text)
        raise Refused(text) from None
    except Refused:
        raise
    except Exception:
        log.exception("%s failed %s %s", backend.module, what, shortened(login.name))
        raise Refused(_UNFORESEEN) from None
