"""The open channels of one connection: their events, and their number."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from leveret.broker.core.broker import Broker
from leveret.broker.session.channel import Channel
from leveret.broker.session.handlers import basic, channel_modes, queues_exchanges
from leveret.broker.session.publishing import publish_run, publish_varied
from leveret.broker.session.shared_state import ChannelHost
from leveret.broker.unfinished import Unfinished
from leveret.protocol.constants import BASIC_ACK, BASIC_PUBLISH
from leveret.protocol.faults import ChannelFault, ConnectionFault, ReplyCode
from leveret.protocol.frame_reader import AckRun, Event, MethodReceived, PublishRun, VariedRun
from leveret.protocol.methods import INDEX
from leveret.protocol.states import ChannelState

#: Looked up once: to get a member of an enum takes long, compared with the other work for an event.
_IS_OPEN: Final = ChannelState.OPEN

_OPEN: Final = INDEX["channel.open"]
_OPEN_OK: Final = INDEX["channel.open-ok"]
_CLOSE: Final = INDEX["channel.close"]
_CLOSE_OK: Final = INDEX["channel.close-ok"]

#: Methods with the name of a queue as their second argument.
_QUEUE_METHODS: Final = frozenset(
    INDEX[name] for name in ("queue.bind", "queue.unbind", "queue.purge", "queue.delete", "basic.consume", "basic.get")
)

#: Methods whose reply or effect depends on the message count; the queue is their second argument, too.
_NEEDS_MESSAGE_COUNT: Final = frozenset(
    INDEX[name] for name in ("queue.declare", "queue.purge", "queue.delete", "basic.get")
)

#: Handlers of methods on open channels, by method index. They take the channel and the method's arguments, in the order
#: of the specification. Other methods are refused with COMMAND_INVALID (503).
HANDLERS: Final[dict[int, Callable[..., Any]]] = {
    INDEX[name]: handler
    for module in (basic, channel_modes, queues_exchanges)
    for name, handler in module.METHODS.items()
}


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
        self._broker.connections.channel_opened(channel)
        return channel

    def remove(self, channel: Channel) -> None:
        """Remove a closed channel; its number can be reused."""
        del self._by_number[channel.number]
        self.host.vhost.statistics.channels.absorb(channel.counters)
        self._broker.connections.channel_closed(channel)

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

    # -- events -------------------------------------------------------------------------------------------

    def receive(self, run: PublishRun | VariedRun | AckRun) -> None:
        """Publish messages, for errors see publish_run(), or acknowledge some one by one."""
        method = BASIC_ACK if type(run) is AckRun else BASIC_PUBLISH
        channel = self.find(run.channel, method)
        if channel.state is not _IS_OPEN:
            return
        try:
            if type(run) is PublishRun:
                publish_run(channel, run)
            elif type(run) is AckRun:
                basic.acknowledge_run(channel, run.tags)
            elif type(run) is VariedRun:
                publish_varied(channel, run)
        except ChannelFault as fault:
            channel.fail(fault, method)

    def handle(self, event: MethodReceived) -> None:
        """Handle another method of a channel.

        Raises:
            ConnectionFault: An error that closes the connection.
            Unfinished: Handling takes long; the event must be handled again later.
        """
        index = event.method.index
        if index == _OPEN:
            self.open(event.channel).send(_OPEN_OK, b"")
            return
        if _uses_last_queue(event) and event.channel not in self:
            # RabbitMQ resolves the queue declared last before it checks the channel.
            channel = self.open(event.channel, ChannelState.CLOSING)
        else:
            channel = self.find(event.channel, index)
        if channel.state is not _IS_OPEN:
            self._receive_closing(channel, event)
            return
        handler = HANDLERS.get(index)
        if handler is None:
            raise ConnectionFault(ReplyCode.COMMAND_INVALID, "unimplemented method")
        if index in _NEEDS_MESSAGE_COUNT:
            _apply_limits(channel, event.arguments[1] or channel.last_queue)
        gate = self.host.gate
        changes = gate.changes
        try:
            handler(channel, *event.arguments)
            if index == _CLOSE:
                self.remove(channel)
        except ChannelFault as fault:
            channel.fail(fault, index)
        # A connection fault promises nothing: its connection.close is sent at once.
        if gate.changes != changes:
            # Hold replies until the changed definitions are on disk.
            gate.hold(channel.output)

    def _receive_closing(self, channel: Channel, event: MethodReceived) -> None:
        """Handle a method after the broker's channel.close: all are ignored but close and close-ok."""
        index = event.method.index
        if index == _CLOSE_OK:
            channel.close()
            self.remove(channel)
        elif index == _CLOSE:
            channel.send(_CLOSE_OK)
        elif _uses_last_queue(event):
            try:
                channel.queue_name("")
            except ChannelFault as fault:
                # RabbitMQ resolves the queue first, and sends channel.close again.
                channel.fail(fault, index)


def method_of(event: Event) -> int:
    """Return the index of the method of an event; 0 if it has none."""
    if isinstance(event, MethodReceived):
        return event.method.index
    if isinstance(event, PublishRun | VariedRun):
        return BASIC_PUBLISH
    return BASIC_ACK if isinstance(event, AckRun) else 0


def _apply_limits(channel: Channel, name: str | None) -> None:
    """Apply limits and expiry of a queue before its message count is used.

    Raises:
        Unfinished: It takes longer than a time slice.
    """
    queue = None if name is None else channel.vhost.queues.get(name)
    if queue is None:
        return
    prepare, new_slice = queue.prepare, channel.vhost.turn.slice
    if not prepare(new_slice()):
        raise Unfinished(lambda: prepare(new_slice()))


def _uses_last_queue(event: MethodReceived) -> bool:
    return event.method.index in _QUEUE_METHODS and not event.arguments[1]


def _not_allowed(explanation: str) -> ConnectionFault:
    return ConnectionFault(ReplyCode.NOT_ALLOWED, explanation, 0)
