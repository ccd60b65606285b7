"""Observations of times, on machines that stand still now and then."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from tests.support.wire import HEARTBEAT, Connection, ConnectionDropped, Frame

_ATTEMPTS: Final = 6
#: Seconds in which happens what happens at once, on a busy machine too; less than any timeout of a broker.
AT_ONCE: Final = 8.0


def in_time(attempt: Callable[[], bool]) -> bool:
    """Return whether one of a few attempts comes out as it should: what is wrong fails in each of them.

    The pauses between them grow, so that not all of them fall into the same busy time.

    Args:
        attempt: Observes again, and returns whether all times were right. What is wrong whatever the times are, raises.
    """
    for number in range(_ATTEMPTS):
        time.sleep(number)
        if attempt():
            return True
    return False


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
