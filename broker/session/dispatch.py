"""Events of a running connection: to their handler, or to the error that the state makes of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from leveret.broker.session.handlers.basic import acknowledge_run
from leveret.broker.session.handlers.registry import HANDLERS
from leveret.broker.session.publishing import publish_run, publish_varied
from leveret.broker.session.unfinished import Unfinished
from leveret.protocol.constants import BASIC_ACK, BASIC_PUBLISH
from leveret.protocol.events import AckRun, Event, MethodReceived, PublishRun, VariedRun
from leveret.protocol.faults import ChannelFault, ConnectionFault, ReplyCode
from leveret.protocol.methods import INDEX, encode_method
from leveret.protocol.states import ChannelState

if TYPE_CHECKING:
    from leveret.broker.session.channel import Channel
    from leveret.broker.session.connection import Connection

_CONNECTION_CLOSE: Final = INDEX["connection.close"]
_UPDATE_SECRET: Final = INDEX["connection.update-secret"]
_UPDATE_SECRET_OK: Final = INDEX["connection.update-secret-ok"]
_OPEN: Final = INDEX["channel.open"]
_OPEN_OK: Final = INDEX["channel.open-ok"]
_CLOSE: Final = INDEX["channel.close"]
_CLOSE_OK: Final = INDEX["channel.close-ok"]

#: Methods with the name of a queue as their second argument.
_ON_A_QUEUE: Final = frozenset(
    INDEX[name] for name in ("queue.bind", "queue.unbind", "queue.purge", "queue.delete", "basic.consume", "basic.get")
)

#: Those whose answer depends on how many messages there are; the queue is their second argument too.
_WANTS_SETTLED: Final = frozenset(INDEX[name] for name in ("queue.declare", "queue.purge", "queue.delete", "basic.get"))


def dispatch(connection: Connection, event: Event) -> None:
    """Handle one event of a running connection.

    Raises:
        ConnectionFault: Whatever closes the connection.
        WireFault: Whatever drops it.
        Unfinished: It takes long, and is to be handled again later.
    """
    if type(event) is PublishRun or type(event) is VariedRun:
        _publish(connection, event)
    elif type(event) is AckRun:
        _acknowledge(connection, event)
    elif type(event) is MethodReceived:
        if event.channel:
            _handle(connection, event)
        else:
            _handle_connection_method(connection, event.method.index)
    elif isinstance(event, Exception):
        raise event


def method_of(event: Event) -> int:
    """Index of the method in hand while an event is handled; 0 if it is none."""
    if isinstance(event, MethodReceived):
        return event.method.index
    if isinstance(event, PublishRun | VariedRun):
        return BASIC_PUBLISH
    return BASIC_ACK if isinstance(event, AckRun) else 0


def _publish(connection: Connection, run: PublishRun | VariedRun) -> None:
    channel = connection.channels.find(run.channel, BASIC_PUBLISH)
    if channel.state is ChannelState.OPEN:
        try:
            if isinstance(run, PublishRun):
                publish_run(channel, run)
            else:
                publish_varied(channel, run)
        except ChannelFault as fault:
            channel.fail(fault, BASIC_PUBLISH)


def _acknowledge(connection: Connection, run: AckRun) -> None:
    channel = connection.channels.find(run.channel, BASIC_ACK)
    if channel.state is ChannelState.OPEN:
        try:
            acknowledge_run(channel, run.tags)
        except ChannelFault as fault:
            channel.fail(fault, BASIC_ACK)


def _handle(connection: Connection, event: MethodReceived) -> None:
    """Handle a method on any channel but 0."""
    index = event.method.index
    if index == _OPEN:
        connection.channels.open(event.channel).send(_OPEN_OK, b"")
        return
    channel = _find(connection, event)
    if channel.state is not ChannelState.OPEN:
        _receive_closing(connection, channel, event)
        return
    handler = HANDLERS.get(index)
    if handler is None:
        raise ConnectionFault(ReplyCode.COMMAND_INVALID, "unimplemented method")
    if index in _WANTS_SETTLED:
        _wait_until_tidy(channel, event.arguments[1] or channel.last_queue)
    gate = connection.server.broker.gate
    changes = gate.changes
    try:
        handler(channel, *event.arguments)
    except ChannelFault as fault:
        channel.fail(fault, index)
    finally:
        if gate.changes != changes:
            # Its answer, and what follows, must not be ahead of the disk.
            gate.hold(connection.output)


def _wait_until_tidy(channel: Channel, name: str | None) -> None:
    """Have a queue drop what it must before somebody is told how much is in it.

    Raises:
        Unfinished: That takes long.
    """
    queue = None if name is None else channel.vhost.queues.get(name)
    if queue is None:
        return
    evict_and_expire, new_slice = queue.evict_and_expire, channel.vhost.turn.slice
    if not evict_and_expire(new_slice()):
        raise Unfinished(lambda: evict_and_expire(new_slice()))


def _find(connection: Connection, event: MethodReceived) -> Channel:
    """The channel that a method is for. RabbitMQ has looked up the queue declared last before it misses a channel."""
    if _wants_last_queue(event) and event.channel not in connection.channels:
        return connection.channels.open(event.channel, ChannelState.CLOSING)
    return connection.channels.find(event.channel, event.method.index)


def _wants_last_queue(event: MethodReceived) -> bool:
    return event.method.index in _ON_A_QUEUE and not event.arguments[1]


def _receive_closing(connection: Connection, channel: Channel, event: MethodReceived) -> None:
    """After the server's channel.close everything is ignored; only close-ok frees the number."""
    index = event.method.index
    if index == _CLOSE_OK:
        channel.end()
        connection.channels.remove(channel)
    elif index == _CLOSE:
        channel.send(_CLOSE_OK)
    elif _wants_last_queue(event):
        try:
            channel.queue_name("")
        except ChannelFault as fault:
            # RabbitMQ looks that up first, and says so once more.
            channel.fail(fault, index)


def _handle_connection_method(connection: Connection, index: int) -> None:
    """Handle a method on channel 0."""
    if index == _CONNECTION_CLOSE:
        connection.closed_by_client()
    elif index == _UPDATE_SECRET:
        connection.output.send(encode_method(0, _UPDATE_SECRET_OK))
    else:
        raise ConnectionFault(ReplyCode.CHANNEL_ERROR, "unexpected method in connection state running", index)
