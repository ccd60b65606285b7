"""Finds out who a token is of, and what it allows."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Final

from leveret.broker.auth.oauth2.claims import read_audience, read_scopes, read_username
from leveret.broker.auth.oauth2.errors import TokenRefused
from leveret.broker.auth.oauth2.providers import Provider
from leveret.broker.auth.oauth2.scopes import Scopes
from leveret.broker.auth.oauth2.settings import OAuth2Settings, ResourceServer, provider_of_issuer
from leveret.broker.auth.oauth2.tokens import check_times, read_expiry, read_token, verify_signature
from leveret.storage.clock import Clock

_MICROSECONDS: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class TokenUser:
    """The user of a token.

    Attributes:
        name: Name of the user.
        scopes: What the token allows.
        expires_at: When the token is not valid any more, in seconds since 1970, leeway included; None if it always is.
    """

    name: str
    scopes: Scopes
    expires_at: float | None


class TokenVerifier:
    """Verifies the tokens of all providers.

    Args:
        settings: The settings.
        clock: The broker's clock.
    """

    def __init__(self, settings: OAuth2Settings, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        self.providers = {name: Provider(each, clock) for name, each in settings.providers.items()}

    async def verify(self, name: str, octets: bytes) -> TokenUser:
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
        return TokenUser(
            read_username(token.claims, server, name),
            Scopes(read_scopes(token.claims, server)),
            None if expiry is None else expiry + leeway,
        )

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
