"""Parsers of the responses of SASL mechanisms that carry a user name and a password."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from leveret.protocol.field_table import MalformedTable, as_text, decode_table, find


class Credentials(NamedTuple):
    """User name and password that a client has sent."""

    username: str
    password: bytes


class MalformedResponse(ValueError):
    """A SASL response that does not follow its mechanism's form."""


def read_plain(response: bytes) -> Credentials:
    """Read a PLAIN response: NUL user NUL password, without an authorization identity.

    Raises:
        MalformedResponse: Any other form.
    Spec: RFC 4616, section 2; RabbitMQ refuses an authorization identity.
    """
    parts = response.split(b"\x00")
    if len(parts) != 3 or parts[0]:
        raise MalformedResponse("PLAIN takes NUL, user, NUL, password")
    return Credentials(_decode(parts[1]), parts[2])


def read_amqplain(response: bytes) -> Credentials:
    """Read an AMQPLAIN response: a field table without its length, keys LOGIN and PASSWORD.

    Raises:
        MalformedResponse: It is not a table, or a key is missing or not a string.
    Spec: AMQP 0-8 section 3.1.4 as RabbitMQ reads it.
    """
    try:
        table = decode_table(response)
    except MalformedTable as malformed:
        raise MalformedResponse(str(malformed)) from None
    login, password = find(table, "LOGIN"), find(table, "PASSWORD")
    if login is None or password is None or login.kind not in "Sx" or password.kind not in "Sx":
        raise MalformedResponse("AMQPLAIN takes a table with the strings LOGIN and PASSWORD")
    return Credentials(as_text(login), password.value)


def _decode(octets: bytes) -> str:
    return octets.decode("utf-8", "surrogateescape")


MECHANISMS: Final[dict[str, Callable[[bytes], Credentials]]] = {
    "AMQPLAIN": read_amqplain,
    "PLAIN": read_plain,
}
