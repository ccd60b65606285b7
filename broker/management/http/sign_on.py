"""A session's login at an OAuth 2 provider, which is renewed before it ends."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from leveret.broker.auth.backends.chain import AuthBackends
from leveret.broker.auth.backends.interface import Login, Refused
from leveret.broker.auth.oauth2.errors import LoginError
from leveret.broker.auth.users import User
from leveret.broker.printable import escape_line
from leveret.broker.unfinished import Unanswered
from leveret.storage.clock import Clock

if TYPE_CHECKING:
    from leveret.broker.auth.oauth2.code_flow import CodeFlow, Tokens

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
        except (LoginError, Refused) as error:
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
