"""Observation of times on machines with occasional pauses."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from tests.support.wire import HEARTBEAT, Connection, ConnectionDropped, Frame

_ATTEMPTS: Final = 6
#: Seconds within which an immediate effect happens, also on a busy machine; less than any timeout of a broker.
AT_ONCE: Final = 8.0


def in_time(attempt: Callable[[], bool]) -> bool:
    """Return whether one of a few attempts succeeds; a real fault fails all of them.

    The pauses between attempts grow, so that not all of them fall into the same busy time.
    """
    for number in range(_ATTEMPTS):
        time.sleep(number)
        if attempt():
            return True
    return False


def lifetime(connection: Connection, since: float | None = None) -> float:
    """Return the seconds until the broker closes TCP; only heartbeats may precede that."""
    since = time.monotonic() if since is None else since
    while True:
        try:
            assert connection.wire.read_frame(30) == Frame(HEARTBEAT, 0, b"")
        except ConnectionDropped:
            return time.monotonic() - since
