"""Tokens for the Java tests: a broker that takes them, and an address that hands them out."""

from __future__ import annotations

import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Final

import yaml

from tests.support.tokens import RESOURCE_SERVER, Signer

#: Seconds for which a token is valid.
_SECONDS: Final = 20


class TokenIssuer:
    """Hands out a new token to each GET; a context manager that serves in a thread of its own.

    Args:
        directory: Where the configuration of the broker is written.

    Attributes:
        config: The configuration of a broker that takes the tokens.
        url: Where they are.
    """

    def __init__(self, directory: Path) -> None:
        signer = Signer()
        key = directory / "key.pem"
        key.write_bytes(signer.pem())
        self.config = directory / "leveret.yaml"
        oauth2 = {"resource_server_id": RESOURCE_SERVER, "signing_keys": {signer.kid: str(key)}}
        self.config.write_text(yaml.safe_dump({"auth_backends": ["oauth2", "internal"], "auth_oauth2": oauth2}))
        scopes = [f"{RESOURCE_SERVER}.{what}:*/*" for what in ("configure", "read", "write")]

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                now = time.time()
                token = signer.token(*scopes, exp=int(now) + _SECONDS).encode()
                self.send_response(200)
                self.send_header("content-length", str(len(token)))
                self.end_headers()
                self.wfile.write(token)

            def log_message(self, format: str, *arguments: object) -> None:
                """Log nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), name="tokens")

    def __enter__(self) -> TokenIssuer:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
