"""Address of a broker's HTTP API."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple
from urllib.parse import quote, unquote, urlsplit

URL_VARIABLE: Final = "LEVERET_URL"
CA_VARIABLE: Final = "LEVERET_CACERT"
DEFAULT_URL: Final = "http://guest:guest@127.0.0.1:15672"
DEFAULT_PORT: Final = 15672
_EXPECTED: Final = "--url or LEVERET_URL should be http://user:password@host:port"


class Address(NamedTuple):
    """Address of the HTTP API, with the login.

    Args:
        scheme: http or https.
        host: host name or IP address.
        port: TCP port.
        prefix: path before `/api`, without a trailing slash.
        user: user name.
        password: password of the user.
        ca_file: PEM file of the authorities whose certificates are trusted; empty for those of the system.
    """

    scheme: str
    host: str
    port: int
    prefix: str
    user: str
    password: str
    ca_file: str = ""

    def __str__(self) -> str:
        """Return host and port. Messages use them as long as the node's name is unknown."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


def find_address(options: Mapping[str, object], environment: Mapping[str, str]) -> Address:
    """Return the address that the options of a command line or the environment name.

    Raises:
        ValueError: the URL is invalid.
    """
    url = options.get("url") or environment.get(URL_VARIABLE) or DEFAULT_URL
    ca_file = options.get("cacert") or environment.get(CA_VARIABLE) or ""
    return parse_address(str(url))._replace(ca_file=str(ca_file))


def parse_address(url: str) -> Address:
    """Parse `http://user:password@host:port/prefix`. Missing parts get RabbitMQ's defaults.

    Raises:
        ValueError: the URL is invalid.
    """
    try:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        port = parts.port
    except ValueError as error:
        raise ValueError(f"{error}: {_EXPECTED}") from error
    if parts.scheme not in ("http", "https") or not parts.hostname:
        # The message leaves out the URL because it may contain a password.
        raise ValueError(f"not an HTTP URL: {_EXPECTED}")
    return Address(
        scheme=parts.scheme,
        host=parts.hostname,
        port=port or (DEFAULT_PORT if parts.scheme == "http" else DEFAULT_PORT - 1),
        prefix=quote(parts.path.rstrip("/").removesuffix("/api"), safe="/%"),
        user=unquote(parts.username or "guest"),
        password=unquote("guest" if parts.password is None else parts.password),
    )
