"""An HTTP API that answers what a test wants it to: for what a real broker does not do on demand."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple


class Asked(NamedTuple):
    """A request.

    Args:
        method: of HTTP.
        path: with the query.
        body: as it came.
        headers: by name.
    """

    method: str
    path: str
    body: bytes
    headers: dict[str, str]


class StubApi(NamedTuple):
    """The server.

    Args:
        port: on 127.0.0.1.
        asked: the requests so far, in order.
    """

    port: int
    asked: list[Asked]

    @property
    def url(self) -> str:
        """Base URL, with the default user."""
        return f"http://guest:guest@127.0.0.1:{self.port}"


class _Handler(BaseHTTPRequestHandler):
    """Answers by path; `/api/hang` takes a second, after `/api/closing` the connection goes without a word."""

    protocol_version = "HTTP/1.1"
    answers: Mapping[str, tuple[int, bytes] | Any]
    asked: list[Asked]

    def answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        self.asked.append(Asked(self.command, self.path, body, dict(self.headers)))
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
    """Does not mind clients that leave."""

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


def _encoded(answer: Any) -> tuple[int, bytes]:
    return answer if isinstance(answer, tuple) else (200, json.dumps(answer).encode())


@contextmanager
def stub_api(answers: Mapping[str, Any]) -> Iterator[StubApi]:
    """Run a server.

    Args:
        answers: by path, without the query: status and body, or what is to be answered as JSON; `{}` elsewhere.
    """
    asked: list[Asked] = []
    handler = type("Handler", (_Handler,), {"answers": answers, "asked": asked})
    with _Server(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield StubApi(server.server_port, asked)
        finally:
            server.shutdown()
            thread.join()
