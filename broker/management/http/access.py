"""Authentication and authorization of HTTP requests.

Source: https://www.rabbitmq.com/docs/management#permissions
"""

from __future__ import annotations

import asyncio
import base64
import logging
from collections.abc import Sequence
from functools import partial
from typing import Final

from aiohttp import web
from aiohttp.typedefs import Handler

from leveret.broker.addresses import is_loopback
from leveret.broker.auth.accounts import User
from leveret.broker.auth.attempts import HTTP
from leveret.broker.auth.backend_interface import Login, Refused, Unavailable
from leveret.broker.auth.backends.chain import AuthBackends, LoginAttempt
from leveret.broker.config.options import Management
from leveret.broker.core.broker import Broker
from leveret.broker.core.events import Actor
from leveret.broker.core.messages import Origin
from leveret.broker.core.vhosts.vhost import VirtualHost
from leveret.broker.management.http.logins import FAILED_LOGIN, LOGIN_NAME, REFUSAL, BrowserSessions, session_token
from leveret.broker.management.http.origins import check_host
from leveret.broker.management.http.responses import (
    CHALLENGE,
    login_failed,
    missing,
    not_authorised,
    not_found,
    require_json_accepted,
)
from leveret.broker.operations.principal import Principal
from leveret.broker.unfinished import Unanswered

log = logging.getLogger("leveret.http")

#: Attempts to log in with a request, by name and password.
_ATTEMPTS: Final = web.RequestKey("attempts", dict[tuple[str, str], LoginAttempt])
#: The tags whose rights each tag includes.
_INCLUDED: Final = {
    "administrator": frozenset(("administrator", "monitoring", "policymaker", "management")),
    "monitoring": frozenset(("monitoring", "management")),
    "policymaker": frozenset(("policymaker", "management")),
    "management": frozenset(("management",)),
}
#: Text for users that may not see the virtual host of a parameter, policy, connection or channel.
OBJECT_REFUSAL: Final = "User not authorised to access object"
_REFUSALS: Final = {
    "administrator": "Not administrator user",
    "monitoring": "Not monitor user",
    "policymaker": OBJECT_REFUSAL,
    "management": "Not management user",
}
_DEFAULTS: Final = Management()
_VHOST_REFUSAL: Final = "User not authorised to access virtual host"


