"""Samples all counters every five seconds, in short steps."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Final

from leveret.broker.core.broker import Broker
from leveret.broker.core.node import Node
from leveret.broker.core.scheduling.timers import Timer
from leveret.broker.core.stats.census import Census
from leveret.broker.core.stats.history import GLOBAL, STEP

log = logging.getLogger("leveret.statistics")

#: Duration of a piece of work, and of the pause after it, in which clients are served.
_PIECE_MICROSECONDS: Final = 2_000
_PAUSE_SECONDS: Final = 0.002


class Sampler:
    """Keeps the histories of queues, exchanges, connections, channels, virtual hosts, broker and node.

    Samples are due at full steps of the clock, as in RabbitMQ. The objects are then sampled one after the other.

    Args:
        broker: The broker to sample.
        node: Its node.
    """

    def __init__(self, broker: Broker, node: Node) -> None:
        self._broker = broker
        self._node = node
        self._timer: Timer | None = None
        self._work: Iterator[None] = iter(())
        self._detailed: dict[str, int] = {}

    def start(self) -> None:
        """Start to take samples."""
        seconds = self._broker.timers.now() / 1_000_000
        self._timer = self._broker.timers.call_later(STEP - seconds % STEP + 0.001, self._begin)

    def stop(self) -> None:
        """Stop taking samples."""
        if self._timer is not None:
            self._timer.cancel()

    def sample(self, now: int) -> Iterator[None]:
        """Take one sample of all counters; a step is one object.

        Args:
            now: Seconds since 1970, a multiple of STEP.
        """
        broker = self._broker
        census = Census(broker, self._detailed)
        yield from census.steps(now)
        self._detailed = census.detailed
        for name, row in census.vhosts.items():
            vhost = broker.vhosts.get(name)
            if vhost is not None:
                statistics = vhost.statistics
                statistics.sample(now, statistics.monotonic_row(row), retention=GLOBAL)
        totals = broker.statistics
        totals.sample(now, totals.monotonic_row(totals.row(census.total())), retention=GLOBAL)
        node = self._node
        measured = node.statistics.row(broker.sockets.used, node.disk_free())
        node.statistics.sample(now, measured, retention=GLOBAL, from_zero=False)
        yield
        broker.last_sample = now

    def _begin(self) -> None:
        self._work = self.sample(self._broker.timers.seconds() // STEP * STEP)
        self._run_piece()

    def _run_piece(self) -> None:
        timers = self._broker.timers
        deadline = timers.monotonic() + _PIECE_MICROSECONDS
        try:
            for _ in self._work:
                if timers.monotonic() > deadline:
                    self._timer = timers.call_later(_PAUSE_SECONDS, self._run_piece)
                    return
        except Exception:
            log.exception("internal error while a sample was taken")
        self.start()
