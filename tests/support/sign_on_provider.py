"""A provider at which people log in, for tests that need it to fail or to be quick; test_keycloak.py has a real one."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import html
import secrets
import threading
import time
from typing import Any
from urllib.parse import urlencode

from aiohttp import web

from tests.support.tokens import RESOURCE_SERVER, Signer, StubProvider

#: All that a user of the pages may need.
_SCOPES = ("tag:administrator", "read:*/*", "write:*/*", "configure:*/*", "write:*/*/*")
SCOPES = tuple(f"{RESOURCE_SERVER}.{each}" for each in _SCOPES)


class SignOnProvider(StubProvider):
    """A provider whose page has a button: whoever presses it is alice.

    Attributes:
        lifetime: Seconds that a token is valid.
        scopes: Scopes of its tokens.
        refuses: Error with which it sends browsers back, instead of a code; "" for none.
        renews: Whether it renews tokens.
        renewals, logouts: What it has done.
    """

    def __init__(self) -> None:
        super().__init__(Signer("RSA", "login"))
        self.lifetime = 300
        self.scopes = SCOPES
        self.refuses = ""
        self.renews = True
        self.renewals = 0
        self.logouts: list[dict[str, str]] = []
        self._codes: dict[str, dict[str, str]] = {}
        self._refresh_tokens: set[str] = set()

    def add_routes(self, app: web.Application) -> None:
        """Add the pages."""
        app.router.add_get("/authorize", self._authorize)
        app.router.add_get("/allow", self._allow)
        app.router.add_post("/token", self._token)
        app.router.add_get("/logout", self._log_out)

    async def __aenter__(self) -> SignOnProvider:
        await super().__aenter__()
        self.document = {
            "authorization_endpoint": f"{self.issuer}/authorize",
            "token_endpoint": f"{self.issuer}/token",
            "end_session_endpoint": f"{self.issuer}/logout",
        }
        return self

    async def _authorize(self, request: web.Request) -> web.StreamResponse:
        query = dict(request.query)
        assert query["response_type"] == "code", query
        assert query["code_challenge_method"] == "S256", query
        target = html.escape(f"/allow?{urlencode(query)}", quote=True)
        page = f"<!DOCTYPE html><html lang=en><title>Provider</title><h1>Provider</h1><a href='{target}'>I am alice</a>"
        return web.Response(text=page, content_type="text/html")

    async def _allow(self, request: web.Request) -> web.StreamResponse:
        query = dict(request.query)
        code = secrets.token_urlsafe()
        self._codes[code] = query
        answer = {"error": self.refuses} if self.refuses else {"code": code}
        back = f"{query['redirect_uri']}?{urlencode({**answer, 'state': query['state']})}"
        return web.Response(status=302, headers={"location": back})

    async def _token(self, request: web.Request) -> web.StreamResponse:
        form = {name: str(value) for name, value in (await request.post()).items()}
        if form["grant_type"] == "refresh_token":
            if not self.renews or form["refresh_token"] not in self._refresh_tokens:
                return web.json_response({"error": "invalid_grant"}, status=400)
            self._refresh_tokens.discard(form["refresh_token"])
            self.renewals += 1
        else:
            begun = self._codes.pop(form["code"], None)
            challenge = base64.urlsafe_b64encode(hashlib.sha256(form["code_verifier"].encode()).digest())
            if (
                begun is None
                or challenge.rstrip(b"=").decode() != begun["code_challenge"]
                or form["redirect_uri"] != begun["redirect_uri"]
                or form["client_id"] != begun["client_id"]
            ):
                return web.json_response({"error": "invalid_grant"}, status=400)
        return web.json_response(self._tokens())

    def _tokens(self) -> dict[str, Any]:
        refresh = secrets.token_urlsafe()
        self._refresh_tokens.add(refresh)
        claims = {"iss": self.issuer, "exp": int(time.time()) + self.lifetime}
        return {
            "access_token": self.signers[0].token(*self.scopes, **claims),
            "refresh_token": refresh,
            "id_token": self.signers[0].token(aud="pages", **claims),
            "token_type": "Bearer",
            "expires_in": self.lifetime,
        }

    async def _log_out(self, request: web.Request) -> web.StreamResponse:
        self.logouts.append(dict(request.query))
        return web.Response(status=302, headers={"location": request.query["post_logout_redirect_uri"]})


class ProviderThread:
    """A provider that runs beside a test without an event loop of its own."""

    def __init__(self) -> None:
        self.provider = SignOnProvider()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="provider", daemon=True)

    def __enter__(self) -> SignOnProvider:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self.provider.__aenter__(), self._loop).result(60)
        return self.provider

    def __exit__(self, *error: object) -> None:
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result(60)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(60)
        self._loop.close()

    async def _end(self) -> None:
        await self.provider.__aexit__()
        left = asyncio.all_tasks() - {asyncio.current_task()}
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)
