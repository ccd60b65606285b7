#!/opt/leveret/bin/python3 -E
"""Tells whether the broker in this container answers.

It is greeted as a client would, and has to send connection.start; where it takes AMQP over TLS only, its HTTP API has
to answer.
"""

from __future__ import annotations

import socket
import sys
from typing import Final

from leveret.broker.config.errors import ConfigError
from leveret.broker.config.options import Settings
from leveret.broker.config.running import amqp_address, management_address, running_settings

_AMQP: Final = b"AMQP\x00\x00\x09\x01"
#: A method frame on channel 0.
_AMQP_ANSWER: Final = b"\x01\x00\x00"
#: PROXY protocol 2, command LOCAL: the proxy asks for itself.
_PROXY_LOCAL: Final = b"\r\n\r\n\x00\r\nQUIT\n\x20\x00\x00\x00"
_HTTP: Final = b"HEAD / HTTP/1.0\r\n\r\n"
_HTTP_ANSWER: Final = b"HTTP/1."
_SECONDS: Final = 4.0


class UnhealthyError(Exception):
    """The broker does not answer as it should; the text says what it does instead."""


def check(settings: Settings) -> None:
    """Ask a broker something.

    Args:
        settings: Its configuration.

    Raises:
        UnhealthyError: It does not answer, or not as a broker.
    """
    amqp = amqp_address(settings)
    if amqp is None:
        _ask(management_address(settings), _HTTP, _HTTP_ANSWER)
    else:
        _ask(amqp, (_PROXY_LOCAL if settings.proxy_protocol else b"") + _AMQP, _AMQP_ANSWER)


def _ask(address: tuple[str, int], question: bytes, expected: bytes) -> None:
    where = f"{address[0]} port {address[1]}"
    try:
        with socket.create_connection(address, timeout=_SECONDS) as connection:
            connection.sendall(question)
            answer = connection.recv(len(expected), socket.MSG_WAITALL)
    except OSError as error:
        raise UnhealthyError(f"{where} does not answer: {error}") from error
    if answer != expected:
        raise UnhealthyError(f"{where} answers {answer!r} instead of {expected!r}")


def main() -> int:
    """Return 0 if the broker answers, 1 with a line on stderr if not."""
    try:
        settings = running_settings()
        if settings is None:
            raise UnhealthyError("no broker runs in this container")
        check(settings)
    except (UnhealthyError, ConfigError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
