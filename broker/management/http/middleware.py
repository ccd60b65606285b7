"""The middleware that gives responses RabbitMQ's format: errors, headers, compression."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Awaitable, Callable, Coroutine, Generator
from typing import Any, Final, TypeVar
from urllib.parse import unquote

from aiohttp import Payload, hdrs, web
from aiohttp.typedefs import Handler, Middleware

from leveret.broker.core.events import BROKER, Events
from leveret.broker.management.http.logins import LOGIN_NAME, REFUSAL, is_from_ui
from leveret.broker.management.http.origins import SAFE_METHODS
from leveret.broker.management.http.responses import accepts_gzip, failure, from_fault, not_found, require_json_accepted
from leveret.protocol.faults import AmqpFault

log = logging.getLogger("leveret.http")

_METHODS: Final = ("HEAD", "GET", "POST", "PUT", "DELETE")
#: Header Allow of paths that do not exist.
_FILE_METHODS: Final = "HEAD, GET, OPTIONS"
_JSON: Final = "application/json"
_POLICY: Final = "script-src 'self' 'unsafe-eval' 'unsafe-inline'; object-src 'self'"
#: Bytes in a path that may not be UTF-8; and slashes and per cent signs, which are decoded after the path is split.
_NOT_ASCII: Final = re.compile("%[89A-Fa-f]")
_KEPT: Final = re.compile("%(2[Ff5])")
#: Smallest body in bytes that is compressed.
_COMPRESSED_MIN: Final = 301


@web.middleware
async def format_responses(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Format errors as RabbitMQ does, and set the headers of all responses."""
    try:
        response = await _handle(request, handler)
    except web.HTTPUnauthorized as error:
        _log_denied(request, error)
        response = _as_response(error)
    except web.HTTPException as error:
        response = _as_response(error)
    if is_from_ui(request.headers):
        # With this header the browser would show its own login dialog.
        response.headers.popall(hdrs.WWW_AUTHENTICATE, None)
    _set_headers(response)
    if isinstance(response, web.Response) and response.body is not None:
        _compress(request, response)
    return response


async def _handle(request: web.Request, handler: Handler) -> web.StreamResponse:
    _read_names(request)
    try:
        response = await handler(request)
    except web.HTTPMethodNotAllowed as error:
        allowed = [method for method in _METHODS if method in error.allowed_methods]
        return _allowed(request, ", ".join([*allowed, "OPTIONS"]))
    except web.HTTPNotFound as error:
        if error.content_type == _JSON:
            raise
        # Raised by the router, without a JSON body.
        return _unknown_path(request)
    except (web.RequestPayloadError, ConnectionResetError):
        # The client disconnected while sending, or the body is not encoded as declared.
        raise failure(web.HTTPBadRequest, "bad_request", "the body cannot be read") from None
    except AmqpFault as fault:
        raise from_fault(fault) from None
    except RecursionError:
        # Hundreds of nested tables, too deep for Python's stack. No known client sends them.
        raise failure(web.HTTPBadRequest, "bad_request", "nested too deep") from None
    except web.HTTPException:
        raise
    except Exception:
        log.exception("%s %s: internal error", request.method, request.path)
        raise failure(web.HTTPInternalServerError, "internal_server_error", "Internal Server Error") from None
    if request.method in SAFE_METHODS and response.content_type == _JSON:
        # Paths that need no login have not checked this yet.
        require_json_accepted(request)
    return response


def _log_denied(request: web.Request, error: web.HTTPUnauthorized) -> None:
    """Log that a user was refused, as RabbitMQ does; requests without a user are not logged."""
    name = request.get(LOGIN_NAME)
    if name is None:
        return
    if REFUSAL in request:
        log.warning("HTTP access denied: %s", request[REFUSAL])
    else:
        log.warning("HTTP access denied: user '%s' - %s", name, json.loads(error.text or "{}").get("reason"))


