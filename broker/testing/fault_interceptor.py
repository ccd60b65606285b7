"""Which faults happen to what, and those of connections: it gets their events before they do."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple, cast

from leveret.broker.app import App
from leveret.broker.core.clients import ClientConnection, client_provided_name
from leveret.broker.core.messages import read_extra_keys
from leveret.broker.core.vhosts.routing import route
from leveret.broker.session.channel import Channel, ChannelConsumer
from leveret.broker.session.channel_table import HANDLERS, method_of
from leveret.broker.session.connection import Connection
from leveret.broker.session.output import Confirms
from leveret.broker.session.shared_state import Interceptor
from leveret.broker.testing.messages import PublishedMessage, read_published
from leveret.protocol.faults import ChannelFault
from leveret.protocol.frame_reader import AckRun, Event, MethodReceived, Publish, PublishRun, VariedRun
from leveret.protocol.methods import INDEX
from leveret.protocol.properties import Properties
from leveret.protocol.states import ChannelState, ConnectionState
from leveret.storage.message import Envelope

#: Methods that clients send on channels.
_SENT_BY_CLIENTS: Final = {
    name for name, index in INDEX.items() if index in HANDLERS or name in ("channel.open", "basic.publish", "basic.ack")
}
_SETTLING: Final = ("basic.ack", "basic.nack", "basic.reject")
#: Methods that faults can be chosen for by the name of a queue.
_WITH_QUEUE: Final = (*_SETTLING, "basic.consume", "basic.get")


@dataclass(frozen=True, kw_only=True)
class Choice:
    """Publishes, consumers or methods, as Which says, and the name of a method; "" for that of the fault.

    Raises:
        ValueError: A value is impossible.
    """

    queue: str | None = None
    vhost: str | None = None
    connection: str | None = None
    exchange: str | None = None
    message: Callable[[PublishedMessage], bool] | None = None
    times: int | None = None
    method: str = ""

    def __post_init__(self) -> None:
        method = self.method
        if self.times is not None and self.times < 1:
            raise ValueError(f"times={self.times}: a fault happens once at least")
        if not method or method == "basic.publish":
            return
        if method not in _SENT_BY_CLIENTS:
            known = "clients do not send it" if method in INDEX else "there is no such method"
            raise ValueError(f"{method!r}: {known}; name one that they send on channels, such as 'basic.ack'")
        if self.exchange is not None or self.message is not None:
            raise ValueError(f"{method} has no exchange= and message=; basic.publish has")
        if self.queue is not None and method not in _WITH_QUEUE:
            names = ", ".join(sorted(("basic.publish", *_WITH_QUEUE)))
            raise ValueError(f"{method} cannot be chosen by queue=; these can: {names}")

    def has_connection(self, connection: ClientConnection) -> bool:
        """Return whether a connection, with an open virtual host, is meant."""
        if self.vhost not in (None, connection.vhost_name):
            return False
        return self.connection is None or self.connection in (connection.name, client_provided_name(connection))

    def has_message(self, message: PublishedMessage, queue_names: Callable[[], Collection[str]]) -> bool:
        """Return whether a message is meant; queue_names() returns those of the queues that it is routed to."""
        if self.exchange not in (None, message.exchange):
            return False
        if self.message is not None and not self.message(message):
            return False
        return self.queue is None or self.queue in queue_names()


class Fault:
    """A fault while its ``with`` block lasts.

    Attributes:
        count: How often it has happened: refused messages, held confirms, dropped connections, held consumers.
        error: What the function that chooses messages has raised first; raised again when the block ends.
    """

    def __init__(self, kind: str, choice: Choice) -> None:
        self.kind: Final = kind
        self.choice: Final = choice
        self.count = 0
        self.error: Exception | None = None

    @property
    def method(self) -> str:
        """Name of the method with which it happens."""
        return self.choice.method or ("basic.consume" if self.kind == "hold_deliveries" else "basic.publish")

    @property
    def is_over(self) -> bool:
        """Whether it has happened as often as it should."""
        return self.choice.times is not None and self.count >= self.choice.times

    def happens_to(self, message: PublishedMessage, queue_names: Callable[[], Collection[str]]) -> bool:
        """Return whether it happens to a message; see Choice.has_message(). Does not raise."""
        if self.is_over or self.error is not None:
            return False
        try:
            return self.choice.has_message(message, queue_names)
        except Exception as error:  # noqa: BLE001 - the test has to know, not the connection
            self.error = error
            return False

    def __repr__(self) -> str:
        given = {name: value for name, value in vars(self.choice).items() if value not in (None, "")}
        about = ", ".join(f"{name}={value!r}" for name, value in given.items())
        return f"<Fault {self.kind}({about}), happened {self.count} times>"


_NAMES: Final = {index: name for name, index in INDEX.items()}


class _HeldConfirm(NamedTuple):
    """A confirm that is not sent yet."""

    channel: Channel
    confirms: Confirms
    number: int


class FaultInterceptor:
    """The faults that last, and what they have held. Implements Interceptor.

    Args:
        published: Gets the events first.
    """

    def __init__(self, published: Interceptor) -> None:
        self._published = published
        self._active: dict[Fault, None] = {}
        self._confirms: dict[Fault, list[_HeldConfirm]] = {}
        self._consumers: dict[Fault, dict[ChannelConsumer, None]] = {}

    @contextmanager
    def active(self, kind: str, choice: Choice, app: App | None = None) -> Iterator[Fault]:
        """Have a fault happen.

        Args:
            kind: ``refuse``, ``hold_confirms``, ``drop_before``, ``drop_after`` or ``hold_deliveries``.
            choice: What it happens to.
            app: The broker whose present consumers are to be held; None for no consumers.

        Raises:
            Exception: What the function that chooses messages has raised.
        """
        fault = Fault(kind, choice)
        self._active[fault] = None
        try:
            if app is not None:
                for connection in app.broker.connections:
                    self._hold_consumers(cast("Connection", connection), [fault])
            yield fault
        finally:
            del self._active[fault]
            self._release(fault)
        if fault.error is not None:
            raise fault.error

    def wrap(self, connection: ClientConnection, handle: Callable[[Event], None]) -> Callable[[Event], None]:
        """Return what handles the events of a new connection."""
        return self._published.wrap(connection, partial(self._handle, cast("Connection", connection), handle))

    def _handle(self, connection: Connection, handle: Callable[[Event], None], event: Event) -> None:
        faults = self._faults_of(connection, event) if self._active else []
        if not faults:
            handle(event)
        elif isinstance(event, PublishRun | VariedRun):
            self._publish(connection, handle, event, faults)
        else:
            self._receive(connection, handle, event, faults)

    def _faults_of(self, connection: Connection, event: Event) -> list[Fault]:
        """Return the faults that may happen with an event."""
        if connection.state is not ConnectionState.RUNNING or isinstance(event, Exception):
            return []
        name = _NAMES.get(method_of(event), "")
        return [
            fault
            for fault in self._active
            if fault.method == name and not fault.is_over and fault.choice.has_connection(connection)
        ]

    # -- publishes ----------------------------------------------------------------------------------------

    def _publish(
        self, connection: Connection, handle: Callable[[Event], None], run: PublishRun | VariedRun, faults: list[Fault]
    ) -> None:
        """Publish the messages of a run one by one.

        Those that have been published are removed from it, because an event that takes long is handled again.
        """
        channel = _open_channel(connection, run.channel)
        while run.bodies:
            header = run.headers[0] if isinstance(run, VariedRun) else run.header
            single = PublishRun(run.channel, run.publish, header, [run.bodies[0]])
            fault = None if channel is None else _first_fault(channel, single, faults)
            if fault is None or channel is None:
                handle(single)
            elif not self._publish_with(fault, connection, channel, handle, single):
                return
            if connection.intake.will_repeat:
                return
            del run.bodies[0]
            if isinstance(run, VariedRun):
                del run.headers[0]

    def _publish_with(
        self,
        fault: Fault,
        connection: Connection,
        channel: Channel,
        handle: Callable[[Event], None],
        single: PublishRun,
    ) -> bool:
        """Publish a message that a fault happens to; return whether the connection is still there."""
        if fault.kind == "refuse":
            _refuse(channel)
        elif fault.kind == "hold_confirms":
            confirms = channel.confirms
            number = 0 if confirms is None else confirms.withhold_next()
            handle(single)
            if connection.intake.will_repeat:
                return True
            if confirms is not None:
                self._confirms.setdefault(fault, []).append(_HeldConfirm(channel, confirms, number))
        else:
            return self._drop(fault, connection, handle, single)
        fault.count += 1
        return True

    # -- other methods ------------------------------------------------------------------------------------

    def _receive(
        self, connection: Connection, handle: Callable[[Event], None], event: Event, faults: list[Fault]
    ) -> None:
        """Handle a method, or consecutive acknowledgements."""
        channel = _open_channel(connection, getattr(event, "channel", 0))
        tags = event.tags if isinstance(event, AckRun) else [0]
        for position, tag in enumerate(tags):
            single = AckRun(event.channel, [tag]) if isinstance(event, AckRun) else event
            for fault in faults:
                if fault.kind != "hold_deliveries" and _is_meant(fault.choice, channel, single):
                    if position:
                        handle(AckRun(single.channel, tags[:position]))  # type: ignore[union-attr]
                    self._drop(fault, connection, handle, single)
                    return
        handle(event)
        self._hold_consumers(connection, [fault for fault in faults if fault.kind == "hold_deliveries"])

    def _drop(self, fault: Fault, connection: Connection, handle: Callable[[Event], None], event: Event) -> bool:
        """Drop a connection before or after an event; return whether it is still there."""
        if fault.kind == "drop_after":
            handle(event)
            if connection.intake.will_repeat:
                return True
        fault.count += 1
        # What has not been sent yet, such as a confirm, is lost with it.
        connection.drop("abort")
        return False

    # -- consumers and confirms ---------------------------------------------------------------------------

    def _hold_consumers(self, connection: Connection, faults: list[Fault]) -> None:
        """Have the consumers of a connection get nothing, as far as faults say so."""
        if not connection.is_open:
            return
        for fault in faults:
            held = self._consumers.setdefault(fault, {})
            if not fault.choice.has_connection(connection):
                continue
            for channel in connection.channels:
                for consumer in channel.consumers.values():
                    if consumer not in held and fault.choice.queue in (None, consumer.queue.name):
                        held[consumer] = None
                        consumer.is_held = True
                        fault.count += 1

    def _release(self, fault: Fault) -> None:
        """Send what a fault has held."""
        for channel, confirms, number in self._confirms.pop(fault, ()):
            confirms.release(number)
            if channel.confirms is confirms:
                channel.output.confirm(confirms)
        for consumer in self._consumers.pop(fault, ()):
            if not any(consumer in others for others in self._consumers.values()):
                consumer.is_held = False
                consumer.unblock()


def _open_channel(connection: Connection, number: int) -> Channel | None:
    channel = next((each for each in connection.channels if each.number == number), None)
    return channel if channel is not None and channel.state is ChannelState.OPEN else None


def _first_fault(channel: Channel, run: PublishRun, faults: list[Fault]) -> Fault | None:
    """Return the fault that happens to a message; None if none does, or if it is refused anyway."""
    publish = run.publish
    if publish.exchange not in channel.vhost.topology.exchanges:
        return None
    message = read_published(Envelope(publish.route, run.header), run.bodies[0])
    find_names = partial(_queue_names, channel, publish, run.header)
    return next((each for each in faults if each.happens_to(message, find_names)), None)


def _queue_names(channel: Channel, publish: Publish, header: bytes) -> set[str]:
    """Return the names of the queues that a message is routed to."""
    headers = Properties(header).headers()
    try:
        extra = read_extra_keys(headers, "CC") + read_extra_keys(headers, "BCC")
    except ChannelFault:
        # It is refused.
        return set()
    topology = channel.vhost.topology
    found = route(topology, topology.exchange(publish.exchange), [publish.routing_key, *extra], headers, header)
    return {name for target in found.queues for kind, (_, name) in target.definitions() if kind == "queue"}


def _refuse(channel: Channel) -> None:
    """Count a message as published, and refuse it."""
    channel.counters.publish += 1
    if channel.confirms is not None:
        channel.confirms.refuse_next()
        channel.output.confirm(channel.confirms)


def _is_meant(choice: Choice, channel: Channel | None, event: Event) -> bool:
    """Return whether a method is meant, apart from its name and connection."""
    if choice.queue is None:
        return True
    if channel is None:
        return False
    if isinstance(event, MethodReceived) and _NAMES[event.method.index] not in _SETTLING:
        return bool(choice.queue == (event.arguments[1] or channel.last_queue))
    tag = event.tags[0] if isinstance(event, AckRun) else cast("MethodReceived", event).arguments[0]
    held = channel.unacked.held.get(tag)
    return held is not None and held[0].queue.name == choice.queue
