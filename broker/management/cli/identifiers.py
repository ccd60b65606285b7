"""Identifiers in place of RabbitMQ's process identifiers: opaque, without blanks, taken back by close_connection."""

from __future__ import annotations

import zlib
from typing import Final

from leveret.broker.management.cli.terms import Identifier

_ARROW: Final = " -> "


def connection_identifier(name: str) -> Identifier:
    """Return the identifier of a connection: `<127.0.0.1:39330->127.0.0.1:5672>`."""
    return Identifier(f"<{name.replace(_ARROW, '->')}>")


def channel_identifier(name: str) -> Identifier:
    """Return the identifier of a channel, whose name is its connection's and a number in parentheses."""
    connection, _, number = name.rpartition(" (")
    return Identifier(f"<{connection.replace(_ARROW, '->')}.{number.rstrip(')')}>")


def queue_identifier(node: str, vhost: str, name: str) -> Identifier:
    """Return the identifier of a queue, which stays the same as long as its name does."""
    return Identifier(f"<{node}.{zlib.crc32(vhost.encode())}.{zlib.crc32(name.encode())}.0>")


def connection_name(identifier: str) -> str | None:
    """Return the name of a connection from its identifier or name, None if it can be neither."""
    if identifier.startswith("<") and identifier.endswith(">"):
        return identifier[1:-1].replace("->", _ARROW)
    return identifier if _ARROW in identifier else None
