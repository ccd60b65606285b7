"""Counters of channels, exchanges and connections. They only grow, by one addition a batch of messages."""

from __future__ import annotations

from typing import ClassVar

from broker.core.stats.followed import Followed


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


class ExchangeCounters(Followed):
    """What has happened at an exchange.

    Attributes:
        publish_in: Messages published to it.
        publish_out: Messages it has handed to queues, once a queue.
    """

    FIELDS: ClassVar[tuple[str, ...]] = ("publish_in", "publish_out")

    __slots__ = FIELDS

    def __init__(self) -> None:
        super().__init__()
        self.publish_in = 0
        self.publish_out = 0

    def row(self) -> tuple[int, ...]:
        """The numbers, by FIELDS."""
        return self.publish_in, self.publish_out


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
