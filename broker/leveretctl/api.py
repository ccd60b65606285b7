"""Client of a broker's HTTP API."""

from __future__ import annotations

import base64
import http.client
import json
import re
import ssl
from typing import Any, Final
from urllib.parse import quote, urlencode

from leveret.broker.leveretctl.command_errors import (
    DATA,
    UNAVAILABLE,
    ApiFault,
    CommandFault,
    RequestTimeout,
    Unreachable,
)
from leveret.broker.leveretctl.command_line import Address

# RabbitMQ 3.10 escapes these characters in its reasons.
_ESCAPES: Final = (("&lt;", "<"), ("&gt;", ">"), ("&amp;", "&"))
# Texts in RabbitMQ's reasons are Erlang terms: <<"10">>.
_BINARY: Final = re.compile(r'<<"((?:[^"\\]|\\.)*)"(?:/utf8)?>>')


class Api:
    """HTTP client that sends all requests to one broker over one connection."""

    def __init__(self, address: Address, timeout: float | None) -> None:
        self.address = address
        self.timeout = timeout
        login = f"{address.user}:{address.password}".encode()
        self._headers = {
            "Authorization": "Basic " + base64.b64encode(login).decode(),
            # RabbitMQ 3.10 refuses some requests that accept JSON only, because their responses have no body.
            "Accept": "*/*",
            "Content-Type": "application/json",
        }
        self._connection: http.client.HTTPConnection | None = None

    def as_user(self, user: str, password: str) -> Api:
        """Return a client of the same API that logs in as another user."""
        return Api(self.address._replace(user=user, password=password), self.timeout)

    def with_timeout(self, timeout: float) -> Api:
        """Return a client of the same API with another timeout, in seconds, and a connection of its own."""
        return Api(self.address, timeout)

    def close(self) -> None:
        """Close the connection. The next request opens a new one."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def get(self, *path: str, **query: Any) -> Any:
        """Send a GET request and return the decoded response.

        Args:
            path: path segments after `/api`, not percent-encoded.
            query: query parameters; None values are omitted.

        Raises:
            ApiFault: the API returns an error.
            Unreachable: there is no response.
            RequestTimeout: no response within the timeout.
        """
        return self.request("GET", path, query=query)

    def find(self, *path: str, **query: Any) -> Any:
        """Send a GET request and return the decoded response, or None if the object does not exist."""
        try:
            return self.get(*path, **query)
        except ApiFault as fault:
            if fault.not_found:
                return None
            raise

    def put(self, *path: str, body: Any = None, **query: Any) -> Any:
        """Send a PUT request and return the decoded response. Raises as `get` does."""
        return self.request("PUT", path, query=query, body={} if body is None else body)

    def post(self, *path: str, body: Any = None, **query: Any) -> Any:
        """Send a POST request and return the decoded response. Raises as `get` does."""
        return self.request("POST", path, query=query, body={} if body is None else body)

    def delete(self, *path: str, headers: dict[str, str] | None = None, **query: Any) -> None:
        """Send a DELETE request. Raises as `get` does."""
        self.request("DELETE", path, query=query, headers=headers)

    def request(self, method: str, path: tuple[str, ...], **more: Any) -> Any:
        """Send a request as `raw` does, and return the decoded response, None if it has no body."""
        data = self.raw(method, path, **more)
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
        """Send a request and return the response body as received. Raises as `get` does.

        Args:
            path: path segments after `/api`, not percent-encoded.
            query: query parameters; None values are omitted, True and False become `true` and `false`.
            body: bytes are sent unchanged, other values as JSON, None as no body.
            headers: additional headers.

        Raises:
            CommandFault: a path segment is empty (exit status 65).
        """
        if not all(path):
            # An empty segment would turn the path into that of another resource.
            raise CommandFault(DATA, "Error:\nno virtual host, user, queue or other name may be empty")
        target = f"{self.address.prefix}/api/{'/'.join(quote(part, safe='') for part in path)}"
        parameters = {key: _parameter(value) for key, value in (query or {}).items() if value is not None}
        if parameters:
            target += f"?{urlencode(parameters)}"
        payload = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        status, data = self._exchange(method, target, payload, {**self._headers, **(headers or {})})
        if status >= 400:
            raise _fault(status, data)
        return data

    def _exchange(self, method: str, target: str, body: bytes | None, headers: dict[str, str]) -> tuple[int, bytes]:
        if self.timeout is not None and self.timeout <= 0:
            raise RequestTimeout
        # The broker may have closed an idle connection, so a request on a reused connection is sent again. POST and
        # DELETE are not, because the first attempt may have taken effect.
        fresh = self._connection is None
        try:
            return self._send(method, target, body, headers)
        except TimeoutError:
            self.close()
            raise RequestTimeout from None
        except ssl.SSLError as error:
            self.close()
            raise _tls_fault(self.address, error) from error
        except (OSError, http.client.HTTPException) as error:
            self.close()
            if fresh or method not in ("GET", "PUT"):
                raise Unreachable(str(error) or type(error).__name__) from error
        return self._exchange(method, target, body, headers)

    def _send(self, method: str, target: str, body: bytes | None, headers: dict[str, str]) -> tuple[int, bytes]:
        if self._connection is None:
            self._connection = _connection(self.address, self.timeout)
        self._connection.request(method, target, body, headers)
        response = self._connection.getresponse()
        self.notice = _unescaped(response.getheader("Leveret-Notice", ""))
        return response.status, response.read()


def _unescaped(text: str) -> str:
    """Return the text of a header with the escapes of JSON; "" if it is none."""
    try:
        return str(json.loads(f'"{text}"'))
    except ValueError:
        return ""


def _connection(address: Address, timeout: float | None) -> http.client.HTTPConnection:
    if address.scheme != "https":
        return http.client.HTTPConnection(address.host, address.port, timeout=timeout)
    try:
        context = ssl.create_default_context(cafile=address.ca_file or None)
    except OSError as error:
        is_read = isinstance(error, ssl.SSLError)
        reason = "has no certificate in PEM form" if is_read else f"cannot be read: {error.strerror}"
        raise CommandFault(DATA, f"Error:\n--cacert: {address.ca_file} {reason}") from error
    return http.client.HTTPSConnection(address.host, address.port, timeout=timeout, context=context)


def _tls_fault(address: Address, error: ssl.SSLError) -> CommandFault:
    """Return the fault for an encrypted connection that failed, with what helps."""
    if isinstance(error, ssl.SSLCertVerificationError):
        reason = f"the certificate of {address} is not trusted: {error.verify_message}"
        if "match" in error.verify_message:
            advice = "use a name of the certificate as the host in --url or LEVERET_URL"
        else:
            advice = "name the PEM file of the authority that has signed it with --cacert or LEVERET_CACERT"
    elif error.reason in ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "HTTP_REQUEST"):
        reason = f"{address} does not speak TLS"
        advice = "use http:// in --url or LEVERET_URL, or the port of the broker's option management_tls_port"
    else:
        reason = f"no encrypted connection to {address}: {(error.reason or str(error)).lower().replace('_', ' ')}"
        advice = "see the broker's log"
    return CommandFault(UNAVAILABLE, f"Error:\n{reason}\nsuggestion: {advice}")


def _parameter(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _fault(status: int, data: bytes) -> ApiFault:
    error, reason, details, detail = "", data.decode("utf-8", "replace").strip(), None, ""
    try:
        found = json.loads(data)
    except ValueError:
        found = None
    if isinstance(found, dict):
        error, detail = str(found.get("error", "")), str(found.get("detail", ""))
        parameters = found.get("reason", found.get("status", ""))
        reason, details = _text(parameters), parameters if isinstance(parameters, list) else None
    for escape, character in _ESCAPES:
        reason = reason.replace(escape, character)
    reason = _BINARY.sub(r'"\1"', reason)
    reason = reason or http.client.responses.get(status, f"HTTP status {status}")
    return ApiFault(status, reason, error, details, detail)


def _text(reason: Any) -> str:
    if isinstance(reason, list):
        return ", ".join(_text(part) for part in reason)
    return reason if isinstance(reason, str) else json.dumps(reason)