def _read_names(request: web.Request) -> None:
    """Decode the names in a path that are not UTF-8, which aiohttp leaves as they are."""
    path = request.rel_url.raw_path
    resource = request.match_info.route.resource
    pattern = None if resource is None else resource.get_info().get("pattern")
    if pattern is None or _NOT_ASCII.search(path) is None:
        return
    # Slashes in names are told from those between them as aiohttp does it.
    decoded = unquote(_KEPT.sub(lambda found: f"%25{found[1].upper()}", path), errors="surrogateescape")
    found = pattern.fullmatch(decoded)
    if found is not None:
        names = found.groupdict().items()
        request.match_info.update({key: name.replace("%2F", "/").replace("%25", "%") for key, name in names})


def _allowed(request: web.Request, methods: str) -> web.Response:
    return web.Response(status=200 if request.method == hdrs.METH_OPTIONS else 405, headers={"allow": methods})


def _unknown_path(request: web.Request) -> web.Response:
    """Return the response for a path that does not exist. RabbitMQ looks for a read-only file there.

    Raises:
        HTTPNotFound: The usual case.
        HTTPNotAcceptable: The request does not accept JSON.
    """
    if request.method not in ("GET", "HEAD", "OPTIONS"):
        return _allowed(request, _FILE_METHODS)
    if "%2f" in request.rel_url.raw_path.lower():
        # A file name cannot have a slash.
        return web.Response(status=400)
    if request.method == hdrs.METH_OPTIONS:
        return _allowed(request, _FILE_METHODS)
    require_json_accepted(request)
    raise not_found()


def _as_response(error: web.HTTPException) -> web.Response:
    """Return the response of an error without aiohttp's additions: RabbitMQ sends no charset and no text bodies."""
    headers = {name: value for name, value in error.headers.items() if name.lower() != "content-type"}
    if error.content_type != _JSON:
        return web.Response(status=error.status, headers=headers)
    assert isinstance(error.body, bytes)
    return web.Response(status=error.status, body=error.body, headers={**headers, "content-type": _JSON})


def _set_headers(response: web.StreamResponse) -> None:
    headers = response.headers
    if response.status in (401, 404, 405, 406):
        headers.setdefault("vary", "origin")
    headers["server"] = "Leveret"
    headers.setdefault("cache-control", "no-cache")
    headers.setdefault("vary", "accept, accept-encoding, origin")
    headers.setdefault("content-security-policy", _POLICY)


def _compress(request: web.Request, response: web.Response) -> None:
    body = response.body
    size = body.size if isinstance(body, Payload) else response.content_length
    if (size or 0) >= _COMPRESSED_MIN and accepts_gzip(request):
        # Large bodies are compressed in a thread.
        response.enable_compression(web.ContentCoding.gzip)


Result = TypeVar("Result")


def act_for_requests(events: Events) -> Middleware:
    """Return a middleware with which a request has an actor of its own: its user, from the login on."""

    @web.middleware
    async def act(request: web.Request, handler: Handler) -> web.StreamResponse:
        return await _Acting(events, _run(handler, request))

    return act


async def _run(handler: Handler, request: web.Request) -> web.StreamResponse:
    return await handler(request)


class _Acting(Awaitable[Result]):
    """Runs a coroutine. Whenever it waits the actor is the broker, and when it goes on its own one.

    Args:
        work: The coroutine, which may set the actor.
    """

    __slots__ = ("_events", "_work")

    def __init__(self, events: Events, work: Coroutine[Any, Any, Result]) -> None:
        self._events = events
        self._work = work

    def __await__(self) -> Generator[Any, Any, Result]:
        """Run the coroutine."""
        events, actor = self._events, BROKER
        step: Callable[[Any], Any] = self._work.send
        value: Any = None
        while True:
            events.actor = actor
            try:
                waited = step(value)
            except StopIteration as end:
                result: Result = end.value
                return result
            finally:
                actor, events.actor = events.actor, BROKER
            try:
                step, value = self._work.send, (yield waited)
            except BaseException as error:  # noqa: BLE001 - it is for the coroutine, as after any await
                step, value = self._work.throw, error
