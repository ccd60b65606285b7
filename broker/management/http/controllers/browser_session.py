"""Login and logout of the web pages."""

from __future__ import annotations

from aiohttp import hdrs, web

from leveret.broker.management.http.access import has_tag
from leveret.broker.management.http.controller import Controller, RequestContext, resource
from leveret.broker.management.http.errors import login_failed
from leveret.broker.management.http.logins import cookie_name, session_token
from leveret.broker.management.http.request_bodies import read_form
from leveret.broker.management.http.responses import json_response


class BrowserSession(Controller):
    """The resource ``/api/session``, which RabbitMQ does not have."""

    def __init__(self, context: RequestContext) -> None:
        super().__init__(context)
        self._sessions = context.access.sessions

    def routes(self) -> list[web.RouteDef]:
        """Return the paths and their handlers."""
        return [*resource("session", GET=self.show, POST=self.start, DELETE=self.end)]

    async def show(self, request: web.Request) -> web.Response:
        """Show the user of the session cookie; an empty object without a session."""
        token = session_token(request)
        user = self._sessions.user(token) if token else None
        if user is None or not has_tag(user, "management"):
            return json_response({})
        return json_response({"name": user.name, "tags": list(user.tags)})

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
        response.headers[hdrs.SET_COOKIE] = _cookie(request, self._sessions.start(user))
        return response

    async def end(self, request: web.Request) -> web.Response:
        """Log out, if logged in."""
        token = session_token(request)
        if token:
            self._sessions.end(token)
        return web.Response(status=204, headers={hdrs.SET_COOKIE: _cookie(request, "") + "; Max-Age=0"})


def _cookie(request: web.Request, value: str) -> str:
    secure = "; Secure" if request.secure else ""
    return f"{cookie_name(request)}={value}; Path=/; HttpOnly; SameSite=Strict{secure}"
