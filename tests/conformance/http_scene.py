"""A virtual host with users and connections for a test module, to be looked at by the management HTTP API."""

from __future__ import annotations

import os
import uuid
from contextlib import ExitStack
from types import TracebackType
from typing import Any
from urllib.parse import quote

from tests.conformance.http_api import PASSWORD, HttpApi, Reply, basic, path
from tests.support.management import Management
from tests.support.wire import Connection


class Scene:
    """A virtual host with users for a test module; a context manager that removes them."""

    def __init__(self, management: Management, broker_url: str) -> None:
        self.api = HttpApi(management)
        self.broker_url = broker_url
        self.vhost = f"conformance/{os.getpid()}.{uuid.uuid4().hex[:8]}"
        self.path = quote(self.vhost, safe="")
        self._users: list[str] = []
        self._stack = ExitStack()

    def __enter__(self) -> Scene:
        assert self.api.ask("PUT", path("vhosts", self.vhost)).status == 201
        self._stack.callback(self.api.ask, "DELETE", path("vhosts", self.vhost))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def connect(self, **options: Any) -> Connection:
        connection = Connection(self.broker_url, vhost=self.vhost, **options)
        self._stack.callback(connection.close)
        return connection

    def user(self, tags: str, permitted: bool = True) -> str:
        """Create a user; return the Authorization header of its requests."""
        name = f"{self.vhost}.{len(self._users)}"
        self._users.append(name)
        assert self.api.ask("PUT", path("users", name), {"password": PASSWORD, "tags": tags}).status == 201
        self._stack.callback(self.api.ask, "DELETE", path("users", name))
        if permitted:
            everything = {"configure": ".*", "write": ".*", "read": ".*"}
            answer = self.api.ask("PUT", path("permissions", self.vhost, name), everything)
            assert answer.status == 201
        return basic(name)

    def get(self, below: str, authorization: str | None = "default", **headers: str) -> Reply:
        """Send a GET request; `{v}` in the path below /api/ is replaced by the virtual host."""
        target = "/api/" + below.replace("{v}", self.path)
        return self.api.send("GET", target, headers=headers, authorization=authorization)
