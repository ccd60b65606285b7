"""A small client of a broker's management HTTP API."""

from __future__ import annotations

import base64
import json
import urllib.error
import urllib.request
from typing import Any
from urllib.parse import quote, unquote, urlsplit, urlunsplit


class Management:
    """Requests to the API under `/api`."""

    def __init__(self, url: str, timeout: float = 120) -> None:
        self._timeout = timeout
        parts = urlsplit(url)
        user, password = unquote(parts.username or "guest"), unquote(parts.password or "guest")
        self.base = urlunsplit((parts.scheme, f"{_bracketed(parts.hostname)}:{parts.port or 15672}", "", "", ""))
        self.authorization = "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()

    def request(self, method: str, *path: str, body: Any = None, headers: dict[str, str] | None = None) -> Any:
        """Send a request and return the decoded JSON response; None if it has no body."""
        request = urllib.request.Request(
            f"{self.base}/api/{'/'.join(quote(part, safe='') for part in path)}",
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={
                "Authorization": self.authorization,
                "Content-Type": "application/json",
                **(headers or {}),
            },
        )
        with urllib.request.urlopen(request, timeout=self._timeout) as response:
            data = response.read()
        return json.loads(data) if data else None

    def refusal(self, method: str, *path: str, body: Any = None) -> tuple[int, str]:
        """Send a request that is to be refused; return the status and the reason."""
        try:
            self.request(method, *path, body=body)
        except urllib.error.HTTPError as error:
            with error:
                return error.code, str(json.loads(error.read())["reason"])
        raise AssertionError(f"not refused: {method} {'/'.join(path)}")


def _bracketed(host: str | None) -> str:
    """Return a host in URL syntax: IPv6 addresses in brackets."""
    return f"[{host}]" if host is not None and ":" in host else str(host)
