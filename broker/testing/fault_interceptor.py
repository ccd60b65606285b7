"""Causes the faults of connections: gets their events before they do."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Final, NamedTuple, cast

from leveret.broker.app import App
from leveret.broker.core.clients import ClientConnection
from leveret.broker.core.messages.origin import read_extra_keys
from leveret.broker.core.vhosts.routing import route
from leveret.broker.session.channel import Channel, ChannelConsumer
from leveret.broker.session.channel_table import method_of
from leveret.broker.session.confirms import Confirms
from leveret.broker.session.connection import Connection
from leveret.broker.testing.fault_choice import Choice, Fault
from leveret.broker.testing.messages import read_published
from leveret.protocol.constants import BASIC_ACK
from leveret.protocol.events import AckRun, Event, MethodReceived, Publish, PublishRun, VariedRun
from leveret.protocol.faults import ChannelFault
from leveret.protocol.methods import INDEX
from leveret.protocol.properties import Properties
from leveret.protocol.states import ChannelState, ConnectionState
from leveret.storage.message import Envelope

_SETTLING: Final = (BASIC_ACK, INDEX["basic.nack"], INDEX["basic.reject"])
_NAMES: Final = {index: name for name, index in INDEX.items()}


class _HeldConfirm(NamedTuple):
    """A confirm that is not sent yet."""

    channel: Channel
    confirms: Confirms
    number: int


class FaultInterceptor:
    """The faults that last, and what they have held. Implements Interceptor."""

    def __init__(self) -> None:
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
        return partial(self._handle, cast("Connection", connection), handle)

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
    if isinstance(event, MethodReceived) and event.method.index not in _SETTLING:
        return bool(choice.queue == (event.arguments[1] or channel.last_queue))
    tag = event.tags[0] if isinstance(event, AckRun) else cast("MethodReceived", event).arguments[0]
    held = channel.unacked.held.get(tag)
    return held is not None and held[0].queue.name == choice.queue
