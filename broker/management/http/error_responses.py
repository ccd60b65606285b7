"""Error responses of the HTTP API, in RabbitMQ's format.

Handlers raise the exceptions that these functions return. They may also raise an ``AmqpFault``, which the middleware
converts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from aiohttp import web

from leveret.broker.management.http.responses import encode
from leveret.protocol.faults import AmqpFault, ReplyCode

#: Header that requests a name and a password.
CHALLENGE: Final[Mapping[str, str]] = {"www-authenticate": 'Basic realm="RabbitMQ Management"'}


def failure(
    status: type[web.HTTPException],
    error: str,
    reason: object,
    headers: Mapping[str, str] | None = None,
    detail: str = "",
) -> web.HTTPException:
    """Return an error response.

    Args:
        status: aiohttp's exception for the status code.
        error: The kind of error, for example ``bad_request``.
        reason: Text, or a list where RabbitMQ has an Erlang tuple.
        headers: Further headers.
        detail: What RabbitMQ does not say; "" for nothing.
    """
    text = encode({"error": error, "reason": reason, **({"detail": detail} if detail else {})})
    return status(text=text, headers={**(headers or {}), "content-type": "application/json"})


def not_found() -> web.HTTPException:
    """Return 404: the path or object does not exist."""
    return failure(web.HTTPNotFound, "Object Not Found", "Not Found")


def missing(reason: str) -> web.HTTPException:
    """Return 404: something that the request needs does not exist, for example ``vhost_not_found``."""
    return failure(web.HTTPNotFound, "not_found", reason)


def bad_request(reason: object, detail: str = "") -> web.HTTPException:
    """Return 400: the request is invalid. For the arguments see failure()."""
    return failure(web.HTTPBadRequest, "bad_request", reason, detail=detail)


def not_authorised(reason: str) -> web.HTTPException:
    """Return 401: the user is authenticated but not allowed to do this."""
    return failure(web.HTTPUnauthorized, "not_authorised", reason)


def login_failed() -> web.HTTPException:
    """Return 401: wrong name or password."""
    return failure(web.HTTPUnauthorized, "not_authorized", "Login failed", CHALLENGE)


def from_fault(fault: AmqpFault) -> web.HTTPException:
    """Return the response for an operation that the broker refused with an AMQP reply code."""
    if fault.code is ReplyCode.ACCESS_REFUSED:
        return not_authorised("Access refused.")
    if fault.code is ReplyCode.RESOURCE_ERROR:
        return failure(web.HTTPServiceUnavailable, "service_unavailable", fault.explanation)
    if fault.code is ReplyCode.NOT_FOUND:
        return missing(fault.explanation)
    return bad_request(fault.explanation)
