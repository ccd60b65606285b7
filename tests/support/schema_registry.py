"""A schema registry over real HTTP, with faults."""

from __future__ import annotations

import json
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any


class RegistryServer:
    """Answers as a schema registry does, on a free port of the loopback.

    Attributes:
        asked: The paths that were asked for, in order.
        status: The status of all answers; None for the right ones.
        body: The body of all answers; None for the right ones.
        trickles: Whether answers come byte by byte, and never end.
        login: The header Authorization that is required; "" for none.
    """

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.status: int | None = None
        self.body: bytes | None = None
        self.trickles = False
        self.login = ""
        self._answers: dict[str, dict[str, Any]] = {}
        self._numbers = 0
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def register(self, subject: str, schema: Any, **more: Any) -> int:
        """Add a schema as the latest of a subject; return its number."""
        self._numbers += 1
        versions = sum(path.startswith(f"/subjects/{subject}/versions/") for path in self._answers)
        answer = {"subject": subject, "id": self._numbers, "schema": json.dumps(schema), **more}
        self._answers[f"/schemas/ids/{self._numbers}"] = answer
        self._answers[f"/subjects/{subject}/versions/{max(1, versions)}"] = answer
        self._answers[f"/subjects/{subject}/versions/latest"] = answer
        return self._numbers

    def close(self) -> None:
        """Stop to listen: connections are refused."""
        self._server.shutdown()
        self._server.server_close()

    def __enter__(self) -> RegistryServer:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        registry = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                registry.asked.append(self.path)
                answer = registry._answers.get(self.path)
                status = 200 if answer is not None else 404
                if registry.login and self.headers.get("Authorization") != registry.login:
                    status = 401
                octets = json.dumps(answer or {"error_code": 40403}).encode()
                self.send_response(registry.status or status)
                self.end_headers()
                try:
                    while registry.trickles:
                        self.wfile.write(b" ")
                        self.wfile.flush()
                        time.sleep(0.1)
                    self.wfile.write(octets if registry.body is None else registry.body)
                except OSError:
                    # Who has asked does not wait any longer.
                    pass

            def log_message(self, format: str, *arguments: object) -> None:
                pass

        return Handler


def framed(number: int, octets: bytes) -> bytes:
    """A body as a serializer of a registry writes it."""
    return b"\0" + number.to_bytes(4, "big") + octets
