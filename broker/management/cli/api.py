"""The HTTP API of a broker, as the commands use it."""

from __future__ import annotations

import base64
import http.client
import json
from typing import Any, Final
from urllib.parse import quote, urlencode

from leveret.broker.management.cli.address import Address
from leveret.broker.management.cli.faults import DATA, CommandFault, OutOfTime

# RabbitMQ 3.10 answers these as HTML text; nobody names a queue so.
_ESCAPES: Final = (("&lt;", "<"), ("&gt;", ">"), ("&amp;", "&"))


class ApiFault(Exception):
    """An answer that is not a success.

    Args:
        status: HTTP status.
        reason: why, as the API says; a list that it gives is joined.
        error: the API's word for the kind of fault.
        details: the reason as it came, if it is a list.
    """

    def __init__(self, status: int, reason: str, error: str = "", details: list[Any] | None = None) -> None:
        super().__init__(f"{status} {reason}")
        self.status = status
        self.reason = reason
        self.error = error
        self.details = details or []

    @property
    def missing(self) -> bool:
        """Whether what was asked for does not exist."""
        return self.status == 404


class Unreachable(Exception):
    """No answer: nobody listens, the network failed, or what answers is no HTTP server."""


class Api:
    """Requests to one broker over one connection.

    Args:
        address: where it is.
        timeout: seconds to wait for an answer; None: for ever.
    """

    def __init__(self, address: Address, timeout: float | None) -> None:
        self.address = address
        self.timeout = timeout
        login = f"{address.user}:{address.password}".encode()
        self._headers = {
            "Authorization": "Basic " + base64.b64encode(login).decode(),
            # RabbitMQ 3.10 cannot answer some requests in JSON, as there is nothing to answer.
            "Accept": "*/*",
            "Content-Type": "application/json",
        }
        self._connection: http.client.HTTPConnection | None = None

    def as_user(self, user: str, password: str) -> Api:
        """Return the same API for another login."""
        return Api(self.address._replace(user=user, password=password), self.timeout)

    def close(self) -> None:
        """Close the connection; the next request opens another."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def get(self, *path: str, **query: Any) -> Any:
        """Return the decoded answer to a GET.

        Args:
            path: segments below `/api`, not yet percent-encoded.
            query: parameters; those that are None are left out.

        Raises:
            ApiFault: the API refuses.
            Unreachable: there is no answer.
            OutOfTime: not in time.
        """
        return self.request("GET", path, query=query)

    def find(self, *path: str, **query: Any) -> Any:
        """Return the decoded answer to a GET, or None when what it asks for does not exist."""
        try:
            return self.get(*path, **query)
        except ApiFault as fault:
            if fault.missing:
                return None
            raise

    def put(self, *path: str, body: Any = None, **query: Any) -> Any:
        """Return the decoded answer to a PUT; raises as `get` does."""
        return self.request("PUT", path, query=query, body={} if body is None else body)

    def post(self, *path: str, body: Any = None, **query: Any) -> Any:
        """Return the decoded answer to a POST; raises as `get` does."""
        return self.request("POST", path, query=query, body={} if body is None else body)

    def delete(self, *path: str, headers: dict[str, str] | None = None, **query: Any) -> None:
        """Send a DELETE; raises as `get` does."""
        self.request("DELETE", path, query=query, headers=headers)

    def request(
        self,
        method: str,
        path: tuple[str, ...],
        *,
        query: dict[str, Any] | None = None,
        body: Any = None,
        headers: dict[str, str] | None = None,
    ) -> Any:
        """Send a request and return the decoded answer, None when it has no body; raises as `get` does."""
        data = self.raw(method, path, query=query, body=body, headers=headers)
        return json.loads(data) if data else None

    def raw(
        self,
        method: str,
        path: tuple[str, ...],
        *,
        query: dict[str, Any] | None = None,
        body: Any = None,
        headers: dict[str, str] | None = None,
    ) -> bytes:
        """Send a request and return the answer's body as it came; raises as `get` does.

        Args:
            method: HTTP method.
            path: segments below `/api`, not yet percent-encoded.
            query: parameters; those that are None are left out, True and False are written in small letters.
            body: bytes as they are, anything else as JSON; None sends none.
            headers: further ones.

        Raises:
            CommandFault: a segment of the path is empty (65).
        """
        if not all(path):
            # Left out of the path, they would leave that of something else.
            raise CommandFault(DATA, "Error:\nno virtual host, user, queue or other name may be empty")
        target = f"{self.address.prefix}/api/{'/'.join(quote(part, safe='') for part in path)}"
        given = {key: _parameter(value) for key, value in (query or {}).items() if value is not None}
        if given:
            target += f"?{urlencode(given)}"
        payload = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        status, data = self._exchange(method, target, payload, {**self._headers, **(headers or {})})
        if status >= 400:
            raise _fault(status, data)
        return data

    def _exchange(self, method: str, target: str, body: bytes | None, headers: dict[str, str]) -> tuple[int, bytes]:
        if self.timeout is not None and self.timeout <= 0:
            raise OutOfTime
        # A kept connection may have been closed by the broker meanwhile. A new one that fails is a failure, and what
        # may have had its effect already is not said twice.
        fresh = self._connection is None
        try:
            return self._send(method, target, body, headers)
        except TimeoutError:
            self.close()
            raise OutOfTime from None
        except (OSError, http.client.HTTPException) as error:
            self.close()
            if fresh or method not in ("GET", "PUT"):
                raise Unreachable(str(error) or type(error).__name__) from error
        return self._exchange(method, target, body, headers)

    def _send(self, method: str, target: str, body: bytes | None, headers: dict[str, str]) -> tuple[int, bytes]:
        if self._connection is None:
            kind = http.client.HTTPSConnection if self.address.scheme == "https" else http.client.HTTPConnection
            self._connection = kind(self.address.host, self.address.port, timeout=self.timeout)
        self._connection.request(method, target, body, headers)
        response = self._connection.getresponse()
        return response.status, response.read()


def _parameter(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _fault(status: int, data: bytes) -> ApiFault:
    error, reason, details = "", data.decode("utf-8", "replace").strip(), None
    try:
        found = json.loads(data)
    except ValueError:
        found = None
    if isinstance(found, dict):
        error = str(found.get("error", ""))
        given = found.get("reason", found.get("status", ""))
        reason, details = _text(given), given if isinstance(given, list) else None
    for escape, character in _ESCAPES:
        reason = reason.replace(escape, character)
    return ApiFault(status, reason or http.client.responses.get(status, f"HTTP status {status}"), error, details)


def _text(reason: Any) -> str:
    if isinstance(reason, list):
        return ", ".join(_text(part) for part in reason)
    return reason if isinstance(reason, str) else json.dumps(reason)


def refusal(fault: ApiFault) -> CommandFault:
    """Return what a command says when the API refuses for a reason that the command does not know better."""
    reason = fault.reason
    if fault.status == 401 and fault.error != "not_authorised":
        reason = f"{reason}: wrong user name or password (--url http://user:password@host:port)"
    return CommandFault(69, f"Error:\n{reason}")
