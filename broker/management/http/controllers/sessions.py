"""The user of a request, login attempts, and sessions of the web pages, also by single sign-on at a provider."""

from __future__ import annotations

import logging
import re
from typing import TYPE_CHECKING, Any, Final

from aiohttp import hdrs, web

from leveret.broker.addresses import is_loopback
from leveret.broker.auth.accounts import User
from leveret.broker.auth.attempts import HTTP
from leveret.broker.auth.backend_interface import Login, Refused
from leveret.broker.management.http.access import Access, has_tag
from leveret.broker.management.http.controller import Controller, route
from leveret.broker.management.http.logins import OAuthLogin, cookie_name, session_token
from leveret.broker.management.http.request_bodies import FORM_TYPE, read_form
from leveret.broker.management.http.responses import failure, json_response, login_failed, not_found
from leveret.broker.printable import escape_line

if TYPE_CHECKING:
    from leveret.broker.auth.oauth2.code_flow import CodeFlow

log = logging.getLogger("leveret.http")

#: Where the provider sends browsers back to. It is RabbitMQ's path, so that what is registered there stays valid.
_CALLBACK: Final = "/js/oidc-oauth/login-callback.html"
#: Codes that may stand in the page's address.
_CODE: Final = re.compile(r"\w{1,40}")


class Sessions(Controller):
    """The resources ``/api/whoami``, ``/api/login`` and ``/api/auth``."""

    @route("GET", "whoami")
    async def whoami(self, request: web.Request) -> web.Response:
        """Show the user of the request."""
        user = self._access.require(request, "management")
        return _shown(user)

    @route("POST", "login")
    async def login(self, request: web.Request) -> web.Response:
        """Check the name and password of a form.

        RabbitMQ's response sets a cookie with both, which neither its web pages nor Leveret's read.
        """
        await _log_in(self._access, request)
        if request.content_type != FORM_TYPE:
            # As in RabbitMQ, this is checked last.
            raise web.HTTPUnsupportedMediaType(text="")
        return json_response("ok")

    @route("GET", "auth")
    async def settings(self, request: web.Request) -> web.Response:
        """Show how to log in. This needs no login."""
        shown = {"enable_uaa": False, "uaa_client_id": "", "uaa_location": "", "oauth_enabled": False}
        flow, options = self._context.sign_on, self._context.settings.management
        if flow is not None:
            shown |= {
                "oauth_enabled": True,
                "oauth_client_id": flow.client_id,
                "oauth_provider_url": flow.provider.settings.issuer,
                "oauth_scopes": options.oauth_scopes,
                "oauth_disable_basic_auth": options.oauth_disable_basic_auth,
            }
        return json_response(shown)

    @route("GET", "auth/attempts/{node}", tag="monitoring")
    async def attempts(self, request: web.Request) -> web.Response:
        """List the number of login attempts by protocol."""
        self._require_node(request)
        counted = self._accounts.attempts.by_protocol.items()
        found: list[dict[str, Any]] = [
            {
                "protocol": protocol,
                "auth_attempts": attempts.total,
                "auth_attempts_failed": attempts.failed,
                "auth_attempts_succeeded": attempts.succeeded,
            }
            for protocol, attempts in counted
        ]
        return json_response(found)

    @route("GET", "auth/attempts/{node}/source", tag="monitoring")
    async def attempts_by_source(self, request: web.Request) -> web.Response:
        """List login attempts by address and user: always empty, as in RabbitMQ by default."""
        self._require_node(request)
        return json_response([])

    @route("DELETE", "auth/attempts/{node}", "auth/attempts/{node}/source", tag="administrator")
    async def reset_attempts(self, request: web.Request) -> web.Response:
        """Reset the counts of login attempts."""
        self._require_node(request)
        self._accounts.attempts.reset()
        return web.Response(status=204)

    def _require_node(self, request: web.Request) -> None:
        if request.match_info["node"] != self._node_name:
            raise not_found()


