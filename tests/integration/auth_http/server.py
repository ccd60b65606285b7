"""A server for the backend `http`, with users and permissions that both brokers are asked about."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Final
from urllib.parse import parse_qsl, urlsplit
from zlib import crc32

#: Tags by user. The password of each is its name in capitals.
USERS: Final[Mapping[str, str]] = {
    "ann": "",
    "bert": "management",
    "chloé": "management policymaker",
    "dora": "administrator",
}


def password_of(name: str) -> str:
    """Return the password of a user."""
    return name.upper() + " &+?"


def decide(path: str, fields: Mapping[str, str]) -> str:
    """Return the answer to a request: which of them are refused is chance, but the same each time."""
    name = fields.get("username", "")
    if path == "user":
        is_known = name in USERS and fields.get("password", password_of(name)) == password_of(name)
        return f"allow {USERS[name]}" if is_known else "deny"
    if path == "vhost":
        return "allow" if fields["vhost"] != "closed" or name == "bert" else "deny"
    asked = [fields.get(key, "") for key in ("username", "vhost", "resource", "name", "permission", "routing_key")]
    return "deny" if crc32("|".join(asked).encode()) % 4 == 0 else "allow"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: AuthServer

    def do_GET(self) -> None:
        self._answer(urlsplit(self.path).query)

    def do_POST(self) -> None:
        self._answer(self.rfile.read(int(self.headers["content-length"])).decode())

    def _answer(self, query: str) -> None:
        server = self.server
        path = urlsplit(self.path).path.rpartition("/")[2]
        fields = dict(parse_qsl(query, keep_blank_values=True))
        server.asked.append((path, fields))
        time.sleep(server.delay)
        answer = server.answers.get(path) or decide(path, fields)
        body = answer.encode()
        self.send_response(server.status)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: object) -> None:
        """Log nothing."""


class AuthServer(ThreadingHTTPServer):
    """The server, in a thread.

    Attributes:
        asked: Path and fields of all requests.
        answers: Answers in place of those of decide(), by path.
        status: Status of all answers.
        delay: Seconds before each answer.
    """

    daemon_threads = True
    request_queue_size = 256

    def __init__(self, port: int = 0) -> None:
        super().__init__(("127.0.0.1", port), _Handler)
        self.asked: list[tuple[str, dict[str, str]]] = []
        self.answers: dict[str, str] = {}
        self.status = 200
        self.delay = 0.0
        self._clients: list[socket.socket] = []

    def get_request(self) -> tuple[socket.socket, Any]:
        """Accept a client."""
        client, address = super().get_request()
        self._clients.append(client)
        return client, address

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore clients that have gone."""

    def options(self) -> dict[str, str]:
        """Return the options of a broker that asks this server."""
        base = f"http://127.0.0.1:{self.server_port}/auth"
        return {f"auth_http.{what}_path": f"{base}/{what}" for what in ("user", "vhost", "resource", "topic")}

    def __enter__(self) -> AuthServer:
        threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()

    def end(self) -> None:
        """End, and drop all clients."""
        self.shutdown()
        self.server_close()
        for client in self._clients:
            with suppress(OSError):
                client.shutdown(socket.SHUT_RDWR)
            client.close()
