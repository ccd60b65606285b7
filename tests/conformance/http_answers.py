"""Requests to the management HTTP API that return the response with its status, also for errors."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from tests.support.management import Management


@dataclass(frozen=True)
class Answer:
    """Status code and body of a response."""

    status: int
    body: bytes

    @property
    def document(self) -> Any:
        """The body, decoded from JSON."""
        return json.loads(self.body)


def ask(management: Management, method: str, *path: str, body: Any = None) -> Answer:
    """Send a request and return the response, whatever its status.

    Args:
        management: the API; its base URL and credentials are used.
        method: HTTP method.
        path: segments below `/api`, not yet percent-encoded.
        body: bytes are sent unchanged, None is no body, other values are sent as JSON.
    """
    request = urllib.request.Request(
        f"{management.base}/api/{'/'.join(quote(part, safe='') for part in path)}",
        method=method,
        data=body if body is None or isinstance(body, bytes) else json.dumps(body).encode(),
        headers={"Authorization": management.authorization, "Content-Type": "application/json"},
    )
    try:
        with urllib.request.urlopen(request, timeout=120) as response:
            return Answer(response.status, response.read())
    except urllib.error.HTTPError as error:
        with error:
            return Answer(error.code, error.read())
