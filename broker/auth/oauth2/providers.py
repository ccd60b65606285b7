"""The keys of an OAuth 2 provider: asked for when they are needed, kept, and asked for again when one is missing."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Mapping
from typing import Any, Final

import aiohttp

from leveret.broker.auth.oauth2.keys import InvalidKey, SigningKey, read_key_set
from leveret.broker.auth.oauth2.settings import ProviderSettings, is_safe_url
from leveret.broker.auth.oauth2.tokens import TokenRefused
from leveret.storage.clock import Clock

_LOG: Final = logging.getLogger("leveret.auth")

#: Time for an answer of the provider, in seconds.
_DEADLINE: Final = 5.0
#: Largest answer, in bytes.
_ANSWER_MAX: Final = 1 << 20
#: Time between two requests for keys that are not known, in microseconds. Tokens with forged `kid` cause no more.
_BETWEEN_REQUESTS: Final = 10_000_000
#: Age at which keys are asked for again, in microseconds, so that a revoked one is dropped.
_FRESH: Final = 600_000_000
#: Age at which keys are not used any more, in microseconds, if the provider has not answered since.
_USABLE: Final = 86_400_000_000


class ProviderError(Exception):
    """The provider does not answer, or not with what it should; the text says why."""


class Provider:
    """A provider and its keys. Used by one event loop.

    Args:
        settings: The settings.
        clock: The broker's clock.

    Attributes:
        settings: The settings.
    """

    def __init__(self, settings: ProviderSettings, clock: Clock) -> None:
        self.settings = settings
        self._clock = clock
        self._keys: Mapping[str, SigningKey] = {}
        self._answered_at: int | None = None
        self._asked_at: int | None = None
        self._request: asyncio.Task[None] | None = None
        self._session: aiohttp.ClientSession | None = None
        self._problem = ""
        self._discovery = asyncio.Lock()
        #: The discovery document, or why there is none, and until when that is known.
        self._discovered: Mapping[str, Any] | ProviderError | None = None
        self._discovered_until = 0

    async def find_key(self, kid: str | None) -> SigningKey:
        """Return a key, asking the provider if it is not known.

        Args:
            kid: Name of the key; None for the default key, or the only one.
        Raises:
            TokenRefused: There is no such key, or the provider does not say so in time.
        """
        kid = kid or self.settings.default_key or None
        found = self._known(kid)
        if found is None and (self._request is not None or self._may_ask(_BETWEEN_REQUESTS)):
            # All logins that wait share one request. One that is cancelled leaves it to the others.
            await asyncio.shield(self._ask())
            found = self._known(kid)
        elif self._may_ask(_FRESH):
            self._ask()
        if found is None:
            why = f"; the provider cannot be asked: {self._problem}" if self._problem else ""
            raise TokenRefused(
                "the token names no key (kid), and there is no default_key" + why
                if kid is None
                else "the provider does not have the key (kid) that the token is signed with" + why
            )
        return found

    async def discover(self) -> Mapping[str, Any]:
        """Return the discovery document, which is asked for at most every ten minutes; after a failure, ten seconds.

        Raises:
            ProviderError: The provider does not answer, or not with this.
        """
        async with self._discovery:
            if self._discovered is None or self._clock.monotonic() >= self._discovered_until:
                try:
                    self._discovered = await self._discover()
                except ProviderError as error:
                    self._discovered = error
                lasts = _BETWEEN_REQUESTS if isinstance(self._discovered, ProviderError) else _FRESH
                self._discovered_until = self._clock.monotonic() + lasts
        if isinstance(self._discovered, ProviderError):
            raise ProviderError(str(self._discovered))
        return self._discovered

    async def _discover(self) -> Mapping[str, Any]:
        document = await self.get(self.settings.discovery)
        if document.get("issuer") != self.settings.issuer:
            raise ProviderError(f"{self.settings.discovery} is of another issuer than {self.settings.issuer}")
        return document

    async def get(self, url: str, form: Mapping[str, str] | None = None) -> Mapping[str, Any]:
        """Return the JSON object at a URL.

        Args:
            url: Where.
            form: Sent by POST; None for GET.
        Raises:
            ProviderError: The provider does not answer, or not with this.
        """
        if not is_safe_url(url):
            raise ProviderError(f"{url} is not a URL with https")
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(ssl=self.settings.tls or True, limit=4),
                headers={"accept": "application/json"},
            )
        try:
            async with asyncio.timeout(_DEADLINE):
                method = "GET" if form is None else "POST"
                async with self._session.request(method, url, data=form, allow_redirects=False) as response:
                    octets = await _read(response)
        except TimeoutError:
            raise ProviderError(f"{url} does not answer in {_DEADLINE:.0f} s") from None
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise ProviderError(f"{url}: {str(error) or type(error).__name__}") from error
        try:
            document = json.loads(octets)
        except (ValueError, RecursionError):
            document = None
        if response.status != 200:
            code = document.get("error") if isinstance(document, dict) else None
            raise ProviderError(f"{url} answers {response.status}" + (f" ({code})" if isinstance(code, str) else ""))
        if not isinstance(document, dict):
            raise ProviderError(f"{url} does not answer with a JSON object")
        return document

    async def close(self) -> None:
        """End a request that is on its way, and close the connections."""
        if self._request is not None:
            self._request.cancel()
            await asyncio.gather(self._request, return_exceptions=True)
        if self._session is not None:
            await self._session.close()

    def _known(self, kid: str | None) -> SigningKey | None:
        """Return a key that is known and may still be used."""
        configured = self.settings.keys
        is_usable = self._answered_at is not None and self._clock.monotonic() - self._answered_at <= _USABLE
        asked = self._keys if is_usable else {}
        if kid is not None:
            return configured.get(kid) or asked.get(kid)
        keys = {**asked, **configured}
        return next(iter(keys.values())) if len(keys) == 1 else None

    def _may_ask(self, interval: int) -> bool:
        """Return whether the provider has keys to ask for, and was not asked for an interval in microseconds."""
        if not (self.settings.jwks_uri or self.settings.discovery):
            return False
        return self._asked_at is None or self._clock.monotonic() - self._asked_at >= interval

    def _ask(self) -> asyncio.Task[None]:
        """Ask for the keys, unless a request is on its way; return the task, which raises nothing."""
        if self._request is None:
            self._asked_at = self._clock.monotonic()
            self._request = asyncio.get_running_loop().create_task(self._refresh(), name="keys of an OAuth 2 provider")
        return self._request

    async def _refresh(self) -> None:
        problem = ""
        try:
            url = self.settings.jwks_uri or (await self.discover()).get("jwks_uri")
            if not isinstance(url, str):
                raise ProviderError(f"{self.settings.discovery} has no jwks_uri")
            try:
                self._keys = read_key_set(await self.get(url))
            except InvalidKey as invalid:
                raise ProviderError(f"{url} {invalid}") from None
            self._answered_at = self._clock.monotonic()
        except ProviderError as error:
            problem = str(error)
            if not self._problem:
                _LOG.warning("the keys of an OAuth 2 provider cannot be read: %s", problem)
        finally:
            self._request = None
        if self._problem and not problem:
            _LOG.info("the keys of an OAuth 2 provider can be read again")
        self._problem = problem


async def _read(response: aiohttp.ClientResponse) -> bytes:
    octets = bytearray()
    async for chunk in response.content.iter_chunked(65_536):
        octets += chunk
        if len(octets) > _ANSWER_MAX:
            raise ValueError(f"the answer has more than {_ANSWER_MAX} bytes")
    return bytes(octets)
