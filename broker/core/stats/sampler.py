"""Samples all counters every five seconds, in short steps."""

from __future__ import annotations

from collections.abc import Iterator

from leveret.broker.core.broker import Broker
from leveret.broker.core.counters.history import GLOBAL, STEP
from leveret.broker.core.node import Node
from leveret.broker.core.scheduling.work import PeriodicWork
from leveret.broker.core.stats.census import Census


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
        self._detailed: dict[str, int] = {}
        #: When the last sample was begun, in microseconds since 1970.
        self._begun = broker.timers.now()
        self._work = PeriodicWork(broker.timers, self._seconds_left, self._sample_now, "a sample was taken")

    def start(self) -> None:
        """Start to take samples."""
        self._work.start()

    def stop(self) -> None:
        """Stop taking samples."""
        self._work.stop()

    def sample(self, now: int) -> Iterator[None]:
        """Take one sample of all counters; a step is one object.

        Args:
            now: Seconds since 1970, a multiple of STEP.
        """
        broker = self._broker
        begun, self._begun = self._begun, broker.timers.now()
        census = Census(broker, self._detailed, begun)
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

    def _seconds_left(self) -> float:
        """Return the seconds until the next sample is due, and a little more."""
        seconds = self._broker.timers.now() / 1_000_000
        return STEP - seconds % STEP + 0.001

    def _sample_now(self) -> Iterator[None]:
        return self.sample(self._broker.timers.seconds() // STEP * STEP)
