"""URIs of brokers: ``amqp://user:password@host:5672/vhost?heartbeat=10``. One without host is the broker itself.

Source: https://www.rabbitmq.com/docs/uri-spec, and RabbitMQ 3.10.8 observed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import parse_qsl, unquote

from leveret.protocol.erlang_terms import format_list, format_string, format_tuple

_FORM: Final = re.compile(
    r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*)://(?P<authority>[^/?#]*)(?P<path>[^?#]*)\??(?P<query>.*)"
)
_AUTHORITY: Final = re.compile(r"(?:(?P<user>.*)@)?(?P<host>\[[^\]]*\]|[^:]*)(?::(?P<port>[^:]*))?")
_USER: Final = re.compile(r"(?<=://)[^/?#]*@")
_PERCENT: Final = re.compile("%(?![0-9A-Fa-f]{2})..?")
_PORTS: Final = {"amqp": 5672, "amqps": 5671}
_PORT_MAX: Final = 65_535
#: Parameters whose values are numbers.
_NUMBERS: Final = ("heartbeat", "connection_timeout", "channel_max")


class InvalidUri(ValueError):
    """Not the URI of a broker; the text is an Erlang term, as RabbitMQ prints it, and has no password."""


@dataclass(frozen=True, slots=True)
class AmqpUri:
    """A URI of a broker.

    Attributes:
        shown: The URI without user, password and parameters, as RabbitMQ shows it.
        host: Name or address; "" for the broker itself.
        user: Name of the user; None if there is none.
        password: The password; None if there is none.
        vhost: The virtual host; "/" if there is none.
        parameters: What is behind the question mark.
    """

    shown: str
    host: str
    port: int
    encrypted: bool
    user: str | None
    password: str | None = field(repr=False)
    vhost: str
    parameters: Mapping[str, str] = field(repr=False)

    @property
    def is_local(self) -> bool:
        """Whether it is the broker itself."""
        return not self.host


def without_credentials(uri: str) -> str:
    """Return a URI, which may be malformed, without user and password."""
    return _USER.sub("", uri)


def parse_uri(uri: str) -> AmqpUri:
    """Parse a URI.

    Raises:
        InvalidUri: It is not the URI of a broker.
    """
    found = _FORM.fullmatch(uri)
    if found is None:
        raise _unparsable(uri, "no_scheme")
    scheme = found["scheme"]
    if scheme not in _PORTS:
        raise _invalid(uri, format_tuple("unexpected_uri_scheme", format_string(scheme)))
    authority = _AUTHORITY.fullmatch(found["authority"])
    port = "" if authority is None else authority["port"] or ""
    if authority is None or (port and not (port.isascii() and port.isdecimal())):
        raise _unparsable(uri, "malformed_uri")
    if port and int(port) > _PORT_MAX:
        raise _invalid(uri, format_tuple("port_out_of_range", port))
    user, _, password = (authority["user"] or "").partition(":")
    path = found["path"]
    if "/" in path[1:]:
        raise _invalid(uri, format_tuple("invalid_vhost", format_string(path[1:])))
    return AmqpUri(
        f"{scheme}://{authority['host']}{f':{port}' if port else ''}{path}",
        authority["host"].strip("[]"),
        int(port) if port else _PORTS[scheme],
        scheme == "amqps",
        _decoded(uri, user) if user else None,
        _decoded(uri, password) if ":" in (authority["user"] or "") else None,
        _decoded(uri, path[1:]) if path else "/",
        _read_parameters(uri, found["query"]),
    )


def _read_parameters(uri: str, query: str) -> Mapping[str, str]:
    parameters = dict(parse_qsl(query, keep_blank_values=True))
    for name in _NUMBERS:
        value = parameters.get(name, "0")
        if not (value.isascii() and value.isdecimal()):
            given = [format_tuple(format_string(key), format_string(each)) for key, each in parameters.items()]
            reason = format_tuple("not_an_integer", format_string(value))
            terms = "invalid_amqp_params_parameter", name, format_string(value), format_list(given), reason
            raise _invalid(uri, format_tuple(*terms))
    return parameters


def _decoded(uri: str, text: str) -> str:
    broken = _PERCENT.search(text)
    if broken is not None:
        octets = ["'%'", *map(str, broken[0].encode()[1:])]
        raise _invalid(uri, format_tuple("invalid_entitiy", format_list(octets)))
    return unquote(text)


def _unparsable(uri: str, why: str) -> InvalidUri:
    return _invalid(uri, format_tuple("unable_to_parse_uri", why))


def _invalid(uri: str, reason: str) -> InvalidUri:
    shown = without_credentials(uri)
    return InvalidUri(format_tuple(reason, format_string(shown) if shown else "[]"))
