"""The user of a request, sessions of the web pages, and login attempts."""

from __future__ import annotations

from typing import Any

from aiohttp import hdrs, web

from leveret.broker.management.http.access import has_tag
from leveret.broker.management.http.controller import Controller, RequestContext, route
from leveret.broker.management.http.error_responses import login_failed, not_found
from leveret.broker.management.http.logins import cookie_name, session_token
from leveret.broker.management.http.request_bodies import FORM_TYPE, read_form
from leveret.broker.management.http.responses import json_response


class Sessions(Controller):
    """The resources ``/api/whoami``, ``/api/login`` and ``/api/auth``."""

    @route("GET", "whoami")
    async def whoami(self, request: web.Request) -> web.Response:
        """Show the user of the request."""
        user = self._access.require(request, "management")
        return json_response({"name": user.name, "tags": list(user.tags)})

    @route("POST", "login")
    async def login(self, request: web.Request) -> web.Response:
        """Check the name and password of a form.

        RabbitMQ's response sets a cookie with both, which neither its web pages nor Leveret's read.
        """
        form = await read_form(request)
        name, password = form.get("username"), form.get("password")
        if name is None or password is None:
            raise login_failed()
        self._access.authenticate(request, name, password)
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

    @route("GET", "auth/attempts/{node}")
    async def attempts(self, request: web.Request) -> web.Response:
        """List the number of login attempts by protocol."""
        self._require_node(request, "monitoring")
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

    @route("GET", "auth/attempts/{node}/source")
    async def attempts_by_source(self, request: web.Request) -> web.Response:
        """List login attempts by address and user: always empty, as in RabbitMQ by default."""
        self._require_node(request, "monitoring")
        return json_response([])

    @route("DELETE", "auth/attempts/{node}", "auth/attempts/{node}/source")
    async def reset_attempts(self, request: web.Request) -> web.Response:
        """Reset the counts of login attempts."""
        self._require_node(request, "administrator")
        self._accounts.attempts.reset()
        return web.Response(status=204)

    def _require_node(self, request: web.Request, tag: str) -> None:
        self._access.require(request, tag)
        if request.match_info["node"] != self._node_name:
            raise not_found()


class BrowserSession(Controller):
    """The resource ``/api/session``, which RabbitMQ does not have."""

    def __init__(self, context: RequestContext) -> None:
        super().__init__(context)
        self._sessions = context.access.sessions

    @route("GET", "session")
    async def show(self, request: web.Request) -> web.Response:
        """Show the user of the session cookie; an empty object without a session."""
        token = session_token(request)
        user = self._sessions.user(token) if token else None
        if user is None or not has_tag(user, "management"):
            return json_response({})
        return json_response({"name": user.name, "tags": list(user.tags)})

    @route("POST", "session")
    async def start(self, request: web.Request) -> web.Response:
        """Check the name and password of a form, and set a cookie with a new session token.

        The previous session of the cookie ends.
        """
        form = await read_form(request)
        name, password = form.get("username"), form.get("password")
        if name is None or password is None:
            raise login_failed()
        user = self._access.authenticate(request, name, password)
        self._sessions.end(session_token(request) or "")
        response = json_response({"name": user.name, "tags": list(user.tags)})
        response.headers[hdrs.SET_COOKIE] = session_cookie(request, self._sessions.start(user))
        return response

    @route("DELETE", "session")
    async def end(self, request: web.Request) -> web.Response:
        """Log out, if logged in. After single sign-on, return the provider's page to log out at, too."""
        token = session_token(request)
        login = self._sessions.end(token) if token else None
        page = None
        if login is not None:
            page = await login.log_out(base_url(request, self._context.settings.management.path_prefix))
        response = web.Response(status=204) if page is None else json_response({"location": page})
        response.headers[hdrs.SET_COOKIE] = session_cookie(request, "") + "; Max-Age=0"
        return response


def session_cookie(request: web.Request, value: str) -> str:
    """Return the header that sets the cookie of a session to its token."""
    secure = "; Secure" if request.secure else ""
    return f"{cookie_name(request)}={value}; Path=/; HttpOnly; SameSite=Strict{secure}"


def base_url(request: web.Request, path_prefix: str) -> str:
    """Return the URL of the pages as the browser knows it, also behind a proxy; it ends with a slash."""
    origin = request.headers.get(hdrs.ORIGIN) or f"{request.scheme}://{request.host}"
    path = path_prefix.strip("/")
    return f"{origin}/{path}/" if path else f"{origin}/"
