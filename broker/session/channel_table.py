"""The open channels of one connection, and channel limits."""

from __future__ import annotations

from collections.abc import Iterator

from leveret.broker.core.broker import Broker
from leveret.broker.session.channel import Channel
from leveret.broker.session.channel_host import ChannelHost
from leveret.protocol.faults import ConnectionFault, ReplyCode
from leveret.protocol.states import ChannelState


class ChannelTable:
    """Channels by number.

    Args:
        host: What the channels share.
        broker: Counts the channels of all connections.
        channel_max: Maximum number of channels of the connection.
        node_max: Maximum number of channels of all connections; None for no limit.

    Attributes:
        host: What the channels share.
    """

    __slots__ = ("_broker", "_by_number", "_channel_max", "_node_max", "host")

    def __init__(self, host: ChannelHost, broker: Broker, channel_max: int, node_max: int | None) -> None:
        self.host = host
        self._broker = broker
        self._channel_max = channel_max
        self._node_max = node_max
        self._by_number: dict[int, Channel] = {}

    def __iter__(self) -> Iterator[Channel]:
        return iter(list(self._by_number.values()))

    def __len__(self) -> int:
        return len(self._by_number)

    def __contains__(self, number: int) -> bool:
        return number in self._by_number

    def find(self, number: int, method: int) -> Channel:
        """Return an open channel.

        Args:
            number: Channel number, 1..65535.
            method: Index of the current method, for connection.close.
        Raises:
            ConnectionFault: CHANNEL_ERROR (504) if the channel is not open; NOT_ALLOWED (530) if a limit is reached.
        """
        channel = self._by_number.get(number)
        if channel is None:
            self._check_limits()
            raise ConnectionFault(ReplyCode.CHANNEL_ERROR, "expected 'channel.open'", method)
        return channel

    def open(self, number: int, state: ChannelState = ChannelState.OPEN) -> Channel:
        """Open a channel.

        Args:
            number: Channel number, 1..65535.
            state: CLOSING for a channel that will be refused.
        Raises:
            ConnectionFault: CHANNEL_ERROR (504) if it is already open; NOT_ALLOWED (530) if a limit is reached.
        """
        if number in self._by_number:
            raise ConnectionFault(ReplyCode.CHANNEL_ERROR, "second 'channel.open' seen")
        self._check_limits()
        channel = self._by_number[number] = Channel(self.host, number, state)
        self._broker.connections.channel_opened(self.host.username)
        return channel

    def remove(self, channel: Channel) -> None:
        """Remove a closed channel; its number can be reused."""
        del self._by_number[channel.number]
        self.host.vhost.statistics.channels.absorb(channel.counters)
        self._broker.connections.channel_closed(self.host.username)

    def close_all(self) -> None:
        """Close all channels."""
        for channel in self:
            # Messages that one channel requeues must not be delivered to another one.
            channel.cancel_consumers()
        for channel in self:
            channel.flush_confirms()
            channel.close()
            self.remove(channel)

    def _check_limits(self) -> None:
        broker, user = self._broker, self.host.user
        if len(self) >= self._channel_max:
            raise _not_allowed(
                f"number of channels opened ({self._channel_max}) has reached the negotiated channel_max"
                f" ({self._channel_max})"
            )
        limit = user.limits.max_channels
        if limit is not None and 0 <= limit <= broker.connections.channels_by_user[user.name]:
            raise _not_allowed(
                f"number of channels opened for user '{user.name}' has reached the maximum allowed user limit of"
                f" ({limit})"
            )
        limit = self._node_max
        if limit is not None and broker.connections.channel_count >= limit:
            raise _not_allowed(
                f"number of channels opened on node '{broker.cluster_name}' has reached the maximum allowed limit of"
                f" {limit}"
            )


def _not_allowed(explanation: str) -> ConnectionFault:
    return ConnectionFault(ReplyCode.NOT_ALLOWED, explanation, 0)
