"""Requests to the management HTTP API as they are: raw paths, headers and logins of any user."""

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
    """An answer: status, headers by lower-case name, body."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def document(self) -> Any:
        """The body, decoded from JSON."""
        return json.loads(self.body)


def basic(user: str, password: str) -> str:
    """The value of an Authorization header."""
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
    """Send a request and return the answer, whatever it is.

    Args:
        management: whose base URL, and whose login by default.
        method: HTTP method.
        path: as it is sent, with query.
        headers: further ones.
        body: as it is sent.
        authorization: header of that name; None for none.
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
    """A virtual host of its own with users for a test module; a context manager that removes them.

    Args:
        management: of the broker under test.
        broker_url: its AMQP URL.

    Attributes:
        vhost: name of the virtual host; it needs percent-encoding in paths.
        path: the name, encoded.
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
        """Make a user; return the Authorization header of its requests.

        Args:
            tags: separated by commas.
            permitted: it has all permissions in the virtual host; otherwise none anywhere.
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
        """Send a GET request; ``{v}`` in the path is the virtual host."""
        raw = path.replace("{v}", self.path)
        return send(self.management, "GET", f"/api/{raw}", headers=headers, authorization=authorization)
