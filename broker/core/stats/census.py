"""Adding up what all objects of the broker have counted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from operator import add
from typing import TYPE_CHECKING, Final

from leveret.broker.core.stats.counters import ChannelCounters
from leveret.broker.core.stats.losses import LosingCounters
from leveret.broker.core.stats.totals import VirtualHostStatistics

if TYPE_CHECKING:
    from leveret.broker.core.broker import Broker
    from leveret.broker.core.clients import ClientConnection
    from leveret.broker.core.queues.queue import Queue
    from leveret.broker.core.vhost import VirtualHost

_FIELDS: Final = VirtualHostStatistics.FIELDS
_READY: Final = _FIELDS.index("messages_ready")
_UNACKNOWLEDGED: Final = _FIELDS.index("messages_unacknowledged")
_DROP: Final = _FIELDS.index("drop")
_REFUSE: Final = _FIELDS.index("refuse")
_RECEIVED: Final = _FIELDS.index("recv_oct")
_SENT: Final = _FIELDS.index("send_oct")
_OF_CHANNELS: Final = len(ChannelCounters.FIELDS)

#: Objects of a kind whose whole history is kept; of those beyond, enough for rates. Bounds memory, at some 20 KB each.
_DETAILED_MAX: Final = 2000
#: Queues and exchanges the losses of which are known exactly to the minute; at 40 KB each if they go on all day.
_DETAILED_LOSSES_MAX: Final = 500


class Census:
    """The totals of all virtual hosts. One pass over everything, in steps, so that others have a turn in between.

    Args:
        broker: Whose objects are counted.

    Attributes:
        vhosts: Totals by virtual host, by the FIELDS of VirtualHostStatistics; complete after all steps.
        detailed: Objects with a whole history, by kind.
    """

    def __init__(self, broker: Broker, detailed: dict[str, int] | None = None) -> None:
        self._broker = broker
        self._known = detailed or {}
        self.vhosts: dict[str, list[int]] = {}
        self.detailed: dict[str, int] = {}

    def steps(self, now: int | None = None) -> Iterator[None]:
        """Count everything; a step is one object.

        Args:
            now: Also take a sample of every object, for this second; a multiple of the step of histories.
        """
        for vhost in list(self._broker.vhosts.values()):
            self.vhosts[vhost.name] = list(vhost.statistics.row())
        for vhost in list(self._broker.vhosts.values()):
            yield from self._count_queues(vhost, now)
            if now is not None:
                yield from self._look_at_exchanges(vhost, now)
        for connection in list(self._broker.connections):
            yield from self._count_connection(connection, now)

    def total(self) -> tuple[int, ...]:
        """The totals of all virtual hosts, those that have been deleted included."""
        rows: list[Sequence[int]] = [self._broker.statistics.ended.row(), *self.vhosts.values()]
        return tuple(map(sum, zip(*rows, strict=True)))

    def _count_queues(self, vhost: VirtualHost, now: int | None) -> Iterator[None]:
        totals = self.vhosts.get(vhost.name)
        if totals is None:
            return
        for queue in list(vhost.queues.values()):
            if queue.deleted:
                continue
            counters = queue.counters
            ready, unacknowledged = queue.store.ready_count, queue.unacked_count
            totals[_READY] += ready
            totals[_UNACKNOWLEDGED] += unacknowledged
            totals[_DROP] += counters.dropped.total() if counters.dropped else 0
            totals[_REFUSE] += counters.refused
            if now is not None:
                if counters.has_losses:
                    self._look_at_losses(counters, now, queue.retained_count)
                if counters.look(now, counters.row(ready, unacknowledged), self._may_be_detailed("queue")):
                    _look_at_disk(vhost, queue)
                self._note("queue", counters.is_detailed)
                if len(queue.consumers):
                    counters.sample_capacity(not ready or bool(queue.consumers.ring))
            yield

    def _look_at_exchanges(self, vhost: VirtualHost, now: int) -> Iterator[None]:
        for exchange in list(vhost.topology.exchanges.values()):
            counters = exchange.counters
            counters.look(now, counters.row(), self._may_be_detailed("exchange"))
            self._note("exchange", counters.is_detailed)
            if counters.has_losses:
                self._look_at_losses(counters, now)
            yield
        vhost.deleted_queues.look(now)
        vhost.deleted_exchanges.look(now)

    def _count_connection(self, connection: ClientConnection, now: int | None) -> Iterator[None]:
        totals = self.vhosts.get(connection.vhost_name)
        if totals is None or connection not in self._broker.connections:
            return
        counters = connection.output.counters
        totals[_RECEIVED] += counters.recv_oct
        totals[_SENT] += counters.send_oct
        if now is not None:
            counters.look(now, counters.row(), self._may_be_detailed("connection"))
            self._note("connection", counters.is_detailed)
        for channel in connection.channels:
            row = channel.counters.row()
            totals[:_OF_CHANNELS] = map(add, totals, row)
            if now is not None:
                channel.counters.look(now, row, self._may_be_detailed("channel"))
                self._note("channel", channel.counters.is_detailed)
            yield
        yield

    def _look_at_losses(self, counters: LosingCounters, now: int, retained: int = 0) -> None:
        counters.look_at_losses(now, self._may_be_detailed("losses", _DETAILED_LOSSES_MAX), retained)
        self._note("losses", counters.losses is not None and counters.losses.is_detailed)

    def _may_be_detailed(self, kind: str, most: int | None = None) -> bool:
        known = max(self._known.get(kind, 0), self.detailed.get(kind, 0))
        return known < (_DETAILED_MAX if most is None else most)

    def _note(self, kind: str, is_detailed: bool) -> None:
        if is_detailed:
            self.detailed[kind] = self.detailed.get(kind, 0) + 1


def _look_at_disk(vhost: VirtualHost, queue: Queue) -> None:
    """Count what a queue has read and written since the last look."""
    counters, figures = queue.counters, queue.figures()
    vhost.statistics.disk_reads += figures.disk_reads - counters.disk_reads
    vhost.statistics.disk_writes += figures.disk_writes - counters.disk_writes
    counters.disk_reads, counters.disk_writes = figures.disk_reads, figures.disk_writes
