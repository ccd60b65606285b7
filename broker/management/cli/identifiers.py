"""Identifiers that replace RabbitMQ's process identifiers: opaque, without spaces, accepted by close_connection."""

from __future__ import annotations

import zlib
from typing import Final

from leveret.broker.management.cli.terms import Identifier

_ARROW: Final = " -> "


def connection_identifier(name: str) -> Identifier:
    """Return the identifier of a connection: `<127.0.0.1:39330->127.0.0.1:5672>`."""
    return Identifier(f"<{name.replace(_ARROW, '->')}>")


def channel_identifier(name: str) -> Identifier:
    """Return the identifier of a channel. Its name is the connection's name and a number in parentheses."""
    connection, _, number = name.rpartition(" (")
    return Identifier(f"<{connection.replace(_ARROW, '->')}.{number.rstrip(')')}>")


def queue_identifier(node: str, vhost: str, name: str) -> Identifier:
    """Return the identifier of a queue. It depends only on the node, the virtual host and the name."""
    return Identifier(f"<{node}.{zlib.crc32(vhost.encode())}.{zlib.crc32(name.encode())}.0>")


def connection_name(identifier: str) -> str | None:
    """Return the name of a connection from its identifier or name, None if the text is neither."""
    if identifier.startswith("<") and identifier.endswith(">"):
        return identifier[1:-1].replace("->", _ARROW)
    return identifier if _ARROW in identifier else None
