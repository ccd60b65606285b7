"""The error answers of the HTTP API, in RabbitMQ's form.

Handlers raise what these functions return. An ``AmqpFault`` may be raised as it is: the middleware answers it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from aiohttp import web

from leveret.broker.management.http.answers import encode
from leveret.protocol.faults import AmqpFault, ReplyCode

#: Asks for a name and a password.
CHALLENGE: Final[Mapping[str, str]] = {"www-authenticate": 'Basic realm="RabbitMQ Management"'}


def failure(
    status: type[web.HTTPException], error: str, reason: object, headers: Mapping[str, str] | None = None
) -> web.HTTPException:
    """An error answer.

    Args:
        status: aiohttp's exception for the status code.
        error: What went wrong, in a word.
        reason: Text, or a list for what RabbitMQ has as an Erlang tuple.
        headers: Further ones.
    """
    text = encode({"error": error, "reason": reason})
    return status(text=text, headers={**(headers or {}), "content-type": "application/json"})


def not_found() -> web.HTTPException:
    """404: there is no such path or object."""
    return failure(web.HTTPNotFound, "Object Not Found", "Not Found")


def missing(reason: str) -> web.HTTPException:
    """404: something that the request builds upon does not exist, for example ``vhost_not_found``."""
    return failure(web.HTTPNotFound, "not_found", reason)


def bad_request(reason: object) -> web.HTTPException:
    """400: a request that makes no sense."""
    return failure(web.HTTPBadRequest, "bad_request", reason)


def not_authorised(reason: str) -> web.HTTPException:
    """401: the user is known, and may not."""
    return failure(web.HTTPUnauthorized, "not_authorised", reason)


def login_failed() -> web.HTTPException:
    """401: wrong name or password."""
    return failure(web.HTTPUnauthorized, "not_authorized", "Login failed", CHALLENGE)


def from_fault(fault: AmqpFault) -> web.HTTPException:
    """The answer to what the broker refuses to any client, over whatever protocol."""
    if fault.code is ReplyCode.ACCESS_REFUSED:
        return not_authorised("Access refused.")
    if fault.code is ReplyCode.RESOURCE_ERROR:
        return failure(web.HTTPServiceUnavailable, "service_unavailable", fault.explanation)
    if fault.code is ReplyCode.NOT_FOUND:
        return missing(fault.explanation)
    return bad_request(fault.explanation)
