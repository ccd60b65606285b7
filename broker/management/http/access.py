"""Who may use the HTTP API, and what requests say.

Source: https://www.rabbitmq.com/docs/management#permissions
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final, Literal

from aiohttp import BasicAuth, web

from broker.auth.accounts import Accounts
from broker.auth.users import User

_REALM: Final = {"www-authenticate": 'Basic realm="Leveret"'}

#: A tag includes the rights of those behind it.
_INCLUDED: Final = {
    "administrator": frozenset(("administrator", "monitoring", "policymaker", "management")),
    "monitoring": frozenset(("monitoring", "management")),
    "policymaker": frozenset(("policymaker", "management")),
    "management": frozenset(("management",)),
}
_REFUSALS: Final = {
    "administrator": "Not administrator user",
    "monitoring": "Not monitor user",
    "policymaker": "Not policymaker user",
    "management": "Not management user",
}


class Access:
    """Checks who asks.

    Args:
        accounts: Who there is.
    """

    def __init__(self, accounts: Accounts) -> None:
        self._accounts = accounts

    def login(self, request: web.Request) -> User:
        """The user whose name and password a request carries.

        Raises:
            HTTPUnauthorized: Neither, or wrong ones.
        """
        try:
            login = BasicAuth.decode(request.headers.get("authorization", ""), encoding="utf-8")
        except ValueError:
            raise web.HTTPUnauthorized(headers=_REALM) from None
        remote = request.remote or ""
        loopback = remote.startswith("127.") or remote == "::1"
        user = self._accounts.authenticate(login.login, login.password.encode(), loopback)
        if user is None:
            raise failure(web.HTTPUnauthorized, "not_authorised", "Login failed")
        return user

    def check(
        self,
        user: User,
        vhost: str,
        kind: Literal["configure", "write", "read"],
        resource: Literal["queue", "exchange"],
        name: str,
    ) -> None:
        """Refuse an operation on a queue or exchange.

        Raises:
            ChannelFault: ACCESS_REFUSED (403).
        """
        self._accounts.check(user, vhost, kind, resource, name)

    def require(self, request: web.Request, tag: str) -> User:
        """The user of a request, if a tag gives it the right.

        Args:
            request: The request.
            tag: administrator, monitoring, policymaker or management.
        Raises:
            HTTPUnauthorized: It may not.
        """
        user = self.login(request)
        if not any(tag in _INCLUDED.get(given, ()) for given in user.tags):
            raise failure(web.HTTPUnauthorized, "not_authorised", _REFUSALS[tag])
        return user


def failure(status: type[web.HTTPException], error: str, reason: str) -> web.HTTPException:
    """An error answer in RabbitMQ's form."""
    return status(text=json.dumps({"error": error, "reason": reason}), content_type="application/json")


def not_found() -> web.HTTPException:
    """The answer for what does not exist."""
    return failure(web.HTTPNotFound, "Object Not Found", "Not Found")


def bad_request(reason: str) -> web.HTTPException:
    """The answer for a request that makes no sense."""
    return failure(web.HTTPBadRequest, "bad_request", reason)


async def read_object(request: web.Request) -> Mapping[str, Any]:
    """The JSON object in a request's body; an empty body is an empty object.

    Raises:
        HTTPBadRequest: It is no JSON object.
    """
    body = await request.read()
    if not body:
        return {}
    try:
        read = json.loads(body)
    except ValueError:
        raise bad_request("not_json") from None
    if isinstance(read, str):
        raise bad_request(
            "invalid payload: the request body JSON-decoded to a string. Is the input doubly-JSON-encoded?"
        )
    if read is None:
        return {}
    if not isinstance(read, dict):
        raise bad_request("not_json")
    return read
