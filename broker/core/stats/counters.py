"""Counters of channels, exchanges and connections. They only grow, by one addition a batch of messages."""

from __future__ import annotations

from typing import ClassVar

from leveret.broker.core.stats.followed import Followed
from leveret.broker.core.stats.losses import LosingCounters


class ChannelCounters(Followed):
    """What has happened on a channel; the names are those of the HTTP API.

    Attributes:
        publish: Messages published; those in confirm mode also count as publish_confirm.
        confirm: Of these, confirmed.
        return_unroutable: Sent back because no queue took them.
        drop_unroutable: Dropped because no queue took them.
        deliver: Delivered to consumers that acknowledge.
        deliver_no_ack: Delivered to consumers that do not.
        get: Got, to be acknowledged.
        get_no_ack: Got without that.
        get_empty: Gets of an empty queue.
        redeliver: Of delivered and got, those that had been delivered before.
        ack: Acknowledged.
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
        """The numbers, by FIELDS."""
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
        """Add those of a channel that has gone."""
        for field in (*self.FIELDS, "publish_confirm"):
            setattr(self, field, getattr(self, field) + getattr(other, field))


class ExchangeCounters(LosingCounters):
    """What has happened at an exchange.

    Attributes:
        publish_in: Messages published to it.
        publish_out: Messages it has handed to queues, once a queue.
        drop_unroutable: Of those published, dropped because no queue took them.
        return_unroutable: Sent back to the publisher for that.
    """

    FIELDS: ClassVar[tuple[str, ...]] = ("publish_in", "publish_out")
    LOSS_FIELDS: ClassVar[tuple[str, ...]] = ("lost", "drop_unroutable", "return_unroutable")

    __slots__ = (*FIELDS, "drop_unroutable", "return_unroutable")

    def __init__(self) -> None:
        super().__init__()
        self.publish_in = 0
        self.publish_out = 0
        self.drop_unroutable = 0
        self.return_unroutable = 0

    def row(self) -> tuple[int, ...]:
        """The numbers, by FIELDS."""
        return self.publish_in, self.publish_out

    @property
    def has_losses(self) -> bool:
        """Whether it has lost anything."""
        return bool(self.drop_unroutable or self.return_unroutable or self.earlier)

    def current_loss_row(self, retained: int = 0) -> tuple[int, ...]:
        """The losses of this run, by LOSS_FIELDS."""
        return self.drop_unroutable + self.return_unroutable, self.drop_unroutable, self.return_unroutable

    def lose(self, count: int, returned: bool) -> None:
        """Count messages that no queue has taken."""
        if returned:
            self.return_unroutable += count
        else:
            self.drop_unroutable += count

    def absorb(self, other: ExchangeCounters) -> None:
        """Add those of an exchange that has gone."""
        self.publish_in += other.publish_in
        self.publish_out += other.publish_out
        self.drop_unroutable += other.drop_unroutable
        self.return_unroutable += other.return_unroutable
        self.add_earlier(other.earlier)


class ConnectionCounters(Followed):
    """What has gone over a connection.

    Attributes:
        recv_oct: Bytes read.
        recv_cnt: Reads.
        send_oct: Bytes written.
        send_cnt: Writes.
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
        """The numbers, by FIELDS."""
        return self.recv_oct, self.send_oct

    def absorb(self, other: ConnectionCounters) -> None:
        """Add those of a connection that has gone."""
        self.recv_oct += other.recv_oct
        self.recv_cnt += other.recv_cnt
        self.send_oct += other.send_oct
        self.send_cnt += other.send_cnt
