"""Counters of channels, exchanges and connections. They only grow, with one addition per batch of messages."""

from __future__ import annotations

from typing import ClassVar

from leveret.broker.core.stats.losses import LossCounters
from leveret.broker.core.stats.sampled_counters import SampledCounters


class ChannelCounters(SampledCounters):
    """Counters of a channel; the names are those of the HTTP API.

    Attributes:
        publish: Messages published; those in confirm mode also count as publish_confirm.
        publish_confirm: Messages published in confirm mode.
        confirm: Messages confirmed.
        return_unroutable: Unroutable messages returned.
        drop_unroutable: Unroutable messages dropped.
        deliver: Messages delivered to consumers that acknowledge.
        deliver_no_ack: Messages delivered to consumers that do not acknowledge.
        get: Messages fetched by basic.get, to be acknowledged.
        get_no_ack: Messages fetched by basic.get without acknowledgement.
        get_empty: Calls of basic.get on an empty queue.
        redeliver: Delivered or fetched messages that had been delivered before.
        ack: Messages acknowledged.
    """

    FIELDS: ClassVar[tuple[str, ...]] = (
        "publish",
        "confirm",
        "return_unroutable",
        "drop_unroutable",
        "deliver",
        "deliver_no_ack",
        "get",
        "get_no_ack",
        "get_empty",
        "redeliver",
        "ack",
    )

    __slots__ = (*FIELDS, "publish_confirm")

    def __init__(self) -> None:
        super().__init__()
        self.publish = 0
        self.publish_confirm = 0
        self.confirm = 0
        self.return_unroutable = 0
        self.drop_unroutable = 0
        self.deliver = 0
        self.deliver_no_ack = 0
        self.get = 0
        self.get_no_ack = 0
        self.get_empty = 0
        self.redeliver = 0
        self.ack = 0

    def row(self) -> tuple[int, ...]:
        """Return the numbers, by FIELDS."""
        return (
            self.publish,
            self.confirm,
            self.return_unroutable,
            self.drop_unroutable,
            self.deliver,
            self.deliver_no_ack,
            self.get,
            self.get_no_ack,
            self.get_empty,
            self.redeliver,
            self.ack,
        )

    def absorb(self, other: ChannelCounters) -> None:
        """Add the counters of a closed channel."""
        self.publish += other.publish
        self.publish_confirm += other.publish_confirm
        self.confirm += other.confirm
        self.return_unroutable += other.return_unroutable
        self.drop_unroutable += other.drop_unroutable
        self.deliver += other.deliver
        self.deliver_no_ack += other.deliver_no_ack
        self.get += other.get
        self.get_no_ack += other.get_no_ack
        self.get_empty += other.get_empty
        self.redeliver += other.redeliver
        self.ack += other.ack


class ExchangeCounters(LossCounters):
    """Counters of an exchange.

    Args:
        since: See LossCounters.

    Attributes:
        publish_in: Messages published to it.
        publish_out: Messages routed to queues, counted once per queue.
        drop_unroutable: Unroutable messages dropped.
        return_unroutable: Unroutable messages returned to the publisher.
        refuse: Messages with a delay that were refused, because too many waited.
        refuse_told: Of these, those whose sender knows; see QueueCounters.refused_told.
        drop_deleted: Messages that waited until they were due when the exchange was deleted.
        deduplicated: Duplicates that it has dropped, which are not lost.
    """

    FIELDS: ClassVar[tuple[str, ...]] = ("publish_in", "publish_out")
    #: New ones at the end: the histories of earlier versions have fewer numbers.
    LOSS_FIELDS: ClassVar[tuple[str, ...]] = (
        "lost",
        "drop_unroutable",
        "return_unroutable",
        "refuse",
        "drop_deleted",
        "refuse_told",
    )

    __slots__ = (
        *FIELDS,
        "deduplicated",
        "drop_deleted",
        "drop_unroutable",
        "refuse",
        "refuse_told",
        "return_unroutable",
    )

    def __init__(self, since: int = 0) -> None:
        super().__init__(since)
        self.publish_in = 0
        self.publish_out = 0
        self.drop_unroutable = 0
        self.return_unroutable = 0
        self.refuse = 0
        self.refuse_told = 0
        self.drop_deleted = 0
        self.deduplicated = 0

    def row(self) -> tuple[int, ...]:
        """Return the numbers, by FIELDS."""
        return self.publish_in, self.publish_out

    @property
    def has_losses(self) -> bool:
        """Whether it has lost messages."""
        return bool(self.drop_unroutable or self.return_unroutable or self.refuse or self.drop_deleted or self.earlier)

    def current_loss_row(self, retained: int = 0) -> tuple[int, ...]:
        """Return the losses since the start, by LOSS_FIELDS; messages whose publisher was told are not lost."""
        lost = self.drop_unroutable + self.refuse - self.refuse_told + self.drop_deleted
        return (
            lost,
            self.drop_unroutable,
            self.return_unroutable,
            self.refuse,
            self.drop_deleted,
            self.refuse_told,
        )

    def count_unroutable(self, count: int, returned: bool) -> None:
        """Count unroutable messages."""
        if returned:
            self.return_unroutable += count
        else:
            self.drop_unroutable += count

    def absorb(self, other: ExchangeCounters) -> None:
        """Add the counters of a deleted exchange."""
        self.publish_in += other.publish_in
        self.publish_out += other.publish_out
        self.drop_unroutable += other.drop_unroutable
        self.return_unroutable += other.return_unroutable
        self.refuse += other.refuse
        self.refuse_told += other.refuse_told
        self.drop_deleted += other.drop_deleted
        self.deduplicated += other.deduplicated
        self.add_earlier(other.earlier)


class ConnectionCounters(SampledCounters):
    """Counters of a connection.

    Attributes:
        recv_oct: Bytes read.
        recv_cnt: Number of reads.
        send_oct: Bytes written.
        send_cnt: Number of writes.
    """

    FIELDS: ClassVar[tuple[str, ...]] = ("recv_oct", "send_oct")

    __slots__ = ("recv_cnt", "recv_oct", "send_cnt", "send_oct")

    def __init__(self) -> None:
        super().__init__()
        self.recv_oct = 0
        self.recv_cnt = 0
        self.send_oct = 0
        self.send_cnt = 0

    def row(self) -> tuple[int, ...]:
        """Return the numbers, by FIELDS."""
        return self.recv_oct, self.send_oct

    def absorb(self, other: ConnectionCounters) -> None:
        """Add the counters of a closed connection."""
        self.recv_oct += other.recv_oct
        self.recv_cnt += other.recv_cnt
        self.send_oct += other.send_oct
        self.send_cnt += other.send_cnt
