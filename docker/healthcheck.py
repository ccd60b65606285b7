#!/usr/bin/env -S python3 -I
"""Tells whether the broker in this container answers: greets it as a client does, and waits for connection.start.

It looks at the port that LEVERET_PORT names, 5672 by default.
"""

from __future__ import annotations

import os
import socket
import sys

_GREETING = b"AMQP\x00\x00\x09\x01"
#: A method frame on channel 0.
_ANSWER = b"\x01\x00\x00"
_SECONDS = 4.0


def main() -> int:
    """Return 0 if the broker answers, 1 with a line on stderr if not."""
    port = int(os.environ.get("LEVERET_PORT") or 5672)
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=_SECONDS) as connection:
            connection.sendall(_GREETING)
            answer = connection.recv(len(_ANSWER), socket.MSG_WAITALL)
    except OSError as error:
        sys.stderr.write(f"port {port} does not answer: {error}\n")
        return 1
    if answer != _ANSWER:
        sys.stderr.write(f"port {port} answers {answer!r}, which is not AMQP\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