class BrowserSession(Controller):
    """The resource ``/api/session``, which RabbitMQ does not have."""

    @route("GET", "session")
    async def show(self, request: web.Request) -> web.Response:
        """Show the user of the session cookie; an empty object without a session."""
        token = session_token(request)
        user = self._access.sessions.user(token) if token else None
        if user is None or not has_tag(user, "management"):
            return json_response({})
        return _shown(user)

    @route("POST", "session")
    async def start(self, request: web.Request) -> web.Response:
        """Check the name and password of a form, and set a cookie with a new session token.

        The previous session of the cookie ends.
        """
        user = await _log_in(self._access, request)
        self._access.sessions.end(session_token(request) or "")
        response = _shown(user)
        response.headers[hdrs.SET_COOKIE] = _session_cookie(request, self._access.sessions.start(user))
        return response

    @route("DELETE", "session")
    async def end(self, request: web.Request) -> web.Response:
        """Log out, if logged in. After single sign-on, return the provider's page to log out at, too."""
        token = session_token(request)
        login = self._access.sessions.end(token) if token else None
        page = None
        if login is not None:
            page = await login.log_out(_base_url(request, self._context.settings.management.path_prefix))
        response = web.Response(status=204) if page is None else json_response({"location": page})
        response.headers[hdrs.SET_COOKIE] = _session_cookie(request, "") + "; Max-Age=0"
        return response


class OAuthSessions(Controller):
    """The resource ``/api/session/oauth``, and the address that the provider sends browsers back to."""

    @route("POST", "session/oauth")
    async def begin(self, request: web.Request) -> web.Response:
        """Return the provider's page for a login, and set a cookie that binds the login to this browser."""
        redirect_uri = _base_url(request, self._prefix()) + _CALLBACK.removeprefix("/")
        try:
            page, binding = await self._flow().begin(redirect_uri)
        except Refused as error:
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
        except Refused as error:
            # A LoginError has one.
            code = getattr(error, "code", "refused")
            log.warning("single sign-on from %s refused: %s", address, escape_line(str(error))[:1000])
            where = f"../../#login-failed={code if _CODE.fullmatch(code) else ''}"
            response = web.Response(status=302, headers={hdrs.LOCATION: where, **headers})
        else:
            # The same browser's session before this one.
            self._access.sessions.end(session_token(request) or "")
            response = web.Response(status=302, headers={hdrs.LOCATION: "../../", **headers})
            token = self._access.sessions.start(user, login)
            response.headers.add(hdrs.SET_COOKIE, _session_cookie(request, token))
        response.headers.add(hdrs.SET_COOKIE, _binding_cookie(request, "", 0))
        return response

    def _flow(self) -> CodeFlow:
        if self._context.sign_on is None:
            raise not_found()
        return self._context.sign_on

    def _prefix(self) -> str:
        return self._context.settings.management.path_prefix


async def _log_in(access: Access, request: web.Request) -> User:
    """Return the user whose name and password a form has."""
    form = await read_form(request)
    name, password = form.get("username"), form.get("password")
    if name is None or password is None:
        raise login_failed()
    return access.authenticate(request, name, password)


def _shown(user: User) -> web.Response:
    return json_response({"name": user.name, "tags": list(user.tags)})


def _session_cookie(request: web.Request, value: str) -> str:
    """Return the header that sets the cookie of a session to its token."""
    secure = "; Secure" if request.secure else ""
    return f"{cookie_name(request)}={value}; Path=/; HttpOnly; SameSite=Strict{secure}"


def _base_url(request: web.Request, path_prefix: str) -> str:
    """Return the URL of the pages as the browser knows it, also behind a proxy; it ends with a slash."""
    origin = request.headers.get(hdrs.ORIGIN) or f"{request.scheme}://{request.host}"
    path = path_prefix.strip("/")
    return f"{origin}/{path}/" if path else f"{origin}/"


def _binding_name(request: web.Request) -> str:
    return cookie_name(request).replace("session", "login")


def _binding_cookie(request: web.Request, value: str, seconds: int) -> str:
    # Lax: the browser sends it when the provider's page sends it back here.
    secure = "; Secure" if request.secure else ""
    return f"{_binding_name(request)}={value}; Path=/; HttpOnly; SameSite=Lax; Max-Age={seconds}{secure}"
