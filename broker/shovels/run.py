"""Moves the messages of one shovel, changes them on the way, and begins again when an end fails."""

from __future__ import annotations

import asyncio
import logging
import random
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final, Literal, TypeAlias

from leveret.broker.auth.backends.chain import AuthBackends
from leveret.broker.core.broker import Broker
from leveret.broker.shovels.ends import WINDOW, WINDOW_BYTES, Delivered, Destination, EndFault, Outgoing, Source
from leveret.broker.shovels.local import CONTINUE, LocalDestination, LocalSource, fault_of, open_principal
from leveret.broker.unfinished import answered
from leveret.policies.shovel import Shovel
from leveret.protocol.erlang_terms import format_text
from leveret.protocol.faults import AmqpFault
from leveret.protocol.field_table import FieldTable, FieldValue, find, longstr, normalize
from leveret.protocol.properties import FLAGS, HEADERS, Properties, encode_headers, encode_text
from leveret.protocol.short_strings import encode_shortstr

log = logging.getLogger("leveret.shovel")

State: TypeAlias = Literal["starting", "running", "terminated"]

#: Messages, and bytes of their bodies, that are sent at once.
_STEP: Final = 256
_STEP_BYTES: Final = 1 << 20
#: Seconds after which a message that the destination has refused goes back to its queue, to be delivered again.
_REFUSED_SECONDS: Final = 1.0
#: Seconds that a shovel waits for confirms when it is stopped.
_DRAIN_SECONDS: Final = 1.0
_OFFSET: Final = "x-stream-offset"
_FORWARDED: Final = "x-shovelled"
_TIMESTAMP: Final = "x-shovelled-timestamp"
_FLAG_OF: Final = {name: flag for flag, name in FLAGS}
_OCTETS: Final = ("delivery_mode", "priority")
_NO_CLIENT: Final = "shovels to and from other brokers need aiormq: pip install 'leveret[shovel]'"


@dataclass(slots=True)
class Progress:
    """What is known of a shovel.

    Attributes:
        state: Its state.
        since: When it got into that state, in microseconds since 1970.
        reason: Why it has failed, as RabbitMQ prints it; "" if it has not.
        source: URI of the source, without user and password; "" unless it is running.
        destination: The same of the destination.
        forwarded: Messages that were published at the destination since the broker has started.
        pending: Messages that are on their way.
        remaining: Messages after which it removes itself; None for no limit.
    """

    state: State = "starting"
    since: int = 0
    reason: str = ""
    source: str = ""
    destination: str = ""
    forwarded: int = 0
    pending: int = 0
    remaining: int | None = None


@dataclass(frozen=True, slots=True)
class Place:
    """Where shovels run.

    Attributes:
        max_message_size: Maximum size of a body in bytes.
    """

    broker: Broker
    backends: AuthBackends
    max_message_size: int


@dataclass(slots=True)
class _Flow:
    """The messages of one connection of a shovel that are on their way.

    Attributes:
        backlog: Delivered, and not published yet.
        backlog_bytes: Bytes of their bodies.
        pending: Delivery tags of those that were published, and are not confirmed yet, by their numbers.
        confirmed: Delivery tags that are to be acknowledged.
        refused: Delivery tags that are to be returned.
        expected: Messages that may still be delivered; None for no limit.
        number: Number of the next message that is published.
    """

    backlog: deque[Delivered] = field(default_factory=deque)
    backlog_bytes: int = 0
    pending: OrderedDict[int, int] = field(default_factory=OrderedDict)
    confirmed: list[int] = field(default_factory=list)
    refused: list[int] = field(default_factory=list)
    expected: int | None = None
    number: int = 1