class Access:
    """Authenticates requests and checks permissions.

    Args:
        options: Which logins are taken, and from where.

    Attributes:
        backends: See Args.
        sessions: Sessions of users that are logged in to the web pages.
        backends: Log users in.
    """

    def __init__(self, backends: AuthBackends, broker: Broker, options: Management = _DEFAULTS) -> None:
        self.sessions = BrowserSessions(backends.accounts, broker.timers)
        self.backends = backends
        self._accounts = backends.accounts
        self._broker = broker
        self._allowed_hosts = options.allowed_hosts
        #: Name of the users of tokens that name none, as in RabbitMQ.
        self._client_id = options.oauth_client_id
        self._takes_passwords = not (options.oauth_enabled and options.oauth_disable_basic_auth)

    # -- users --------------------------------------------------------------------------------------------

    def login(self, request: web.Request) -> User:
        """Return the user of a request, from its name and password, its token, or its session cookie.

        Raises:
            HTTPUnauthorized: No login, a wrong one, or a user without a tag that allows the HTTP API.
            HTTPBadRequest: The Authorization header is malformed.
        """
        header = request.headers.get("authorization")
        if header is None:
            return self._session_user(request)
        if header[:7].lower() == "bearer ":
            return self._authenticate(request, self._client_id, header[7:].strip())
        try:
            name, password = _read_login(header)
        except ValueError:
            raise web.HTTPBadRequest(text="") from None
        return self.authenticate(request, name, password)

    def _session_user(self, request: web.Request) -> User:
        token = session_token(request)
        user = self.sessions.user(token) if token else None
        if user is None:
            raise web.HTTPUnauthorized(headers=CHALLENGE, text="")
        request[LOGIN_NAME] = user.name
        self._check_host(request, user)
        return self._admit(request, user)

    def _admit(self, request: web.Request, user: User) -> User:
        """Let a user act who may use the API: what the request changes is done by this user."""
        if not has_tag(user, "management"):
            raise not_authorised(_REFUSALS["management"])
        self._broker.events.actor = Actor(user.name, request.remote or "")
        return user

    def authenticate(self, request: web.Request, name: str, password: str) -> User:
        """Return the user with a name and password.

        Raises:
            HTTPUnauthorized: See login().
        """
        if not self._takes_passwords:
            request[LOGIN_NAME] = name
            raise not_authorised("HTTP access denied: basic auth disabled")
        return self._authenticate(request, name, password)

    def _authenticate(self, request: web.Request, name: str, password: str) -> User:
        remote = request.remote or ""
        request[LOGIN_NAME] = name
        try:
            user = self._attempt(request, name, password, remote).user()
        except Refused as refused:
            if refused.is_remote:
                raise not_authorised("User can only log in via localhost") from None
            request[FAILED_LOGIN], request[REFUSAL] = name, str(refused)
            self._tell_failure(name, remote, str(refused))
            raise login_failed() from None
        self._accounts.throttle.succeeded(remote, name)
        self._check_host(request, user)
        return self._admit(request, user)

    def _tell_failure(self, name: str, remote: str, why: str) -> None:
        """Tell of a failed login, which RabbitMQ does only of AMQP."""
        about = {"connection_type": "http", "name": name, "error": why}
        self._broker.events.tell("user.authentication.failure", dict, about, actor=Actor(name, remote))

    def _attempt(self, request: web.Request, name: str, password: str, remote: str) -> LoginAttempt:
        """Return the attempt to log in; of one request the same each time it is handled again, see answer_questions."""
        attempts: dict[tuple[str, str], LoginAttempt] = request.setdefault(_ATTEMPTS, {})
        attempt = attempts.get((name, password))
        if attempt is None:
            octets = password.encode("utf-8", "surrogateescape")
            # As in RabbitMQ, only if it exists.
            vhost = request.match_info.get("vhost", "")
            vhost = vhost if vhost in self._broker.vhosts else ""
            attempt = self.backends.attempt(Login(name, octets, remote, is_loopback(remote), HTTP, vhost=vhost))
            attempts[name, password] = attempt
        return attempt

    def _check_host(self, request: web.Request, user: User) -> None:
        if user.name in self._accounts.loopback_users and is_loopback(request.remote or ""):
            check_host(request, self._allowed_hosts)

    def require(self, request: web.Request, tag: str) -> User:
        """Return the user of a request if it has the rights of a tag.

        Args:
            tag: administrator, monitoring, policymaker or management.
        Raises:
            HTTPUnauthorized: The user does not have them.
            HTTPNotAcceptable: The request does not accept JSON.
        """
        user = self.login(request)
        if not has_tag(user, tag):
            raise not_authorised(_REFUSALS[tag])
        require_json_accepted(request)
        return user

    # -- virtual hosts ------------------------------------------------------------------------------------

    def require_vhost(self, request: web.Request, tag: str = "management") -> tuple[User, VirtualHost]:
        """Return the user of a request and the virtual host in its path, for reading.

        Administrators may see all virtual hosts, other users those in which they have permissions.

        Raises:
            HTTPUnauthorized: The user may not see the virtual host.
            HTTPNotFound: The virtual host does not exist.
        """
        user = self.require(request, tag)
        vhost = self._broker.vhosts.get(request.match_info["vhost"])
        if vhost is None:
            raise not_found()
        if not self.can_see(user, vhost.name):
            raise not_authorised(_VHOST_REFUSAL)
        return user, vhost

    def require_vhost_for_change(
        self, request: web.Request, tag: str = "management", refusal: str = _VHOST_REFUSAL
    ) -> Principal:
        """Return the user of a request in the virtual host in its path, for operations.

        Args:
            refusal: Text for a user that may not see the virtual host.

        Raises:
            HTTPUnauthorized: The user may not see the virtual host.
            HTTPNotFound: The virtual host does not exist; the reason is ``vhost_not_found`` as for all changes.
        """
        user = self.require(request, tag)
        vhost = self._broker.vhosts.get(request.match_info["vhost"])
        if vhost is None:
            raise missing("vhost_not_found") if request.method in ("PUT", "POST") else not_found()
        if not self.can_see(user, vhost.name):
            raise not_authorised(refusal)
        return Principal(self._accounts, user, vhost)

    def require_connect(self, request: web.Request) -> Principal:
        """Like require_vhost_for_change(), for operations that RabbitMQ does through a connection of the user.

        Raises:
            HTTPUnauthorized: The user has no permissions in the virtual host, or it does not exist.
        """
        user = self.require(request, "management")
        vhost = self._broker.vhosts.get(request.match_info["vhost"])
        if vhost is None:
            raise not_authorised("Access refused.")
        if not self._enters(user, vhost.name):
            raise not_authorised("Access refused." if self.can_see(user, vhost.name) else _VHOST_REFUSAL)
        return Principal(self._accounts, user, vhost)

    def listed_vhosts(self, request: web.Request, tag: str = "management") -> tuple[User, list[VirtualHost]]:
        """Return the user of a request and the virtual hosts to list, of those that the user may see.

        The virtual host is named by the path or by the header X-Vhost. Without either, all are listed.

        Raises:
            HTTPUnauthorized: The user may not see the virtual host.
            HTTPNotFound: The virtual host in the path does not exist.
        """
        if "vhost" in request.match_info:
            user, vhost = self.require_vhost(request, tag)
            return user, [vhost]
        user = self.require(request, tag)
        name = request.headers.get("x-vhost")
        if not name:
            return user, self._visible_vhosts(user)
        if not self.can_see(user, name):
            raise not_authorised(_VHOST_REFUSAL)
        named = self._broker.vhosts.get(name)
        return user, [] if named is None else [named]

    def can_see(self, user: User, vhost_name: str) -> bool:
        """Check whether a user may see the objects of a virtual host.

        Raises:
            Unanswered: Another server has to be asked first.
        """
        return has_tag(user, "administrator") or self._enters(user, vhost_name)

    def _enters(self, user: User, vhost_name: str) -> bool:
        try:
            return self._accounts.enters(user, vhost_name)
        except Unavailable as unavailable:
            log.warning("access to vhost '%s' refused for user '%s'%s", vhost_name, user.name, unavailable.suffix)
            return False

    def _visible_vhosts(self, user: User) -> list[VirtualHost]:
        """Return the virtual hosts that a user may see. If another server has to be asked, it is asked about all."""
        visible, questions = [], []
        for vhost in self._broker.vhosts.values():
            try:
                if self.can_see(user, vhost.name):
                    visible.append(vhost)
            except Unanswered as question:
                questions.append(question)
        if questions:
            raise Unanswered(partial(_ask_all, questions))
        return visible


async def _ask_all(questions: Sequence[Unanswered]) -> None:
    await asyncio.gather(*(each.ask() for each in questions))


@web.middleware
async def answer_questions(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Handle a request again when another server has been asked about its user; nothing is done before that."""
    while True:
        try:
            return await handler(request)
        except Unanswered as question:
            await question.ask()


def _read_login(header: str) -> tuple[str, str]:
    """Return name and password from an Authorization header.

    Raises:
        ValueError: The header is not valid HTTP Basic authentication.
    """
    scheme, _, encoded = header.partition(" ")
    name, colon, password = (
        base64.b64decode(encoded.strip(), validate=True).decode("utf-8", "surrogateescape").partition(":")
    )
    if scheme.lower() != "basic" or not colon:
        raise ValueError(header)
    return name, password


def has_tag(user: User, tag: str) -> bool:
    """Check whether a user has the rights of a tag: administrator, monitoring, policymaker or management."""
    return any(tag in _INCLUDED.get(user_tag, ()) for user_tag in user.tags)


def http_origin(user: User) -> Origin:
    """Return the origin of a user's requests. RabbitMQ opens a connection for them, named after its process."""
    return Origin("<http>", 1, user.name)
