"""The load's sockets: how many there may be, and how long calls on plain and encrypted ones wait."""

from __future__ import annotations

import resource
import socket
import ssl
import struct
from typing import Final

#: What a call raises that has waited for too long: of a plain socket, and of an encrypted one.
WAITED_TOO_LONG: Final = (BlockingIOError, TimeoutError)


def allow_many() -> None:
    """Let this process, and those that it starts, open as many sockets as the system permits."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def set_patience(sock: socket.socket, receiving: float, sending: float | None = None) -> None:
    """Bound the time that calls wait in the kernel, once the socket is blocking."""
    waits = {socket.SO_RCVTIMEO: receiving, socket.SO_SNDTIMEO: receiving if sending is None else sending}
    for option, seconds in waits.items():
        whole = int(seconds)
        sock.setsockopt(socket.SOL_SOCKET, option, struct.pack("@ll", whole, round((seconds - whole) * 1_000_000)))


def block(sock: socket.socket, seconds: float) -> None:
    """Let a socket's calls wait in the kernel, which saves a poll() before each.

    An encrypted socket would try again after each timeout of the kernel, without end, so it polls.
    """
    sock.settimeout(seconds if isinstance(sock, ssl.SSLSocket) else None)
