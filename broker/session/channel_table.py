"""The open channels of one connection, and channel limits."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING
from weakref import ref

from leveret.broker.core.user_counts import count_down
from leveret.broker.session.channel import Channel
from leveret.protocol.faults import ConnectionFault, ReplyCode
from leveret.protocol.states import ChannelState

if TYPE_CHECKING:
    from leveret.broker.session.connection import Connection


class ChannelTable:
    """Channels by number.

    Args:
        connection: The connection of the channels.
    """

    __slots__ = ("_by_number", "_owner")

    def __init__(self, connection: Connection) -> None:
        # A weak reference: a cycle would be freed by the garbage collector only.
        self._owner = ref(connection)
        self._by_number: dict[int, Channel] = {}

    def __iter__(self) -> Iterator[Channel]:
        return iter(list(self._by_number.values()))

    def __len__(self) -> int:
        return len(self._by_number)

    @property
    def _connection(self) -> Connection:
        connection = self._owner()
        assert connection is not None, "the connection holds its channels"
        return connection

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

    def __contains__(self, number: int) -> bool:
        return number in self._by_number

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
        channel = self._by_number[number] = Channel(self._connection, number)
        channel.state = state
        channel.tracer = self._connection.vhost.tracer
        broker = self._connection.server.broker
        broker.statistics.channel_created += 1
        broker.channel_count += 1
        broker.user_channels[self._connection.username] += 1
        return channel

    def remove(self, channel: Channel) -> None:
        """Remove a closed channel; its number can be reused."""
        del self._by_number[channel.number]
        broker = self._connection.server.broker
        broker.statistics.channel_closed += 1
        self._connection.vhost.statistics.channels.absorb(channel.counters)
        broker.channel_count -= 1
        count_down(broker.user_channels, self._connection.username)

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
        connection = self._connection
        server, user = connection.server, connection.user
        limit: int | None = connection.channel_max
        if limit is not None and len(self) >= limit:
            raise _not_allowed(f"number of channels opened ({limit}) has reached the negotiated channel_max ({limit})")
        limit = user.limits.max_channels
        if limit is not None and 0 <= limit <= server.broker.user_channels[user.name]:
            raise _not_allowed(
                f"number of channels opened for user '{user.name}' has reached the maximum allowed user limit of"
                f" ({limit})"
            )
        limit = server.settings.channel_max_per_node
        if limit is not None and server.broker.channel_count >= limit:
            raise _not_allowed(
                f"number of channels opened on node '{server.cluster_name}' has reached the maximum allowed limit of"
                f" {limit}"
            )


def _not_allowed(explanation: str) -> ConnectionFault:
    return ConnectionFault(ReplyCode.NOT_ALLOWED, explanation, 0)
