#!/opt/leveret/bin/python3 -E
"""Health check of the container: checks whether the broker answers.

The check sends the AMQP protocol header and expects connection.start. If the broker accepts AMQP over TLS only, the
check sends an HTTP request instead.
"""

from __future__ import annotations

import socket
import sys
from typing import Final

from leveret.broker.config.config_errors import ConfigError
from leveret.broker.config.listening import amqp_address, management_address, running_settings
from leveret.broker.config.options import Settings

_AMQP: Final = b"AMQP\x00\x00\x09\x01"
#: A method frame on channel 0.
_AMQP_ANSWER: Final = b"\x01\x00\x00"
#: PROXY protocol 2, command LOCAL: the connection is the proxy's own.
_PROXY_LOCAL: Final = b"\r\n\r\n\x00\r\nQUIT\n\x20\x00\x00\x00"
_HTTP: Final = b"HEAD / HTTP/1.0\r\n\r\n"
_HTTP_ANSWER: Final = b"HTTP/1."
_SECONDS: Final = 4.0


class UnhealthyError(Exception):
    """The broker gives no answer or a wrong one; the text says which."""


def check(settings: Settings) -> None:
    """Check a broker.

    Args:
        settings: Configuration of the broker.

    Raises:
        UnhealthyError: It does not answer, or gives a wrong answer.
    """
    amqp = amqp_address(settings)
    if amqp is None:
        _request(management_address(settings), _HTTP, _HTTP_ANSWER)
    else:
        _request(amqp, (_PROXY_LOCAL if settings.proxy_protocol else b"") + _AMQP, _AMQP_ANSWER)


def _request(address: tuple[str, int], request: bytes, expected: bytes) -> None:
    where = f"{address[0]} port {address[1]}"
    try:
        with socket.create_connection(address, timeout=_SECONDS) as connection:
            connection.sendall(request)
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
