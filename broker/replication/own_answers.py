"""What a node that does not lead answers itself over HTTP: health, metrics, its own state, and its promotion.

Everything else is the leader's. The broker's own users are those of the node's copy, since the leader may be gone; the
other servers of `auth_backends` are asked by the node itself.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import json
import sqlite3
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qs

from leveret.broker.addresses import is_loopback
from leveret.broker.auth.accounts import Accounts
from leveret.broker.auth.attempts import HTTP
from leveret.broker.auth.backend_interface import Login, Refused
from leveret.broker.auth.backends.chain import AuthBackends
from leveret.broker.auth.user_definitions import restore
from leveret.broker.replication.applying import DEFINITIONS
from leveret.broker.replication.plan import ReplicationError

#: Answers to health checks by path.
_CHECKS: Final[Mapping[str, int]] = {"/health/live": 200, "/health/ready": 200, "/api/health/checks/leader": 503}
#: Tags of users that may see the state, and that may change it.
_MONITORS: Final = frozenset({"monitoring", "administrator"})
_ADMINISTRATORS: Final = frozenset({"administrator"})
#: Seconds until a wrong login is answered.
_LOGIN_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True)
class Request:
    """A request as far as it is read: its head, or as much as came in time.

    Attributes:
        method: Its method.
        path: Its path without the prefix, and without a slash at the end.
        query: Parameters of its URL.
        headers: Its headers by their names in lower case.
    """

    method: str = ""
    path: str = ""
    query: Mapping[str, list[str]] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)


def read_request(head: bytes, prefix: str) -> Request:
    """Decode the head of a request; what is none has no path.

    Args:
        head: Its bytes.
        prefix: Prefix of the paths.
    """
    first, *lines = head.partition(b"\r\n\r\n")[0].decode("latin-1").split("\r\n")
    parts = first.split(" ")
    if len(parts) != 3:
        return Request()
    path, _, query = parts[1].partition("?")
    headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    return Request(parts[0], path.removeprefix(prefix).rstrip("/"), parse_qs(query), headers)


class OwnAnswers:
    """The answers of one node. Used by the broker's event loop.

    Args:
        root: The data directory.
        loopback_users: Names of users that may log in from this machine only.
        backends: Who knows users, without the broker's own.
        client_id: Name with which tokens log in; see `management.oauth_client_id`.
        report: Returns what is known of this node's replication, for JSON.
        metrics: Returns this node's metrics as text.
        promote: Lets this node lead if its argument is true; returns what may be missing.
    """

    def __init__(
        self,
        root: Path,
        loopback_users: tuple[str, ...],
        backends: AuthBackends,
        client_id: str,
        report: Callable[[], Mapping[str, Any]],
        metrics: Callable[[], Iterator[str]],
        promote: Callable[[bool], Awaitable[dict[str, Any]]],
    ) -> None:
        self._root = root
        self._loopback_users = loopback_users
        self._backends = backends
        self._client_id = client_id
        self._report = report
        self._metrics = metrics
        self._promote = promote

    async def answer(self, service: str, request: Request, peer: str) -> bytes:
        """Return the response to a request; empty for the leader's.

        Args:
            service: Name of the listener.
            request: The request.
            peer: The client's address.
        """
        path = request.path
        if service == "prometheus":
            if path != "/metrics":
                return _response(404, b"", "text/plain")
            return _response(200, "".join(self._metrics()).encode(), "text/plain; version=0.0.4")
        if path in _CHECKS:
            told = (
                {"status": "ok"} if _CHECKS[path] == 200 else {"status": "failed", "reason": "this node is a standby"}
            )
            return _json(_CHECKS[path], told)
        if path == "/api/replication/local":
            return await self._refuse(request, peer, _MONITORS) or _json(200, self._report())
        if path == "/api/replication/promote" and request.method == "POST":
            refusal = await self._refuse(request, peer, _ADMINISTRATORS)
            return refusal or await self._lead(request.query.get("force") == ["true"])
        return b""

    async def _lead(self, force: bool) -> bytes:
        try:
            missing = await self._promote(force)
        except (ReplicationError, OSError) as error:
            return _json(400, {"error": "bad_request", "reason": str(error)})
        return _json(202 if force else 200, {"missing": missing, "promoted": force})

    async def _refuse(self, request: Request, peer: str, tags: frozenset[str]) -> bytes:
        """Return the response to a request whose user is not known, or has none of some tags; empty for others."""
        found = await self._tags_of(request, peer)
        if found & tags:
            return b""
        await asyncio.sleep(_LOGIN_SECONDS)
        return _json(401, {"error": "not_authorised", "reason": "Login failed" if not found else "Not allowed"})

    async def _tags_of(self, request: Request, peer: str) -> set[str]:
        """Return the tags of the user of a request; none for a wrong name or password."""
        try:
            name, secret = self._login_of(request)
            accounts = await asyncio.get_running_loop().run_in_executor(None, self._read_accounts)
            user = await self._backends.of(accounts).login(Login(name, secret, peer, is_loopback(peer), HTTP))
        except (binascii.Error, ValueError, sqlite3.Error, Refused):
            return set()
        return {*user.tags, ""}

    def _login_of(self, request: Request) -> tuple[str, bytes]:
        """Return the name and the password, or token, of a request.

        Raises:
            ValueError: It has none.
        """
        scheme, _, login = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer":
            return self._client_id, login.strip().encode()
        if scheme.lower() != "basic":
            raise ValueError(scheme)
        name, _, password = base64.b64decode(login.strip(), validate=True).partition(b":")
        return name.decode("utf-8", "surrogateescape"), password

    async def close(self) -> None:
        """Close the connections to other servers."""
        await self._backends.close()

    def _read_accounts(self) -> Accounts:
        accounts = Accounts(self._loopback_users)
        database = sqlite3.connect(f"file:{self._root / DEFINITIONS}?mode=ro", uri=True)
        try:
            for (document,) in database.execute("select value from definitions where kind = 'accounts'").fetchall():
                restore(accounts, json.loads(document), None)
        finally:
            database.close()
        return accounts


def _json(status: int, value: object) -> bytes:
    return _response(status, json.dumps(value).encode(), "application/json")


def _response(status: int, body: bytes, kind: str) -> bytes:
    head = f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\ncontent-type: {kind}\r\ncontent-length: {len(body)}\r\n"
    return f"{head}connection: close\r\n\r\n".encode() + body
