"""Raw requests to the management HTTP API: any path, headers and login."""

from __future__ import annotations

import base64
import http.client
import json
import os
import uuid
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from types import TracebackType
from typing import Any
from urllib.parse import quote, urlsplit

from tests.conformance.http_answers import ask
from tests.support.management import Management
from tests.support.wire import Connection

NOT_FOUND = {"error": "Object Not Found", "reason": "Not Found"}
PASSWORD = "conformance"


@dataclass(frozen=True)
class Reply:
    """A response: status, headers by lower-case name, body."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def document(self) -> Any:
        """The body, decoded from JSON."""
        return json.loads(self.body)


def basic(user: str, password: str) -> str:
    """Return the value of an Authorization header."""
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


def send(
    management: Management,
    method: str,
    path: str,
    *,
    headers: Mapping[str, str] | None = None,
    body: bytes | None = None,
    authorization: str | None = "default",
) -> Reply:
    """Send a request and return the response, whatever its status.

    Args:
        management: the API; its base URL is used, and its login by default.
        method: HTTP method.
        path: encoded path with query.
        headers: further headers.
        body: raw body.
        authorization: value of the Authorization header; None for none.
    """
    parts = urlsplit(management.base)
    assert parts.hostname is not None
    sent = dict(headers or {})
    if authorization is not None:
        sent["authorization"] = management.authorization if authorization == "default" else authorization
    connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=120)
    try:
        connection.request(method, path, body=body, headers=sent)
        response = connection.getresponse()
        return Reply(response.status, {key.lower(): value for key, value in response.getheaders()}, response.read())
    finally:
        connection.close()


class Scene:
    """A virtual host with users for a test module; a context manager that removes them.

    Args:
        management: the HTTP API of the broker under test.
        broker_url: AMQP URL of the broker.

    Attributes:
        vhost: name of the virtual host; it needs percent-encoding in paths.
        path: the encoded name.
    """

    def __init__(self, management: Management, broker_url: str) -> None:
        self.management = management
        self.broker_url = broker_url
        self.vhost = f"conformance/{os.getpid()}.{uuid.uuid4().hex[:8]}"
        self.path = quote(self.vhost, safe="")
        self._users: list[str] = []
        self._stack = ExitStack()

    def __enter__(self) -> Scene:
        assert ask(self.management, "PUT", "vhosts", self.vhost).status == 201
        self._stack.callback(ask, self.management, "DELETE", "vhosts", self.vhost)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def connect(self, **options: Any) -> Connection:
        """Open a connection to the virtual host; the scene closes it."""
        connection = Connection(self.broker_url, vhost=self.vhost, **options)
        self._stack.callback(connection.close)
        return connection

    def user(self, tags: str, permitted: bool = True) -> str:
        """Create a user; return the Authorization header of its requests.

        Args:
            tags: tags, separated by commas.
            permitted: whether it has all permissions in the virtual host; otherwise it has none.
        """
        name = f"{self.vhost}.{len(self._users)}"
        self._users.append(name)
        assert ask(self.management, "PUT", "users", name, body={"password": PASSWORD, "tags": tags}).status == 201
        self._stack.callback(ask, self.management, "DELETE", "users", name)
        if permitted:
            everything = {"configure": ".*", "write": ".*", "read": ".*"}
            answer = ask(self.management, "PUT", "permissions", self.vhost, name, body=everything)
            assert answer.status == 201
        return basic(name, PASSWORD)

    def get(self, path: str, authorization: str | None = "default", **headers: str) -> Reply:
        """Send a GET request; `{v}` in the path is replaced by the virtual host."""
        raw = path.replace("{v}", self.path)
        return send(self.management, "GET", f"/api/{raw}", headers=headers, authorization=authorization)
