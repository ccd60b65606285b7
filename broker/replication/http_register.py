"""What registers that are asked over HTTP have in common: a session, and a watch that wakes who waits for changes."""

from __future__ import annotations

import asyncio
import ssl
from contextlib import suppress
from typing import Final

import aiohttp

#: Seconds before a watch that has ended is begun again.
_WATCH_PAUSE: Final = 1.0
#: Seconds for one request at least: a register syncs each change.
_MIN_TIMEOUT: Final = 1.0


class HttpRegister:
    """A part of an implementation of Register. Used by one event loop.

    Args:
        lease: Seconds after which a claim that is not renewed ends.
        tls: Encrypts the connections; None for no encryption.
    """

    def __init__(self, lease: float, tls: ssl.SSLContext | None) -> None:
        self._tls = tls
        self._timeout = max(lease / 4, _MIN_TIMEOUT)
        self._session: aiohttp.ClientSession | None = None
        self._changed = asyncio.Event()
        self._watching: asyncio.Task[None] | None = None

    async def wait(self, seconds: float) -> None:
        """Wait until something may have changed, at most this long."""
        if self._watching is None:
            self._watching = asyncio.create_task(self._watch())
        with suppress(TimeoutError):
            await asyncio.wait_for(self._changed.wait(), seconds)
        self._changed.clear()

    async def close(self) -> None:
        """Close all connections."""
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.gather(self._watching, return_exceptions=True)
        if self._session is not None:
            await self._session.close()

    async def _watch(self) -> None:
        while True:
            await self._watch_once()
            await asyncio.sleep(_WATCH_PAUSE)

    async def _watch_once(self) -> None:
        """Watch the register until no server tells of changes any more."""
        raise NotImplementedError

    async def _note_changes(self, response: aiohttp.ClientResponse) -> None:
        """Set the event with whatever comes of a watch."""
        async for _ in response.content:
            self._changed.set()

    def _watch_timeout(self) -> aiohttp.ClientTimeout:
        return aiohttp.ClientTimeout(total=None, sock_connect=self._timeout)

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession()
        return self._session
