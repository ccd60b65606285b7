"""The backend `oauth2`: the password is a token, which says who its user is and what the user may do."""

from __future__ import annotations

import asyncio
from typing import Final

from leveret.broker.auth.backend_interface import Explanation, Identity, Login, Question, Refused
from leveret.broker.auth.backends.chain import shortened
from leveret.broker.auth.oauth2.providers import Provider
from leveret.broker.auth.oauth2.settings import OAuth2Settings, ResourceServer, provider_of_issuer
from leveret.broker.auth.oauth2.tokens import (
    Scopes,
    TokenRefused,
    check_times,
    read_audience,
    read_expiry,
    read_scopes,
    read_token,
    read_username,
    verify_signature,
)
from leveret.storage.clock import Clock

#: Its name in `auth_backends`.
NAME: Final = "oauth2"
_MICROSECONDS: Final = 1_000_000


class OAuth2Backend:
    """See Backend. Verifies the tokens of all providers.

    Args:
        settings: The settings.
        clock: The broker's clock.
    """

    module = "rabbit_auth_backend_oauth2"

    def __init__(self, settings: OAuth2Settings, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        self.providers = {name: Provider(each, clock) for name, each in settings.providers.items()}

    async def authenticate(self, login: Login) -> Identity:
        """Verify the token that is sent as password.

        The user is the one that the token names; what the client calls itself counts only if it names none.

        Raises:
            Refused: The token is not valid, or its key cannot be had in time.
        """
        return await self.identify(login.name, login.secret)

    async def authorize(self, login: Login) -> Identity:
        """Return what a token allows, which another backend has taken as password."""
        return await self.authenticate(login)

    async def identify(self, name: str, secret: bytes | None) -> Identity:
        """Return whom a token is of; see authenticate()."""
        try:
            if secret is None:
                raise TokenRefused("there is no token, as the name is proved by other means")
            return await self.verify(name, secret)
        except TokenRefused as refused:
            # RabbitMQ's words.
            text = f"Authentication using an OAuth 2/JWT token failed: {refused}"
            raise Refused(f"user '{shortened(name)}' - {text}") from None

    async def verify(self, name: str, octets: bytes) -> Identity:
        """Verify a token.

        Args:
            name: What the client calls itself; used if the token has no name.
            octets: The token.
        Raises:
            TokenRefused: The token is not valid, or its key cannot be had in time.
        """
        token = read_token(octets)
        # First what costs nothing: none of these tokens makes a request for a key.
        server = self._server_of(read_audience(token.claims))
        provider = self.providers[server.provider]
        issuer = provider.settings.issuer
        if issuer and token.claims.get("iss") != issuer:
            raise TokenRefused(f"the token is of another issuer (iss) than {issuer}")
        leeway = self._settings.leeway
        check_times(token.claims, self._now(), leeway)
        key = await provider.find_key(token.kid)
        verify_signature(token, key, provider.settings.algorithms)
        # The key may have been waited for.
        check_times(token.claims, self._now(), leeway)
        expiry = read_expiry(token.claims)
        user, scopes = read_username(token.claims, server, name), Scopes(read_scopes(token.claims, server))
        ends = None if expiry is None else expiry + leeway
        return Identity(user, scopes.tags, TokenRights(self, user, scopes), ends)

    def provider(self, issuer: str) -> Provider:
        """Return the provider of an issuer, which may be one that has no keys for tokens.

        Raises:
            ConfigError: Its URL is not one with https.
        """
        for provider in self.providers.values():
            if provider.settings.issuer == issuer:
                return provider
        settings = provider_of_issuer(issuer, self._settings.providers[""].tls)
        self.providers[issuer] = Provider(settings, self._clock)
        return self.providers[issuer]

    async def close(self) -> None:
        """Close the connections to the providers."""
        await asyncio.gather(*(each.close() for each in self.providers.values()))

    def _server_of(self, audience: tuple[str, ...] | None) -> ResourceServer:
        """Return the resource server that a token is for."""
        servers = self._settings.servers
        named = [each for each in servers if each.id and each.id in (audience or ())]
        # Those without a name, and those that do not look at the audience.
        others = [each for each in servers if not each.verify_aud or (not each.id and audience is not None)]
        found = named or others
        if len(found) == 1:
            return found[0]
        if not found:
            wanted = ", ".join(each.id for each in servers if each.id) or "any"
            raise TokenRefused(f"the token's audience (aud) is not this broker ({wanted})")
        raise TokenRefused("the token's audience (aud) names more than one resource server")

    def _now(self) -> float:
        return self._clock.now() / _MICROSECONDS


class TokenRights:
    """See Rights: the scopes of a token, known at once."""

    def __init__(self, backend: OAuth2Backend, name: str, scopes: Scopes) -> None:
        self._backend = backend
        self._name = name
        self._scopes = scopes

    def allows(self, question: Question) -> bool:
        """Return whether a scope gives a permission; for a virtual host, whether any is for it."""
        return self._scopes.allows_vhost(question.vhost) if not question.kind else self._deciding(question) is not None

    async def explain(self, question: Question) -> Explanation:
        """Return which scope decides."""
        is_allowed = self.allows(question)
        if not question.kind:
            reason = "a scope of the token is for it" if is_allowed else "no scope of the token is for it"
        elif is_allowed:
            reason = f"the token has the scope {self._deciding(question)}"
        else:
            what = f"the routing key '{question.routing_key}'" if question.about == "topic" else "it"
            reason = f"no scope of the token allows {what}"
        return Explanation(is_allowed, NAME, reason)

    def _deciding(self, question: Question) -> str | None:
        assert question.kind
        key = question.routing_key if question.about == "topic" else None
        return self._scopes.deciding(question.kind, question.vhost, question.name, key)

    async def renew(self, secret: bytes) -> Identity:
        """Go on with another token of the same user."""
        return await self._backend.identify(self._name, secret)