class Run:
    """A shovel that is running. Its ends see it as their Owner.

    Args:
        place: Where it runs.
        name: Its name.
        shovel: What it does.
        way: What the header ``x-shovelled`` says besides the ends.
        finished: Called when it has moved all that it should.

    Attributes:
        progress: What is known of it.
    """

    def __init__(
        self, place: Place, name: str, shovel: Shovel, way: dict[str, str], finished: Callable[[], None]
    ) -> None:
        self.name = name
        self.progress = Progress(since=place.broker.timers.now())
        self._place = place
        self._shovel = shovel
        self._way = way
        self._finished = finished
        self._confirms = shovel.ack_mode == "on-confirm"
        self._loop = asyncio.get_running_loop()
        self._source: Source | None = None
        self._destination: Destination | None = None
        self._rewriter: Rewriter | None = None
        self._flow = _Flow()
        self._ended: asyncio.Future[EndFault | None] = self._loop.create_future()
        self._is_scheduled = self._is_settling = self._is_stopping = False
        self._drained = asyncio.Event()
        self._logged = ""
        self._task = self._loop.create_task(self._run())

    async def stop(self) -> None:
        """Stop it. What is on its way is waited for shortly; the rest returns to its queue."""
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task

    def abort(self) -> None:
        """Stop it as the death of the process does: without a word to the other broker."""
        self._is_stopping = True
        self._task.cancel()
        for end in (self._source, self._destination):
            if end is not None:
                end.abort()

    def status(self) -> dict[str, Any]:
        """Return the fields of the event ``shovel.worker.status``, as in RabbitMQ's."""
        progress, definition = self.progress, self._shovel
        fields = {"name": self.name, "vhost": self._way.get("shovel-vhost"), "status": progress.state}
        if progress.state != "running":
            return fields
        uris = {"src_uri": progress.source, "dest_uri": progress.destination}
        protocols = {"src_protocol": "amqp091", "dest_protocol": "amqp091"}
        named = definition.source.named("src", "_") | definition.destination.named("dest", "_")
        return {**fields, **uris, **protocols, **named}

    def _report(self, state: State, reason: str = "") -> None:
        progress = self.progress
        progress.state, progress.reason, progress.since = state, reason, self._place.broker.timers.now()
        ends = self._source, self._destination
        progress.source, progress.destination = (
            end.uri.shown if end is not None and state == "running" else "" for end in ends
        )
        self._place.broker.events.tell("shovel.worker.status", self.status)
        if reason and reason != self._logged:
            log.warning("shovel '%s': %s; it is tried again", self.name, reason)
        elif state == "running":
            log.info("shovel '%s' is running", self.name)
        if state != "starting" or reason:
            self._logged = reason

    # -- its life -----------------------------------------------------------------------------------------

    async def _run(self) -> None:
        while True:
            fault = await self._run_once()
            if fault is None:
                self._finished()
                return
            self._report("starting" if fault.is_refused else "terminated", fault.reason)
            if not self._shovel.reconnect_seconds:
                return
            await asyncio.sleep(self._shovel.reconnect_seconds)

    async def _run_once(self) -> EndFault | None:
        """Connect both ends, and move messages until one fails; return why, or None if everything is done."""
        self._flow = _Flow()
        self._ended = self._loop.create_future()
        try:
            await self._open()
            return await self._ended
        except EndFault as fault:
            return fault
        except AmqpFault as fault:
            return fault_of(fault)
        except Exception as error:
            log.exception("internal error in shovel '%s'", self.name)
            return EndFault(format_text(f"internal error: {type(error).__name__}"))
        finally:
            await self._close()

    async def _open(self) -> None:
        shovel, flow, progress = self._shovel, self._flow, self.progress
        self._source = source = await self._open_source()
        self._destination = destination = await self._open_destination()
        way = {**self._way, "src-uri": source.uri.shown, "dest-uri": destination.uri.shown}
        way |= {**shovel.source.named("src", "-"), **shovel.destination.named("dest", "-")}
        self._rewriter = Rewriter(shovel, way, self._place.broker.timers.seconds)
        after = shovel.delete_after
        flow.expected = progress.remaining = (
            None if after == "never" else source.message_count if after == "queue-length" else after
        )
        if flow.expected == 0:
            self._ended.set_result(None)
            return
        await source.consume(await self._consumer_arguments(destination))
        self._report("running")

    async def _consumer_arguments(self, destination: Destination) -> dict[str, Any]:
        """Return the arguments of the consumer; a stream may go on behind what its destination has."""
        arguments = dict(self._shovel.consumer_arguments)
        if arguments.get(_OFFSET) == CONTINUE:
            if not isinstance(destination, LocalDestination):
                raise EndFault(format_text(f"{_OFFSET} '{CONTINUE}' needs a stream of this broker as destination"))
            last = await destination.last_offset()
            arguments[_OFFSET] = "first" if last is None else last + 1
        return arguments

    async def _open_source(self) -> Source:
        place, shovel = self._place, self._shovel
        uri = random.choice(shovel.source.uris)
        if uri.is_local:
            principal = await open_principal(place.broker, place.backends, uri)
            return await answered(lambda: LocalSource(place.broker, principal, uri, shovel, self))
        try:
            from leveret.broker.shovels.remote import RemoteSource
        except ImportError:
            raise EndFault(format_text(_NO_CLIENT), is_refused=True) from None
        source = RemoteSource(uri, shovel, self)
        self._source = source
        await source.open()
        return source

    async def _open_destination(self) -> Destination:
        place, end = self._place, self._shovel.destination
        uri = random.choice(end.uris)
        if uri.is_local:
            principal = await open_principal(place.broker, place.backends, uri)
            source = self._shovel.source
            if isinstance(self._source, LocalSource) and (self._source.uri.vhost, source.queue) == (
                uri.vhost,
                end.queue,
            ):
                raise EndFault(format_text(f"queue '{end.queue}' is source and destination"))
            confirms = self._confirms
            return await answered(
                lambda: LocalDestination(place.broker, principal, uri, end, self, place.max_message_size, confirms)
            )
        try:
            from leveret.broker.shovels.remote import RemoteDestination
        except ImportError:
            raise EndFault(format_text(_NO_CLIENT), is_refused=True) from None
        destination = RemoteDestination(uri, end, self, self._confirms)
        self._destination = destination
        await destination.open()
        return destination

    async def _close(self) -> None:
        """Close both ends; if neither has failed, after what is on its way has been confirmed."""
        flow = self._flow
        was_well, self._is_stopping = not self._ended.done(), True
        try:
            if was_well and flow.pending and self.progress.state == "running":
                self._drained.clear()
                with suppress(TimeoutError, asyncio.CancelledError):
                    await asyncio.wait_for(self._drained.wait(), _DRAIN_SECONDS)
            if flow.confirmed:
                self._settle()
        finally:
            self._ended.cancel()
            ends = self._source, self._destination
            self._source = self._destination = None
            self.progress.pending = 0
            await asyncio.gather(*(end.close() for end in ends if end is not None), return_exceptions=True)
            self._is_stopping = False

    # -- what its ends call -------------------------------------------------------------------------------

    def delivered(self, messages: Sequence[Delivered]) -> None:
        """Take messages from the source; see Owner."""
        flow = self._flow
        flow.backlog += messages
        flow.backlog_bytes += sum([len(message.body) for message in messages])
        if flow.expected is not None:
            flow.expected -= len(messages)
        self._schedule()

    def room(self) -> int:
        """Return how many further messages it takes; see Owner."""
        flow = self._flow
        if self._is_stopping or flow.backlog_bytes >= WINDOW_BYTES:
            return 0
        room = WINDOW - len(flow.backlog)
        return room if flow.expected is None else min(room, flow.expected)

    def answered(self, number: int, multiple: bool, accepted: bool) -> None:
        """Note the confirm or the refusal of a message; see Owner."""
        flow = self._flow
        numbers = [number]
        if multiple:
            numbers = []
            for each in flow.pending:
                if each > number:
                    break
                numbers.append(each)
        tags = [flow.pending.pop(each) for each in numbers if each in flow.pending]
        if accepted:
            flow.confirmed += tags
            self._settle_soon()
        elif tags:
            if not flow.refused:
                self._loop.call_later(_REFUSED_SECONDS, self._return_refused, flow)
            flow.refused += tags

    def writable(self) -> None:
        """Go on: the destination takes messages again; see Owner."""
        self._schedule()

    def failed(self, fault: EndFault) -> None:
        """End, because an end has failed; see Owner."""
        if not self._ended.done():
            self._ended.set_result(fault)

    # -- moving messages ----------------------------------------------------------------------------------

    def _schedule(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._forward)

    def _forward(self) -> None:
        """Publish what has been delivered, for a time slice."""
        self._is_scheduled = False
        destination, source = self._destination, self._source
        if destination is None or source is None or self._is_stopping or self._ended.done():
            return
        time_slice = self._place.broker.turn.slice()
        try:
            while self._flow.backlog and not destination.is_blocked:
                self._send(source, destination)
                if time_slice.is_over():
                    self._schedule()
                    break
            source.resume()
            self._end_if_done()
        except EndFault as fault:
            self.failed(fault)
        except AmqpFault as amqp_fault:
            self.failed(fault_of(amqp_fault))
        except Exception as error:
            log.exception("internal error in shovel '%s'", self.name)
            self.failed(EndFault(format_text(f"internal error: {type(error).__name__}")))

    def _send(self, source: Source, destination: Destination) -> None:
        """Publish some messages."""
        flow, rewriter, progress = self._flow, self._rewriter, self.progress
        assert rewriter is not None
        taken, size = [], 0
        most = _STEP if progress.remaining is None else min(_STEP, progress.remaining)
        for message in islice(flow.backlog, most):
            taken.append(message)
            size += len(message.body)
            if size >= _STEP_BYTES:
                break
        if not taken:
            # More has been delivered than it should move.
            flow.backlog.clear()
            return
        messages = [rewriter.rewrite(message) for message in taken]
        first, flow.number = flow.number, flow.number + len(taken)
        if self._confirms:
            flow.pending.update((number, message.tag) for number, message in enumerate(taken, first))
        destination.publish(first, messages)
        for _ in taken:
            flow.backlog.popleft()
        flow.backlog_bytes -= size
        progress.forwarded += len(taken)
        progress.pending = len(flow.pending)
        if progress.remaining is not None:
            progress.remaining -= len(taken)
        if not self._confirms:
            source.settle([message.tag for message in taken])

    def _settle_soon(self) -> None:
        if not self._is_settling:
            self._is_settling = True
            self._loop.call_soon(self._settle)

    def _settle(self) -> None:
        """Acknowledge what the destination has confirmed."""
        self._is_settling = False
        flow, source = self._flow, self._source
        tags, flow.confirmed = sorted(flow.confirmed), []
        self.progress.pending = len(flow.pending)
        if source is None or not tags:
            return
        source.settle(tags)
        if not flow.pending:
            self._drained.set()
        self._end_if_done()

    def _return_refused(self, flow: _Flow) -> None:
        """Return what the destination has refused, so that it is delivered again."""
        tags, flow.refused = sorted(flow.refused), []
        if flow is not self._flow or self._source is None or not tags:
            return
        if flow.expected is not None:
            flow.expected += len(tags)
        if self.progress.remaining is not None:
            self.progress.remaining += len(tags)
        self.progress.forwarded -= len(tags)
        self._source.give_back(tags)

    def _end_if_done(self) -> None:
        flow = self._flow
        is_done = self.progress.remaining == 0 and not (flow.pending or flow.confirmed or flow.refused)
        if is_done and not self._ended.done():
            self._ended.set_result(None)


