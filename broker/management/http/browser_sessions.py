"""Who is logged in to the pages of the UI: random tokens in cookies, held in memory."""

from __future__ import annotations

import hashlib
import secrets
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from aiohttp import web

from leveret.broker.auth.accounts import Accounts
from leveret.broker.auth.users import User
from leveret.broker.management.http.cross_origin import is_cross_origin
from leveret.broker.management.http.methods import READING

#: A session ends when it has not been used for this many seconds. A page that refreshes itself uses it.
IDLE_SECONDS: Final = 3600.0
#: Sessions held at most; of the user with the most of them the one that was used least recently ends first.
_SESSIONS_MAX: Final = 4096
#: Sessions of one user, likewise.
_SESSIONS_OF_A_USER: Final = 256
#: Sent by the UI with every request. A page of another origin cannot, without being asked whether it may.
UI_HEADER: Final = "x-leveret-ui"


@dataclass(slots=True)
class _Session:
    username: str
    password_hash: str
    last_used: float


class BrowserSessions:
    """The sessions of one broker. They end with it.

    Args:
        accounts: Who there is. A session ends when its user is deleted or gets another password; its rights are
            those that the user's tags give at the moment.
        clock: Seconds, of a clock that never goes back.
    """

    def __init__(self, accounts: Accounts, clock: Callable[[], float] = time.monotonic) -> None:
        self._accounts = accounts
        self._clock = clock
        #: By a hash of the token, so that nothing in memory lets anybody in; the least recently used one first.
        self._sessions: dict[bytes, _Session] = {}
        self._counts: Counter[str] = Counter()

    def start(self, user: User) -> str:
        """Begin a session; return its token, 43 characters that nobody can guess."""
        token = secrets.token_urlsafe(32)
        self._sessions[_digest(token)] = _Session(user.name, user.password_hash, self._clock())
        self._counts[user.name] += 1
        if self._counts[user.name] > _SESSIONS_OF_A_USER:
            self._end_oldest(user.name)
        elif len(self._sessions) > _SESSIONS_MAX:
            [(most, _)] = self._counts.most_common(1)
            self._end_oldest(most)
        return token

    def _end_oldest(self, username: str) -> None:
        """End the session of a user that was used least recently."""
        self._pop(next(digest for digest, session in self._sessions.items() if session.username == username))

    def _pop(self, digest: bytes) -> _Session | None:
        session = self._sessions.pop(digest, None)
        if session is not None:
            self._counts[session.username] -= 1
            if not self._counts[session.username]:
                del self._counts[session.username]
        return session

    def user(self, token: str) -> User | None:
        """Whose session it is, as the user is now; None if there is none or it has ended."""
        digest, now = _digest(token), self._clock()
        session = self._pop(digest)
        if session is None or now - session.last_used > IDLE_SECONDS:
            return None
        user = self._accounts.users.get(session.username)
        if user is None or user.password_hash != session.password_hash:
            return None
        session.last_used = now
        self._sessions[digest] = session
        self._counts[session.username] += 1
        return user

    def end(self, token: str) -> None:
        """End a session; fine if there is none."""
        self._pop(_digest(token))


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "replace")).digest()


def cookie_name(request: web.Request) -> str:
    """The name of the cookie; it has the port in it, since cookies do not tell the ports of a host apart."""
    address = request.transport.get_extra_info("sockname") if request.transport is not None else None
    return f"leveret_session_{address[1]}" if isinstance(address, tuple) else "leveret_session"


def session_token(request: web.Request) -> str | None:
    """The token of a request; None if it has none.

    A request that changes something needs the header of the UI beside it. Pages of other origins log in by themselves,
    also where they may use the API.
    """
    if is_cross_origin(request):
        return None
    if request.method not in READING and not is_from_ui(request.headers):
        return None
    return request.cookies.get(cookie_name(request))


def is_from_ui(headers: Mapping[str, str]) -> bool:
    """Whether a request comes from the pages of the UI."""
    return UI_HEADER in headers
