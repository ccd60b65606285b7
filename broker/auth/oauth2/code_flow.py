"""Gets tokens for people with a browser: Authorization Code with PKCE.

The provider asks people who they are, and sends their browser back with a code, for which the broker gets the tokens.
They never reach the browser.

Source: RFC 6749 section 4.1, RFC 7636, RFC 9700, OpenID Connect RP-Initiated Logout 1.0.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import urlencode, urlsplit

from leveret.broker.auth.backend_interface import Refused
from leveret.broker.auth.oauth2.providers import Provider, ProviderError
from leveret.broker.auth.oauth2.settings import is_safe_url
from leveret.broker.config.options import Management
from leveret.storage.clock import Clock

#: Time in which people must have logged in at the provider, in microseconds.
_PENDING_MICROSECONDS: Final = 600_000_000
#: Logins that are waited for; the oldest one above it is forgotten.
_PENDING_MAX: Final = 4096


class LoginError(Refused):
    """A login at the provider has failed. The text says why, for the log.

    Args:
        code: For the page: `expired`, or what the provider says, such as `access_denied`.
    """

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code = code


@dataclass(frozen=True, slots=True)
class Tokens:
    """What the provider has given for a login.

    Attributes:
        access: The token for the broker.
        refresh: Gets the next tokens; "" if the provider gives none.
        identity: Tells the provider whom to log out; "" if it gives none.
    """

    access: str = field(repr=False)
    refresh: str = field(default="", repr=False)
    identity: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True)
class _Pending:
    """A login that has begun. Its browser has a cookie with the binding."""

    binding: bytes
    verifier: str
    redirect_uri: str
    began: int


class CodeFlow:
    """Logins at one provider.

    Args:
        provider: The provider, which has a discovery document.
        options: What the broker's pages are called there, and what they ask for.
        clock: The broker's clock.
    """

    def __init__(self, provider: Provider, options: Management, clock: Clock) -> None:
        self.provider = provider
        self.client_id = options.oauth_client_id
        self._client_secret = options.oauth_client_secret
        self._scopes = options.oauth_scopes
        self._clock = clock
        #: By `state`; the oldest first.
        self._pending: dict[str, _Pending] = {}

    async def begin(self, redirect_uri: str) -> tuple[str, str]:
        """Begin a login.

        Args:
            redirect_uri: Where the provider sends the browser back to.
        Returns:
            The provider's page, and a secret for a cookie of this browser.
        Raises:
            LoginError: The provider does not answer.
        """
        page = await self._endpoint("authorization_endpoint")
        assert page is not None
        state, binding, verifier = (secrets.token_urlsafe(32) for _ in range(3))
        now = self._clock.monotonic()
        while self._pending and (
            len(self._pending) >= _PENDING_MAX or now - next(iter(self._pending.values())).began > _PENDING_MICROSECONDS
        ):
            del self._pending[next(iter(self._pending))]
        self._pending[state] = _Pending(_digest(binding), verifier, redirect_uri, now)
        challenge = urlsafe_b64encode(_digest(verifier)).rstrip(b"=").decode()
        query = {
            "response_type": "code",
            "client_id": self.client_id,
            "redirect_uri": redirect_uri,
            "scope": self._scopes,
            "state": state,
            "code_challenge": challenge,
            "code_challenge_method": "S256",
        }
        return _with_query(page, query), binding

    async def finish(self, answer: Mapping[str, str], binding: str) -> Tokens:
        """Get the tokens of a login.

        Args:
            answer: The query with which the provider has sent the browser back.
            binding: The secret in the browser's cookie.
        Raises:
            LoginError: It is not this browser's, has taken too long, or the provider refuses it.
        """
        pending = self._pending.pop(answer.get("state", ""), None)
        if pending is None or self._clock.monotonic() - pending.began > _PENDING_MICROSECONDS:
            raise LoginError("expired", "the login has not begun here, or too long ago")
        if not hmac.compare_digest(pending.binding, _digest(binding)):
            raise LoginError("expired", "the login has begun in another browser")
        if "code" not in answer:
            code = answer.get("error", "")
            raise LoginError(code, f"the provider says {code or 'nothing'}")
        form = {"code": answer["code"], "redirect_uri": pending.redirect_uri, "code_verifier": pending.verifier}
        return await self._tokens("authorization_code", form, Tokens(""))

    async def renew(self, tokens: Tokens) -> Tokens:
        """Get the next tokens.

        Raises:
            LoginError: The provider refuses, or does not answer.
        """
        return await self._tokens("refresh_token", {"refresh_token": tokens.refresh}, tokens)

    async def log_out(self, tokens: Tokens, return_to: str) -> str | None:
        """Return the provider's page to log out at; None if it has none, or does not answer.

        Args:
            tokens: The tokens of the login.
            return_to: Where the provider sends the browser back to.
        """
        try:
            page = await self._endpoint("end_session_endpoint")
        except LoginError:
            return None
        query = {"client_id": self.client_id, "post_logout_redirect_uri": return_to}
        if tokens.identity:
            query["id_token_hint"] = tokens.identity
        return None if page is None else _with_query(page, query)

    async def _tokens(self, grant_type: str, form: Mapping[str, str], last: Tokens) -> Tokens:
        url = await self._endpoint("token_endpoint")
        assert url is not None
        sent = {"grant_type": grant_type, "client_id": self.client_id, **form}
        if self._client_secret:
            sent["client_secret"] = self._client_secret
        try:
            found = await self.provider.get(url, sent)
        except ProviderError as error:
            raise LoginError("provider", str(error)) from None
        access = _text(found, "access_token")
        if not access:
            raise LoginError("provider", f"{url} gives no access_token")
        # A provider that does not give a new one means the old one.
        refresh, identity = _text(found, "refresh_token"), _text(found, "id_token")
        return Tokens(access, refresh or last.refresh, identity or last.identity)

    async def _endpoint(self, name: str) -> str | None:
        """Return a URL of the discovery document; None if it has none to log out at.

        Raises:
            LoginError: The provider does not answer, or not with it.
        """
        try:
            url = (await self.provider.discover()).get(name)
        except ProviderError as error:
            raise LoginError("provider", str(error)) from None
        if url is None and name == "end_session_endpoint":
            return None
        if not isinstance(url, str) or not is_safe_url(url):
            raise LoginError("provider", f"the provider's {name} is not a URL with https")
        return url


def _with_query(url: str, query: Mapping[str, str]) -> str:
    return f"{url}{'&' if urlsplit(url).query else '?'}{urlencode(query)}"


def _text(document: Mapping[str, Any], name: str) -> str:
    value = document.get(name)
    return value if isinstance(value, str) else ""


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).digest()