# -- changing messages: exchange and routing key, properties, and the headers that say where they were ------------


class Rewriter:
    """Changes messages.

    Args:
        shovel: What is changed.
        way: What the header ``x-shovelled`` says: where the messages come from and go to.
        seconds: Returns the time in seconds since 1970.
    """

    def __init__(self, shovel: Shovel, way: Mapping[str, str], seconds: Callable[[], int]) -> None:
        end = shovel.destination
        self._key = None if end.key is None else encode_shortstr(end.key)
        if end.queue is not None:
            self._exchange: bytes | None = encode_shortstr("")
            self._key = encode_shortstr(end.queue)
        else:
            self._exchange = None if end.exchange is None else encode_shortstr(end.exchange)
        self._properties = {_FLAG_OF[name]: _encode(name, value) for name, value in shovel.properties.items()}
        table = tuple((key, longstr(value)) for key, value in way.items())
        self._way = FieldValue("F", table) if shovel.adds_forward_headers else None
        self._seconds = seconds if shovel.adds_timestamp else None
        self._changes = bool(self._properties or self._way is not None or self._seconds is not None)
        # Messages in a row often have the same header.
        self._last: tuple[bytes, int] = b"", 0
        self._header = b""

    def rewrite(self, message: Delivered) -> Outgoing:
        """Return a message as it goes to the destination.

        Raises:
            ConnectionFault: Its properties cannot be decoded.
        """
        route = message.route
        if self._exchange is not None or self._key is not None:
            split = 1 + route[0]
            exchange = route[:split] if self._exchange is None else self._exchange
            route = exchange + (route[split:] if self._key is None else self._key)
        header = self._rewrite_header(message.header) if self._changes else message.header
        return Outgoing(route, header, message.body)

    def _rewrite_header(self, header: bytes) -> bytes:
        now = 0 if self._seconds is None else self._seconds()
        if self._last != (header, now):
            self._last, self._header = (header, now), self._new_header(header, now)
        return self._header

    def _new_header(self, header: bytes, now: int) -> bytes:
        read, changes = Properties(header), dict(self._properties)
        headers = read.headers()
        if self._way is not None:
            before = find(headers, _FORWARDED)
            earlier = before.value if before is not None and before.kind == "A" else ()
            headers = _with(headers, _FORWARDED, FieldValue("A", (self._way, *earlier)))
        if self._seconds is not None:
            headers = _with(headers, _TIMESTAMP, FieldValue("l", now))
        if self._way is not None or self._seconds is not None:
            changes[HEADERS] = encode_headers(normalize(headers))
        return read.replaced(changes)


def _with(headers: FieldTable, name: str, value: FieldValue) -> FieldTable:
    """Return headers with another one, sorted as RabbitMQ does."""
    return tuple(sorted((*(entry for entry in headers if entry[0] != name), (name, value)), key=lambda entry: entry[0]))


def _encode(name: str, value: Any) -> bytes:
    if name in _OCTETS:
        return bytes((min(255, max(0, int(value))),))
    return int(value).to_bytes(8, "big", signed=value < 0) if name == "timestamp" else encode_text(value)
