"""The bound on messages that are on their way: consumers report their counts, the publisher waits for them."""

from __future__ import annotations

import multiprocessing
import time
from typing import Final

# Without a single delivery for so long, a run has failed. A broker may pause for a while under a backlog.
STALL_SECONDS: Final = 30.0
_NOTHING_AWAITED: Final = 2**64 - 1
# Bounds what a lost wake-up could cost: the counts and the mark are not read and written under a lock.
_LOOK_SECONDS: Final = 0.01

# Clients run in processes forked off a small server: cheap to start, and safe wherever the benchmark itself runs.
PROCESSES: Final = multiprocessing.get_context("forkserver")


class BenchError(Exception):
    """A run went wrong: messages missing, too many, or other than expected."""


class InFlight:
    """Counts of what the consumers have received, in memory that all clients' processes share.

    Each count is written by one consumer alone. It can be handed to a process only as that starts.
    """

    def __init__(self, consumers: int) -> None:
        self._counts = PROCESSES.RawArray("Q", consumers)
        self._awaited = PROCESSES.RawValue("Q", _NOTHING_AWAITED)
        self._finished = PROCESSES.RawValue("b", 0)
        self._failed = PROCESSES.RawValue("b", 0)
        self._reached = PROCESSES.Semaphore(0)

    @property
    def finished(self) -> bool:
        """Consumers end when it is true."""
        return bool(self._finished.value)

    @property
    def delivered(self) -> int:
        """Messages that all consumers have received."""
        return sum(self._counts)

    def begin(self) -> None:
        """Count from 0 again, for another phase."""
        for consumer in range(len(self._counts)):
            self._counts[consumer] = 0
        self._finished.value = 0

    def advance(self, consumer: int, count: int) -> None:
        """Report that a consumer has received `count` messages in all. Cheap unless someone waits for it."""
        self._counts[consumer] = count
        if sum(self._counts) >= self._awaited.value:
            self._awaited.value = _NOTHING_AWAITED
            self._reached.release()

    def fail(self) -> None:
        """Report that a consumer has ended early; its process knows why."""
        self._failed.value = 1
        self._reached.release()

    def wait_for(self, total: int) -> None:
        """Wait until the consumers have received `total` messages together."""
        seen, since = -1, time.monotonic()
        while (delivered := self.delivered) < total:
            if self._failed.value:
                raise BenchError("a consumer failed")
            if delivered != seen:
                seen, since = delivered, time.monotonic()
            elif time.monotonic() - since > STALL_SECONDS:
                raise BenchError(f"{seen} of {total} messages came, then none for {STALL_SECONDS:.0f} s")
            self._awaited.value = total
            if self.delivered < total:
                self._reached.acquire(timeout=_LOOK_SECONDS)

    def finish(self) -> None:
        """Let the consumers end."""
        self._finished.value = 1
