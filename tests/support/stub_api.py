"""An HTTP server with responses set by the test, for cases that a real broker does not produce on demand."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple


class Request(NamedTuple):
    """A received request."""

    method: str
    path: str
    body: bytes
    headers: dict[str, str]


class StubApi(NamedTuple):
    """The server."""

    port: int
    requests: list[Request]

    @property
    def url(self) -> str:
        """Base URL, with the default user."""
        return f"http://guest:guest@127.0.0.1:{self.port}"


class _Handler(BaseHTTPRequestHandler):
    """Responds by path; `/api/hang` takes a second, `/api/closing` closes the connection without announcing it."""

    protocol_version = "HTTP/1.1"
    answers: Mapping[str, tuple[int, bytes] | Any]
    requests: list[Request]

    def answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        self.requests.append(Request(self.command, self.path, body, dict(self.headers)))
        path = self.path.partition("?")[0]
        if path == "/api/hang":
            threading.Event().wait(1)
        status, content = _encoded(self.answers.get(path, (200, b"{}")))
        self.send_response(status)
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)
        if path == "/api/closing":
            self.close_connection = True

    do_GET = do_PUT = do_POST = do_DELETE = answer  # noqa: N815

    def log_message(self, *arguments: Any) -> None:
        pass


class _Server(ThreadingHTTPServer):
    """Ignores clients that disconnect."""

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


def _encoded(answer: Any) -> tuple[int, bytes]:
    return answer if isinstance(answer, tuple) else (200, json.dumps(answer).encode())


@contextmanager
def stub_api(answers: Mapping[str, Any]) -> Iterator[StubApi]:
    """Run a server."""
    requests: list[Request] = []
    handler = type("Handler", (_Handler,), {"answers": answers, "requests": requests})
    with _Server(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield StubApi(server.server_port, requests)
        finally:
            server.shutdown()
            thread.join()
