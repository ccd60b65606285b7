"""Where a broker's HTTP API is."""

from __future__ import annotations

from typing import Final, NamedTuple
from urllib.parse import quote, unquote, urlsplit

DEFAULT_PORT: Final = 15672
_EXPECTED: Final = "--url or LEVERET_URL should be http://user:password@host:port"


class Address(NamedTuple):
    """Where the API is.

    Args:
        scheme: http or https.
        host: name or address.
        port: TCP port.
        prefix: path in front of `/api`, without a slash at its end.
        user: name to log in with.
        password: its password.
    """

    scheme: str
    host: str
    port: int
    prefix: str
    user: str
    password: str

    def __str__(self) -> str:
        """Host and port, as messages name the broker before it has told its name."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


def parse_address(url: str) -> Address:
    """Take `http://user:password@host:port/prefix` apart; whatever is missing has RabbitMQ's default.

    Raises:
        ValueError: it is no such URL.
    """
    try:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        port = parts.port
    except ValueError as error:
        raise ValueError(f"{error}: {_EXPECTED}") from error
    if parts.scheme not in ("http", "https") or not parts.hostname:
        # Without the URL, which may hold a password.
        raise ValueError(f"not an HTTP URL: {_EXPECTED}")
    return Address(
        scheme=parts.scheme,
        host=parts.hostname,
        port=port or (DEFAULT_PORT if parts.scheme == "http" else DEFAULT_PORT - 1),
        prefix=quote(parts.path.rstrip("/").removesuffix("/api"), safe="/%"),
        user=unquote(parts.username or "guest"),
        password=unquote("guest" if parts.password is None else parts.password),
    )
