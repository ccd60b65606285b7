"""Applies the limits of streams now and then: an age passes without anything being published."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from leveret.broker.core.queues.stream_queue import StreamQueue
from leveret.broker.core.scheduling.timers import Timers
from leveret.broker.core.scheduling.work import PeriodicWork

_SECONDS: Final = 5.0


class StreamUpkeep:
    """The streams of a virtual host, which are looked at every few seconds.

    Args:
        timers: Clock and timers.
    """

    def __init__(self, timers: Timers) -> None:
        self._streams: dict[StreamQueue, None] = {}
        self._work = PeriodicWork(timers, lambda: _SECONDS, self._steps, "the limits of streams were applied")

    def add(self, stream: StreamQueue) -> None:
        """Look at a stream from now on."""
        if not self._streams:
            self._work.start()
        self._streams[stream] = None

    def remove(self, stream: StreamQueue) -> None:
        """Forget a deleted stream."""
        self._streams.pop(stream, None)
        if not self._streams:
            self._work.stop()

    def _steps(self) -> Iterator[None]:
        for stream in list(self._streams):
            if not stream.deleted:
                stream.tidy()
            yield
