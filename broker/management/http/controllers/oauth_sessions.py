"""Single sign-on of the web pages: login at an OAuth 2 provider."""

from __future__ import annotations

import logging
import re
from typing import TYPE_CHECKING, Final

from aiohttp import hdrs, web

from leveret.broker.addresses import is_loopback
from leveret.broker.auth.attempts import HTTP
from leveret.broker.auth.backends.interface import Login, Refused
from leveret.broker.auth.oauth2.errors import LoginError
from leveret.broker.management.http.access import has_tag
from leveret.broker.management.http.controller import Controller, route
from leveret.broker.management.http.controllers.sessions import base_url, session_cookie
from leveret.broker.management.http.error_responses import failure, not_found
from leveret.broker.management.http.logins import cookie_name, session_token
from leveret.broker.management.http.responses import json_response
from leveret.broker.management.http.sign_on import OAuthLogin
from leveret.broker.printable import escape_line

if TYPE_CHECKING:
    from leveret.broker.auth.oauth2.code_flow import CodeFlow

log = logging.getLogger("leveret.http")

#: Where the provider sends browsers back to. It is RabbitMQ's path, so that what is registered there stays valid.
_CALLBACK: Final = "/js/oidc-oauth/login-callback.html"
#: Codes that may stand in the page's address.
_CODE: Final = re.compile(r"\w{1,40}")


class OAuthSessions(Controller):
    """The resource ``/api/session/oauth``, and the address that the provider sends browsers back to."""

    @route("POST", "session/oauth")
    async def begin(self, request: web.Request) -> web.Response:
        """Return the provider's page for a login, and set a cookie that binds the login to this browser."""
        redirect_uri = base_url(request, self._prefix()) + _CALLBACK.removeprefix("/")
        try:
            page, binding = await self._flow().begin(redirect_uri)
        except LoginError as error:
            log.warning("single sign-on cannot begin: %s", error)
            reason = "The provider could not be asked. The broker's log says why."
            raise failure(web.HTTPServiceUnavailable, "provider_unavailable", reason) from None
        response = json_response({"location": page})
        response.headers[hdrs.SET_COOKIE] = _binding_cookie(request, binding, 600)
        return response

    @route("GET", _CALLBACK)
    async def finish(self, request: web.Request) -> web.Response:
        """Log in a browser that the provider has sent back, and send it to the pages."""
        flow, address = self._flow(), request.remote or ""
        headers = {hdrs.CACHE_CONTROL: "no-store", "referrer-policy": "no-referrer"}
        try:
            tokens = await flow.finish(request.query, request.cookies.get(_binding_name(request), ""))
            client = Login(flow.client_id, b"", address, is_loopback(address), HTTP)
            login = OAuthLogin(flow, self._access.backends, client, tokens, self._broker.timers)
            user = await login.log_in()
            if not has_tag(user, "management"):
                raise Refused(f"user '{user.name}' is not a management user")
        except (LoginError, Refused) as error:
            code = error.code if isinstance(error, LoginError) else "refused"
            log.warning("single sign-on from %s refused: %s", address, escape_line(str(error))[:1000])
            where = f"../../#login-failed={code if _CODE.fullmatch(code) else ''}"
            response = web.Response(status=302, headers={hdrs.LOCATION: where, **headers})
        else:
            # The same browser's session before this one.
            self._access.sessions.end(session_token(request) or "")
            response = web.Response(status=302, headers={hdrs.LOCATION: "../../", **headers})
            token = self._access.sessions.start(user, login)
            response.headers.add(hdrs.SET_COOKIE, session_cookie(request, token))
        response.headers.add(hdrs.SET_COOKIE, _binding_cookie(request, "", 0))
        return response

    def _flow(self) -> CodeFlow:
        if self._context.sign_on is None:
            raise not_found()
        return self._context.sign_on

    def _prefix(self) -> str:
        return self._context.settings.management.path_prefix


def _binding_name(request: web.Request) -> str:
    return cookie_name(request).replace("session", "login")


def _binding_cookie(request: web.Request, value: str, seconds: int) -> str:
    # Lax: the browser sends it when the provider's page sends it back here.
    secure = "; Secure" if request.secure else ""
    return f"{_binding_name(request)}={value}; Path=/; HttpOnly; SameSite=Lax; Max-Age={seconds}{secure}"
