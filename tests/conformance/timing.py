"""Observations of times, on machines that stand still now and then."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from tests.support.wire import HEARTBEAT, Connection, ConnectionDropped, Frame

_ATTEMPTS: Final = 5


def in_time(attempt: Callable[[], bool]) -> bool:
    """Return whether one of a few attempts comes out as it should: what is wrong fails in each of them.

    Args:
        attempt: Observes anew, and returns whether all times were right. What is wrong whatever the times are, raises.
    """
    return any(attempt() for _ in range(_ATTEMPTS))


def lifetime(connection: Connection, since: float | None = None) -> float:
    """Return the seconds until TCP ends, with nothing but heartbeats before.

    Args:
        connection: What will end; within 30 s.
        since: Count from then, by time.monotonic(); from now by default.
    """
    since = time.monotonic() if since is None else since
    while True:
        try:
            assert connection.wire.read_frame(30) == Frame(HEARTBEAT, 0, b"")
        except ConnectionDropped:
            return time.monotonic() - since
