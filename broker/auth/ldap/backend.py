"""The backend ``ldap``: logins are binds, and rights are answers to queries.

Source: https://www.rabbitmq.com/docs/ldap
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final, NoReturn, TypeVar, cast

from leveret.broker.auth.backend_interface import Identity, Login, Question, Refused, Unavailable
from leveret.broker.auth.backends.answers import AnswerCache, AskedRights
from leveret.broker.auth.backends.chain import shortened
from leveret.broker.auth.ldap.connections import (
    Bind,
    BoundDirectory,
    Connections,
    DirectoryError,
    InvalidCredentials,
    read_servers,
)
from leveret.broker.auth.ldap.queries import (
    OF_RESOURCES,
    OF_TAGS,
    OF_TOPICS,
    OF_VHOSTS,
    Directory,
    InvalidQuery,
    Query,
    QueryFailed,
    Template,
    deciding_part,
    dn_template,
    read_query,
    read_tag_queries,
)
from leveret.broker.config.auth import AuthLdap
from leveret.broker.config.config_errors import ConfigError

T = TypeVar("T")

NAME: Final = "ldap"
MODULE: Final = "rabbit_auth_backend_ldap"

log = logging.getLogger("leveret.ldap")

_OF_USERS: Final = OF_TAGS - {"user_dn"}
_EVALUATE_ERROR: Final = "ldap_evaluate_error"
#: The user who logs in.
_AS_USER: Final = "as_user"


class _NeedsServer(Exception):
    """A query asks the directory."""


class _NoDirectory:
    """Finds out whether a query asks the directory: many only compare names."""

    def __getattr__(self, name: str) -> NoReturn:
        raise _NeedsServer


_NO_DIRECTORY: Final = cast(Directory, _NoDirectory())


@dataclass(frozen=True, slots=True)
class Queries:
    """What the options `auth_ldap.…_query` and `auth_ldap.…_pattern` say.

    Raises:
        ConfigError: One of them is wrong; the text names the option.
    """

    dn: Template
    bind: Template
    vhost: Query
    resource: Query
    topic: Query
    tags: Mapping[str, Query]

    @classmethod
    def read(cls, options: AuthLdap) -> Queries:
        """Read the options."""
        dn = _read("user_dn_pattern", lambda: dn_template(options.user_dn_pattern, _OF_USERS))
        bind = options.user_bind_pattern
        return cls(
            dn,
            dn if bind is None else _read("user_bind_pattern", lambda: dn_template(bind, _OF_USERS)),
            _read("vhost_access_query", lambda: read_query(options.vhost_access_query, OF_VHOSTS)),
            _read("resource_access_query", lambda: read_query(options.resource_access_query, OF_RESOURCES)),
            _read("topic_access_query", lambda: read_query(options.topic_access_query, OF_TOPICS)),
            _read("tag_queries", lambda: read_tag_queries(options.tag_queries)),
        )


class LdapBackend:
    """See Backend.

    Args:
        options: Its options.
        answers: Keeps answers.
    Raises:
        ConfigError: The options cannot be used; the text names the option.
    """

    module = MODULE

    def __init__(self, options: AuthLdap, answers: AnswerCache) -> None:
        self._options = options
        self._answers = answers
        self._queries = Queries.read(options)
        self._logs = options.log != "false"
        self._connections = Connections(read_servers(options))

    async def authenticate(self, login: Login) -> Identity:
        """Log in with a password, or look up a user whose name is proved by other means."""
        refused = Refused(f"user '{shortened(login.name)}' - invalid credentials")
        if login.secret is not None:
            if not login.secret:
                raise Refused(f"user '{shortened(login.name)}' - unauthenticated bind not allowed")
            # In C a password ends there, and an empty one proves nothing.
            if b"\0" in login.secret:
                raise refused
        try:
            login.name.encode()
            user_dn, tags = await self._log_in(login)
        except (InvalidCredentials, UnicodeEncodeError):
            raise refused from None
        except QueryFailed as failed:
            self._tell("%s of user '%s': %s", "login", shortened(login.name), failed)
            raise refused from None
        except DirectoryError as error:
            log.warning("login of user '%s': %s", shortened(login.name), error)
            raise Unavailable(MODULE, error.reason) from None
        self._tell("user '%s' is %s, with the tags %s", shortened(login.name), user_dn, tags)
        ask, why = partial(self._ask, login, user_dn), partial(self._why, login, user_dn)
        return Identity(login.name, tags, AskedRights(NAME, self._answers.of(login.name, login.address), ask, why))

    async def authorize(self, login: Login) -> Identity:
        """Return the rights of a user: as in RabbitMQ, after a login here too."""
        return await self.authenticate(login)

    async def close(self) -> None:
        """Close all connections."""
        await self._connections.close()

    # -- logins -------------------------------------------------------------------------------------------

    async def _log_in(self, login: Login) -> tuple[str, tuple[str, ...]]:
        """Return the DN and the tags of a user."""
        variables = _variables(login.name)
        filled = self._queries.dn.fill(variables)
        is_searched, before = self._options.dn_lookup_attribute is not None, self._options.dn_lookup_bind
        user_dn = ""
        if is_searched and before != _AS_USER:
            found = await self._connections.run(_bind(before, None), lambda directory: self._find(directory, filled))
            if len(found) != 1:
                raise QueryFailed(f"{len(found)} entries have this name")
            user_dn = found[0]
        elif not is_searched:
            user_dn = filled
        if login.secret is None:
            return await self._look_up(variables, user_dn, filled)
        of_user = Bind(user_dn if is_searched and user_dn else self._queries.bind.fill(variables), login.secret)

        def ask(directory: BoundDirectory) -> tuple[str, tuple[str, ...]]:
            dn = user_dn or _only(self._find(directory, filled), filled)
            return dn, self._tags(directory, variables, dn) if self._options.other_bind == _AS_USER else ()

        dn, tags = await self._connections.run(of_user, ask)
        if self._options.other_bind != _AS_USER:
            other = _bind(self._options.other_bind, None)
            tags = await self._connections.run(other, lambda directory: self._tags(directory, variables, dn))
        return dn, tags

    async def _look_up(self, variables: Mapping[str, str], user_dn: str, filled: str) -> tuple[str, tuple[str, ...]]:
        """Return the DN and the tags of a user who has shown a certificate, and is in the directory."""
        if self._options.other_bind == _AS_USER:
            raise DirectoryError("'other_bind' set to 'as_user' but no password supplied", "there is no password")

        def ask(directory: BoundDirectory) -> tuple[str, tuple[str, ...]]:
            dn = user_dn or _only(self._find(directory, filled), filled)
            if not directory.exists(dn):
                raise InvalidCredentials
            return dn, self._tags(directory, variables, dn)

        return await self._connections.run(_bind(self._options.other_bind, None), ask)

    def _find(self, directory: BoundDirectory, name: str) -> list[str]:
        attribute, base = self._options.dn_lookup_attribute, self._options.dn_lookup_base
        return directory.find(base or "", attribute or "", name)

    def _tags(self, directory: BoundDirectory, variables: Mapping[str, str], user_dn: str) -> tuple[str, ...]:
        of_user = {**variables, "user_dn": user_dn}
        return tuple(tag for tag, query in self._queries.tags.items() if self._has_tag(query, of_user, directory))

    def _has_tag(self, query: Query, variables: Mapping[str, str], directory: BoundDirectory) -> bool:
        try:
            return query.holds(variables, directory)
        except QueryFailed as failed:
            self._tell("%s of user '%s': %s", "a tag", shortened(variables["username"]), failed)
            return False

    # -- rights -------------------------------------------------------------------------------------------

    async def _ask(self, login: Login, user_dn: str, question: Question) -> bool:
        """Return the answer to a question about a user."""
        _, query, variables = self._query(login, user_dn, question)
        asked = f"user '{shortened(login.name)}', {' '.join(filter(None, question))}"
        try:
            answer = await self._answer(partial(query.holds, variables), user_dn, login.secret)
        except QueryFailed as failed:
            log.warning("%s: %s", asked, failed)
            raise Unavailable(MODULE, _EVALUATE_ERROR) from None
        except InvalidCredentials:
            # The password has changed meanwhile.
            answer = False
        except DirectoryError as error:
            log.warning("%s: %s", asked, error)
            raise Unavailable(MODULE, error.reason) from None
        self._tell("%s: %s", asked, answer)
        return answer

    async def _why(self, login: Login, user_dn: str, question: Question) -> str:
        """Return which query, and which part of it, decides about a question."""
        option, query, variables = self._query(login, user_dn, question)
        try:
            part = await self._answer(partial(deciding_part, query, variables), user_dn, login.secret)
        except QueryFailed as failed:
            part = str(failed)
        except InvalidCredentials:
            part = "the password is not valid any more"
        except DirectoryError as error:
            part = error.reason
        return f"auth_ldap.{option}: {part}"

    def _query(self, login: Login, user_dn: str, question: Question) -> tuple[str, Query, Mapping[str, str]]:
        """Return the option with the query that decides about a question, the query, and its variables."""
        variables = {**_variables(login.name), "user_dn": user_dn, "vhost": question.vhost}
        if question.about == "vhost":
            return "vhost_access_query", self._queries.vhost, variables
        variables |= {"resource": question.about, "name": question.name, "permission": question.kind}
        if question.about == "topic":
            variables["routing_key"] = question.routing_key
            return "topic_access_query", self._queries.topic, variables
        return "resource_access_query", self._queries.resource, variables

    async def _answer(self, ask: Callable[[Directory], T], user_dn: str, password: bytes | None) -> T:
        try:
            return ask(_NO_DIRECTORY)
        except _NeedsServer:
            pass
        of_user = None if password is None else Bind(user_dn, password)
        return await self._connections.run(_bind(self._options.other_bind, of_user), ask)

    def _tell(self, text: str, *arguments: object) -> None:
        if self._logs:
            log.info(text, *arguments)


def _variables(username: str) -> dict[str, str]:
    """Return the variables of a user, with domain and name where it is written so for an Active Directory."""
    domain, _, user = username.partition("\\")
    return {"username": username, **({"ad_domain": domain, "ad_user": user} if domain and user else {})}


def _bind(configured: str | Mapping[str, str], of_user: Bind | None) -> Bind | None:
    """Return as whom a connection is used; None for anonymously."""
    if isinstance(configured, str):
        return of_user if configured == _AS_USER else None
    return Bind(configured["user_dn"], configured["password"].encode(), is_configured=True)


def _only(found: list[str], otherwise: str) -> str:
    return found[0] if len(found) == 1 else otherwise


def _read(name: str, read: Callable[[], T]) -> T:
    try:
        return read()
    except InvalidQuery as wrong:
        raise ConfigError(f"auth_ldap.{name}: {wrong}") from None
