"""Lets a test in another language restart the broker: a line protocol on a loopback port."""

from __future__ import annotations

import socketserver
import threading
from collections.abc import Callable


class RestartControl:
    """Serves one command a connection: the line `restart`, answered by `ok` or by the error in one line.

    A context manager; it serves in a thread of its own, one connection at a time.
    """

    def __init__(self, restart: Callable[[], None]) -> None:
        class Handler(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                self.wfile.write(_answer(self.rfile.readline(), restart))

        self._server = socketserver.TCPServer(("127.0.0.1", 0), Handler)
        host, port = self._server.socket.getsockname()
        self.address = f"{host}:{port}"
        self._thread = threading.Thread(target=self._server.serve_forever, name="restart control")

    def __enter__(self) -> RestartControl:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


def _answer(line: bytes, restart: Callable[[], None]) -> bytes:
    if line.strip() != b"restart":
        return b"unknown command\n"
    try:
        restart()
    except Exception as error:  # noqa: BLE001 - whatever it is, the other side fails its test with it
        return " ".join(str(error).split()).encode() + b"\n"
    return b"ok\n"
