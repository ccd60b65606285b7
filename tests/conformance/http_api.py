"""Client of the management HTTP API for a test: any method, path, user and header; returns all responses."""

from __future__ import annotations

import base64
import http.client
import json
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any
from urllib.parse import quote, urlsplit

from tests.support.management import Management

NOT_FOUND = {"error": "Object Not Found", "reason": "Not Found"}
NO_VHOST = {"error": "not_found", "reason": "vhost_not_found"}
REFUSED = {"error": "not_authorised", "reason": "Access refused."}
PASSWORD = "conformance"


@dataclass(frozen=True)
class Reply:
    """A response: status, header fields by lower-case name, body."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def document(self) -> Any:
        return json.loads(self.body) if self.body else None


def path(*segments: str) -> str:
    """Return a path below /api from segments that are not yet percent-encoded."""
    return "/".join(quote(segment, safe="") for segment in segments)


def bad_request(reason: object) -> dict[str, object]:
    return {"error": "bad_request", "reason": reason}


def not_authorised(reason: str) -> dict[str, str]:
    """Return the body of a 401 for missing permissions."""
    return {"error": "not_authorised", "reason": reason}


def basic(user: str, password: str = PASSWORD) -> str:
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


class HttpApi:
    def __init__(self, management: Management) -> None:
        parts = urlsplit(management.base)
        self._host, self._port = parts.hostname or "", parts.port
        self._encrypted = parts.scheme == "https"
        self._authorization = management.authorization

    def send(
        self,
        method: str,
        target: str,
        body: bytes | None = None,
        *,
        headers: Mapping[str, str] | None = None,
        authorization: str | None = "default",
    ) -> Reply:
        """Send a request with no other header fields than these; redirects are not followed."""
        sent = dict(headers or {})
        if authorization is not None:
            sent["Authorization"] = self._authorization if authorization == "default" else authorization
        kind = http.client.HTTPSConnection if self._encrypted else http.client.HTTPConnection
        connection = kind(self._host, self._port, timeout=120)
        try:
            connection.request(method, target, body, sent)
            answer = connection.getresponse()
            return Reply(answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read())
        finally:
            connection.close()

    def ask(
        self,
        method: str,
        below: str,
        body: Any = None,
        *,
        user: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Reply:
        """Send a request and return the response, whatever its status."""
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        login = "default" if user is None else basic(user) if user else None
        sent = {"Content-Type": "application/json", **(headers or {})}
        return self.send(method, f"/api/{below}", data, headers=sent, authorization=login)

    def get(self, below: str, **options: Any) -> Any:
        reply = self.ask("GET", below, **options)
        assert reply.status == 200, reply
        return reply.document

    def check(self, method: str, below: str, body: Any, status: int, document: object = None, **options: Any) -> None:
        """Send a request, and assert status and body of the response."""
        reply = self.ask(method, below, body, **options)
        assert (reply.status, reply.document) == (status, document), (method, below, body)


class Belongings:
    """Virtual hosts and users of one test; a context manager that removes them."""

    def __init__(self, api: HttpApi) -> None:
        self._api = api
        self._made: list[str] = []

    def __enter__(self) -> Belongings:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for below in reversed(self._made):
            self._api.ask("DELETE", below)

    def name(self, kind: str) -> str:
        """Return a new name; the user or virtual host of that name is deleted after the test."""
        name = f"conformance-{uuid.uuid4().hex[:12]}"
        self._made.append(path(kind, name))
        return name

    def vhost(self) -> str:
        """Create a virtual host; the default user gets all permissions there."""
        name = self.name("vhosts")
        assert self._api.ask("PUT", path("vhosts", name)).status == 201
        return name

    def user(self, tags: str, vhost: str | None = None, patterns: tuple[str, str, str] = (".*", ".*", ".*")) -> str:
        """Create a user with the password PASSWORD."""
        name = self.name("users")
        assert self._api.ask("PUT", path("users", name), {"password": PASSWORD, "tags": tags}).status == 201
        if vhost is not None:
            granted = dict(zip(("configure", "write", "read"), patterns, strict=True))
            assert self._api.ask("PUT", path("permissions", vhost, name), granted).status == 201
        return name
