"""Logins: sessions of the web pages, delayed responses to failed logins, and a session's login at an OAuth 2 provider.

Sessions are random tokens in cookies, kept in memory. The delay makes guessing passwords slow.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import secrets
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from leveret.broker.auth.accounts import Accounts, User
from leveret.broker.auth.attempts import LoginThrottle
from leveret.broker.auth.backend_interface import Login, Refused
from leveret.broker.auth.backends.chain import NAME as INTERNAL
from leveret.broker.auth.backends.chain import AuthBackends
from leveret.broker.management.http.origins import SAFE_METHODS, is_cross_origin
from leveret.broker.printable import escape_line
from leveret.broker.unfinished import Unanswered
from leveret.storage.clock import Clock

if TYPE_CHECKING:
    from leveret.broker.auth.oauth2.code_flow import CodeFlow, Tokens

#: A session expires when it has not been used for this long. A page that refreshes itself uses it.
IDLE_MICROSECONDS: Final = 3_600_000_000
#: A session of a user whom another server knows ends after this, or earlier with its login: that user may be gone.
_LONGEST_MICROSECONDS: Final = 8 * 3_600_000_000
#: Maximum number of sessions. Above it, the least recently used one of the user with the most sessions ends.
_SESSIONS_MAX: Final = 4096
#: Maximum number of sessions of one user. Above it, the least recently used one ends.
_SESSIONS_OF_A_USER: Final = 256
#: Sent by the web pages with every request. Browsers do not let pages of another origin send it without a preflight.
UI_HEADER: Final = "x-leveret-ui"
#: Name of the user of a request, also if the login failed; set by Access.login().
LOGIN_NAME: Final = web.RequestKey("login_name", str)
#: Name of the user whose login failed; set by Access.authenticate().
FAILED_LOGIN: Final = web.RequestKey("failed_login", str)
#: Why a login failed, for the log; set like FAILED_LOGIN.
REFUSAL: Final = web.RequestKey("refusal", str)
#: Set while the response is delayed.
DELAYED: Final = web.RequestKey("delayed", bool)
#: Interval in seconds of the check whether the client is still connected.
_CHECK_SECONDS: Final = 1.0


@dataclass(slots=True)
class _Session:
    user: User
    last_used: int
    ends: int
    login: OAuthLogin | None


class BrowserSessions:
    """The sessions of one broker. They end when it stops.

    Args:
        accounts: Users and permissions. A session ends when its user is deleted or gets another password. It has
            the rights of the user's current tags.
    """

    def __init__(self, accounts: Accounts, clock: Clock) -> None:
        self._accounts = accounts
        self._clock = clock
        #: By a hash of the token, so that memory has no valid token; the least recently used session first.
        self._sessions: dict[bytes, _Session] = {}
        self._counts: Counter[str] = Counter()

    def start(self, user: User, login: OAuthLogin | None = None) -> str:
        """Start a session; return its token, 43 random characters.

        Args:
            user: The user.
            login: The login, if it is renewed; without one the session ends when the user's login does.
        """
        token = secrets.token_urlsafe(32)
        now = self._clock.monotonic()
        left = _LONGEST_MICROSECONDS
        if user.expires_at is not None and login is None:
            left = min(left, int(user.expires_at * 1_000_000) - self._clock.now())
        self._sessions[_digest(token)] = _Session(user, now, now + left, login)
        self._counts[user.name] += 1
        if self._counts[user.name] > _SESSIONS_OF_A_USER:
            self._end_oldest(user.name)
        elif len(self._sessions) > _SESSIONS_MAX:
            [(most, _)] = self._counts.most_common(1)
            self._end_oldest(most)
        return token

    def _end_oldest(self, username: str) -> None:
        """End the least recently used session of a user."""
        self._pop(next(digest for digest, session in self._sessions.items() if session.user.name == username))

    def _pop(self, digest: bytes) -> _Session | None:
        session = self._sessions.pop(digest, None)
        if session is not None:
            self._counts[session.user.name] -= 1
            if not self._counts[session.user.name]:
                del self._counts[session.user.name]
        return session

    def user(self, token: str) -> User | None:
        """Return the current user of a session; None if the session does not exist or has ended.

        Raises:
            Unanswered: Another server has to be asked first.
        """
        digest, now = _digest(token), self._clock.monotonic()
        known = self._sessions.get(digest)
        renewed = None if known is None or known.login is None else known.login.user()
        session = self._pop(digest)
        if session is None or now - session.last_used > IDLE_MICROSECONDS:
            return None
        user = self._current(session, now) if session.login is None else renewed if now < session.ends else None
        if user is None:
            return None
        session.last_used = now
        self._sessions[digest] = session
        self._counts[session.user.name] += 1
        return user

    def _current(self, session: _Session, now: int) -> User | None:
        """Return the user of a session as it is now; None if the session has ended with its login."""
        user = session.user
        current = self._accounts.users.get(user.name)
        if user.backend == INTERNAL:
            return current if current is not None and current.password_hash == user.password_hash else None
        is_known = user.rights is not None or current is not None
        return user if is_known and now < session.ends else None

    def end(self, token: str) -> OAuthLogin | None:
        """End a session, if it exists; return its login, if it is renewed."""
        session = self._pop(_digest(token))
        return None if session is None else session.login


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "replace")).digest()


def cookie_name(request: web.Request) -> str:
    """Return the name of the cookie. It includes the port, because cookies are shared by all ports of a host."""
    address = request.transport.get_extra_info("sockname") if request.transport is not None else None
    return f"leveret_session_{address[1]}" if isinstance(address, tuple) else "leveret_session"


def session_token(request: web.Request) -> str | None:
    """Return the session token of a request; None if it has none or may not use it.

    A request that changes something also needs the header of the web pages. Pages of other origins cannot use the
    session, even where they may use the API.
    """
    if is_cross_origin(request):
        return None
    if request.method not in SAFE_METHODS and not is_from_ui(request.headers):
        return None
    return request.cookies.get(cookie_name(request))


def is_from_ui(headers: Mapping[str, str]) -> bool:
    """Check whether a request comes from the web pages."""
    return UI_HEADER in headers


def delay_failed_logins(throttle: LoginThrottle) -> Middleware:
    """Return a middleware that delays responses to a client whose logins keep failing."""

    @web.middleware
    async def delay_response(request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            return await handler(request)
        finally:
            username = request.get(FAILED_LOGIN)
            if username is not None:
                request[DELAYED] = True
                await _wait(request, throttle.failed(request.remote or "", username, _now()))

    return delay_response


async def _wait(request: web.Request, seconds: float) -> None:
    """Wait, unless the client disconnects."""
    end = _now() + seconds
    while request.transport is not None and (left := end - _now()) > 0:  # noqa: ASYNC110 - aiohttp has no event for disconnects
        await asyncio.sleep(min(left, _CHECK_SECONDS))


def _now() -> float:
    return asyncio.get_running_loop().time()


log = logging.getLogger("leveret.http")

#: Time between two attempts to renew, in seconds.
_BETWEEN_ATTEMPTS: Final = 5.0


class OAuthLogin:
    """The login of one session.

    Args:
        flow: The provider.
        backends: Verify its tokens.
        client: Where the browser is; the name is used for tokens without one.
        tokens: What the provider has given.
        clock: The broker's clock.
    """

    def __init__(self, flow: CodeFlow, backends: AuthBackends, client: Login, tokens: Tokens, clock: Clock) -> None:
        self._flow = flow
        self._backends = backends
        self._client = client
        self._tokens = tokens
        self._clock = clock
        self._user: User | None = None
        self._since = 0.0
        self._attempted_at = 0.0
        self._renewal: asyncio.Task[None] | None = None

    async def log_in(self) -> User:
        """Return the user of the tokens.

        Raises:
            Refused: The token is not valid here.
        """
        return await self._take(self._tokens)

    def user(self) -> User | None:
        """Return the user; None if the login has ended. Renews it when a third of its time is left.

        Raises:
            Unanswered: It has ended and is being renewed.
        """
        user, now = self._user, self._now()
        if user is None or user.expires_at is None:
            return user
        if now < user.expires_at:
            if user.expires_at - now < (user.expires_at - self._since) / 3 and self._may_renew(now):
                self._renew(now)
            return user
        if self._renewal is not None or self._may_renew(now):
            raise Unanswered(lambda: self._wait(self._renewal or self._renew(now)))
        return None

    async def log_out(self, return_to: str) -> str | None:
        """Return the provider's page to log out at; None without one.

        Args:
            return_to: Where the provider sends the browser back to.
        """
        self._user = None
        return await self._flow.log_out(self._tokens, return_to)

    def _may_renew(self, now: float) -> bool:
        is_due = now - self._attempted_at >= _BETWEEN_ATTEMPTS
        return bool(self._tokens.refresh) and self._renewal is None and is_due

    def _renew(self, now: float) -> asyncio.Task[None]:
        self._attempted_at = now
        self._renewal = asyncio.get_running_loop().create_task(self._try_to_renew(), name="renewal of a session")
        return self._renewal

    async def _wait(self, renewal: asyncio.Task[None]) -> None:
        # Shared by all requests of the page.
        await asyncio.shield(renewal)

    async def _try_to_renew(self) -> None:
        old = self._user
        try:
            tokens = await self._flow.renew(self._tokens)
            user = await self._take(tokens)
            if old is not None and user.name != old.name:
                self._user = None
                raise Refused("the new token is of another user")
        except Refused as error:
            name = "" if old is None else old.name
            log.warning("the session of user '%s' cannot be renewed: %s", escape_line(name), escape_line(str(error)))
        finally:
            self._renewal = None

    async def _take(self, tokens: Tokens) -> User:
        """Verify the tokens, and use them from now on."""
        client = self._client
        secret = tokens.access.encode("utf-8", "replace")
        login = Login(client.name, secret, client.address, client.from_loopback, client.protocol)
        user = await self._backends.login(login)
        self._tokens, self._user, self._since = tokens, user, self._now()
        return user

    def _now(self) -> float:
        return self._clock.now() / 1_000_000
