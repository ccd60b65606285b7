"""Dispatches events of open channels to handlers."""

from __future__ import annotations

from typing import Final

from leveret.broker.core.scheduling.time_slice import Unfinished
from leveret.broker.session.channel import Channel
from leveret.broker.session.channel_table import ChannelTable
from leveret.broker.session.handlers.basic import acknowledge_run
from leveret.broker.session.handlers.registry import HANDLERS
from leveret.broker.session.publishing import publish_run, publish_varied
from leveret.protocol.constants import BASIC_ACK, BASIC_PUBLISH
from leveret.protocol.events import AckRun, Event, MethodReceived, PublishRun, VariedRun
from leveret.protocol.faults import ChannelFault, ConnectionFault, ReplyCode
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


def dispatch(channels: ChannelTable, event: PublishRun | VariedRun | AckRun | MethodReceived) -> None:
    """Handle one event of a channel.

    Raises:
        ConnectionFault: An error that closes the connection.
        Unfinished: Handling takes long; the event must be handled again later.
    """
    if type(event) is MethodReceived:
        _handle(channels, event)
    elif type(event) is AckRun:
        _acknowledge(channels, event)
    elif type(event) is PublishRun or type(event) is VariedRun:
        _publish(channels, event)


def method_of(event: Event) -> int:
    """Return the index of the method of an event; 0 if it has none."""
    if isinstance(event, MethodReceived):
        return event.method.index
    if isinstance(event, PublishRun | VariedRun):
        return BASIC_PUBLISH
    return BASIC_ACK if isinstance(event, AckRun) else 0


def _publish(channels: ChannelTable, run: PublishRun | VariedRun) -> None:
    channel = channels.find(run.channel, BASIC_PUBLISH)
    if channel.state is _IS_OPEN:
        try:
            if isinstance(run, PublishRun):
                publish_run(channel, run)
            else:
                publish_varied(channel, run)
        except ChannelFault as fault:
            channel.fail(fault, BASIC_PUBLISH)


def _acknowledge(channels: ChannelTable, run: AckRun) -> None:
    channel = channels.find(run.channel, BASIC_ACK)
    if channel.state is _IS_OPEN:
        try:
            acknowledge_run(channel, run.tags)
        except ChannelFault as fault:
            channel.fail(fault, BASIC_ACK)


def _handle(channels: ChannelTable, event: MethodReceived) -> None:
    """Handle a method."""
    index = event.method.index
    if index == _OPEN:
        channels.open(event.channel).send(_OPEN_OK, b"")
        return
    channel = _find_channel(channels, event)
    if channel.state is not _IS_OPEN:
        _receive_closing(channels, channel, event)
        return
    handler = HANDLERS.get(index)
    if handler is None:
        raise ConnectionFault(ReplyCode.COMMAND_INVALID, "unimplemented method")
    if index in _NEEDS_MESSAGE_COUNT:
        _apply_limits(channel, event.arguments[1] or channel.last_queue)
    gate = channels.host.gate
    changes = gate.changes
    try:
        handler(channel, *event.arguments)
        if index == _CLOSE:
            channels.remove(channel)
    except ChannelFault as fault:
        channel.fail(fault, index)
    # A connection fault promises nothing: its connection.close is sent at once.
    if gate.changes != changes:
        # Hold replies until the changed definitions are on disk.
        gate.hold(channel.output)


def _apply_limits(channel: Channel, name: str | None) -> None:
    """Apply limits and expiry of a queue before its message count is used.

    Raises:
        Unfinished: It takes longer than a time slice.
    """
    queue = None if name is None else channel.vhost.queues.get(name)
    if queue is None:
        return
    prepare, new_slice = queue.delivery.prepare, channel.vhost.turn.slice
    if not prepare(new_slice()):
        raise Unfinished(lambda: prepare(new_slice()))


def _find_channel(channels: ChannelTable, event: MethodReceived) -> Channel:
    """Return the channel of a method. RabbitMQ resolves the queue declared last before it checks the channel."""
    if _uses_last_queue(event) and event.channel not in channels:
        return channels.open(event.channel, ChannelState.CLOSING)
    return channels.find(event.channel, event.method.index)


def _uses_last_queue(event: MethodReceived) -> bool:
    return event.method.index in _QUEUE_METHODS and not event.arguments[1]


def _receive_closing(channels: ChannelTable, channel: Channel, event: MethodReceived) -> None:
    """Handle a method after the broker's channel.close: all are ignored but close and close-ok."""
    index = event.method.index
    if index == _CLOSE_OK:
        channel.close()
        channels.remove(channel)
    elif index == _CLOSE:
        channel.send(_CLOSE_OK)
    elif _uses_last_queue(event):
        try:
            channel.queue_name("")
        except ChannelFault as fault:
            # RabbitMQ resolves the queue first, and sends channel.close again.
            channel.fail(fault, index)
