"""The options of the sink."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple
from urllib.parse import quote, unquote, urlsplit

from leveret.analytics.data_files import absolute_location
from leveret.analytics.errors import OptionError
from leveret.protocol.constants import SHORTSTR_MAX

#: Names of the options, in lower case.
_NAMES: Final = (
    "url",
    "user",
    "password",
    "exchange",
    "routingkey",
    "onfailure",
    "failurepath",
    "timeout",
    "cafile",
    "managementurl",
    "deathheaders",
)
#: What Spark adds itself.
_OF_SPARK: Final = ("checkpointlocation", "path")
_PORTS: Final = {"amqp": 5672, "amqps": 5671}


class Server(NamedTuple):
    """Where to publish.

    Attributes:
        host: Name or address of the broker.
        port: Its AMQP port.
        vhost: Virtual host.
        user: Name of the user.
        password: Their password.
        tls: Whether the connection is encrypted.
        ca_file: File with the certificates that are trusted; "" for those of the system.
    """

    host: str
    port: int
    vhost: str
    user: str
    password: str
    tls: bool = False
    ca_file: str = ""

    def __repr__(self) -> str:
        """Return where it is, without the password."""
        return f"{'amqps' if self.tls else 'amqp'}://{self.user}@{self.host}:{self.port}/{quote(self.vhost, safe='')}"


class HttpApi(NamedTuple):
    """The HTTP API of the broker.

    Attributes:
        url: Its URL, without user, and without `/api`.
        user: Name of the user.
        password: Their password.
    """

    url: str
    user: str
    password: str

    def __repr__(self) -> str:
        """Return where it is, without the password."""
        return self.url


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """Parsed options of the sink.

    Attributes:
        server: Where to publish.
        exchange: Name of the exchange; "" for the default exchange.
        routing_key: Routing key of all rows; None to take that of the row.
        fails: Whether the query fails if a row was not taken.
        failure_path: Directory that gets the rows that were not taken, as Parquet; None for none.
        timeout: Seconds for which the broker may confirm nothing, or block publishers.
        api: The HTTP API, which says whether the exchange drops duplicates.
        keeps_deaths: Whether the headers that dead-lettering adds are published, too.
    """

    server: Server
    api: HttpApi
    exchange: str
    routing_key: str | None = None
    fails: bool = True
    failure_path: str | None = None
    timeout: float = 600.0
    keeps_deaths: bool = False


def is_for_sink(raw: Mapping[str, str]) -> bool:
    """Return whether options may be those of the sink: without any, nothing else can be said yet."""
    names = {name.lower() for name in raw}
    return not names or "checkpointlocation" in names or not names.isdisjoint(_NAMES)


def parse_sink_options(raw: Mapping[str, str]) -> SinkOptions:
    """Parse the options of `df.write.option()`; names are not case-sensitive.

    Raises:
        OptionError: An option is missing, unknown or invalid.
    """
    found = {name.lower(): str(value) for name, value in raw.items()}
    for name in found:
        if name not in (*_NAMES, *_OF_SPARK):
            raise OptionError(f"unknown option '{name}'; those of the sink are {', '.join(_NAMES)}")
    if "path" in found:
        raise OptionError("messages are published to a broker, not to a path: use save() or start() without one")
    if "exchange" not in found:
        raise OptionError("name the exchange: .option('exchange', 'repaired'); '' is the default exchange")
    for name in ("exchange", "routingkey"):
        if len(found.get(name, "").encode()) > SHORTSTR_MAX:
            raise OptionError(f"option '{name}' has more than {SHORTSTR_MAX} bytes")
    server = _server(found)
    failure_path = found.get("failurepath")
    return SinkOptions(
        server,
        _http_api(found, server),
        found["exchange"],
        found.get("routingkey"),
        _choice(found, "onfailure", ("count", "fail") if failure_path else ("fail", "count")) == "fail",
        absolute_location(failure_path) if failure_path else None,
        _seconds(found),
        _choice(found, "deathheaders", ("remove", "keep")) == "keep",
    )


def _server(found: Mapping[str, str]) -> Server:
    url = found.get("url", "amqp://guest:guest@127.0.0.1:5672/%2F")
    wrong = OptionError("option 'url' must be like amqp://user:password@host:5672/vhost, or amqps://…")
    try:
        parts = urlsplit(url)
        port, host = parts.port, parts.hostname
    except ValueError:
        raise wrong from None
    if parts.scheme not in _PORTS or not host:
        raise wrong
    user = found.get("user", unquote(parts.username or "guest"))
    password = found.get("password", unquote(parts.password or "guest"))
    vhost = unquote(parts.path[1:]) or "/"
    if len(vhost.encode()) > SHORTSTR_MAX:
        raise OptionError(f"the virtual host in option 'url' has more than {SHORTSTR_MAX} bytes")
    return Server(
        host, port or _PORTS[parts.scheme], vhost, user, password, parts.scheme == "amqps", found.get("cafile", "")
    )


def _http_api(found: Mapping[str, str], server: Server) -> HttpApi:
    host = f"[{server.host}]" if ":" in server.host else server.host
    default = f"https://{host}:15671" if server.tls else f"http://{host}:15672"
    try:
        parts = urlsplit(found.get("managementurl", default))
    except ValueError:
        parts = urlsplit("")
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise OptionError("option 'managementurl' must be like http://user:password@host:15672")
    url = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path.rstrip('/')}"
    if parts.username is None:
        return HttpApi(url, server.user, server.password)
    return HttpApi(url, unquote(parts.username), unquote(parts.password or ""))


def _choice(found: Mapping[str, str], name: str, choices: tuple[str, str]) -> str:
    """Return the value of an option; the first of its values is the default."""
    value = found.get(name, choices[0]).lower()
    if value not in choices:
        raise OptionError(f"option '{name}' must be {choices[0]} or {choices[1]}, not '{value}'")
    return value


def _seconds(found: Mapping[str, str]) -> float:
    try:
        seconds = float(found.get("timeout", 600))
    except ValueError:
        seconds = 0.0
    if not 0 < seconds <= 1_000_000:
        raise OptionError(f"option 'timeout' must be a number of seconds, not '{found['timeout']}'")
    return seconds
