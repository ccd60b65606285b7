"""Another broker as the end of a shovel.

aiormq opens the connection and keeps it: TCP and TLS, login, heartbeats. Channel 1 is read and written here, with the
broker's own codec: so the types of headers stay as they are, names may be any that RabbitMQ allows, and a message costs
some microseconds.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
import struct
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from aiormq import Connection
from aiormq.connection import TransportFactory
from aiormq.exceptions import AMQPError
from yarl import URL

from leveret.broker.core.json_values import table_from_json
from leveret.broker.core.vhosts.topology import generate_name
from leveret.broker.shovels.ends import WINDOW, Delivered, EndFault, Outgoing, Owner
from leveret.policies.amqp_uri import AmqpUri
from leveret.policies.shovel import Shovel, ShovelEnd
from leveret.protocol.constants import (
    FRAME_BODY,
    FRAME_END,
    FRAME_HEAD_SIZE,
    FRAME_HEADER,
    FRAME_HEARTBEAT,
    FRAME_METHOD,
    FRAME_OVERHEAD,
)
from leveret.protocol.erlang_terms import format_text, format_tuple
from leveret.protocol.faults import ReplyCode
from leveret.protocol.methods import INDEX, METHODS, ack_head, decode_arguments, encode_ack, encode_method

#: aiormq's exceptions say the same.
logging.getLogger("aiormq").setLevel(logging.CRITICAL)

_CHANNEL: Final = 1
#: Seconds to wait for an answer, and for the end of a connection.
_ANSWER_SECONDS: Final = 60
_CLOSE_SECONDS: Final = 2
_HEARTBEAT_SECONDS: Final = 30
#: Value of the parameter server_name_indication that also means that the name is not checked.
_NO_NAME: Final = "disable"
#: Seconds after which aiormq is told that the other broker is alive, if it has only sent messages.
_ALIVE_SECONDS: Final = 5
_HEAD: Final = struct.Struct(">BHI")
_U64: Final = struct.Struct(">Q")
_END: Final = bytes((FRAME_END,))
_HEARTBEAT: Final = _HEAD.pack(FRAME_HEARTBEAT, 0, 0) + _END
_DELIVER: Final = INDEX["basic.deliver"].to_bytes(4, "big")
_ACK: Final = INDEX["basic.ack"].to_bytes(4, "big")
_NACK: Final = INDEX["basic.nack"].to_bytes(4, "big")
_RETURN: Final = INDEX["basic.return"].to_bytes(4, "big")
_PUBLISH: Final = INDEX["basic.publish"].to_bytes(4, "big") + bytes(2)
_BLOCKED: Final = INDEX["connection.blocked"]
_UNBLOCKED: Final = INDEX["connection.unblocked"]
_CONNECTION_CLOSE: Final = INDEX["connection.close"]
_CHANNEL_CLOSE: Final = INDEX["channel.close"]
_CANCEL: Final = INDEX["basic.cancel"]
#: Offsets in the payload of basic.deliver: length of the consumer tag. In that of acks: delivery tag and bits.
_TAG_LENGTH_AT: Final = 4
_NUMBER_AT: Final = 4
_BITS_AT: Final = 12


class _ChannelClosed(EndFault):
    """The other broker has closed the channel.

    Args:
        code: The reply code.
    """

    def __init__(self, code: int, text: str) -> None:
        super().__init__(format_text(text))
        self.code = code


class _Stream(asyncio.StreamReaderProtocol):
    """The connection's bytes: those of channel 0 go to aiormq."""

    def __init__(self, reader: asyncio.StreamReader, channel: RemoteChannel) -> None:
        super().__init__(reader)
        self._channel = channel

    def data_received(self, data: bytes) -> None:
        for octets in self._channel.received(data):
            super().data_received(octets)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._channel.is_full = True

    def resume_writing(self) -> None:
        super().resume_writing()
        self._channel.is_full = False
        self._channel.owner.writable()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._channel.lost()


class RemoteChannel(TransportFactory):
    """A connection to another broker, with one channel.

    Attributes:
        uri: Which broker it is.
        owner: The shovel.
        is_blocked: Whether the other broker has blocked the connection, or its socket is full.
        is_full: Whether the socket is full.
    """

    def __init__(self, uri: AmqpUri, owner: Owner) -> None:
        self.uri = uri
        self.owner = owner
        self.is_full = False
        self._is_blocked = False
        self._connection: Connection | None = None
        self._transport: asyncio.Transport | None = None
        self._reader: asyncio.StreamReader | None = None
        self._frame_max = 0
        self._rest = b""
        self._is_begun = False
        self._alive_at = 0.0
        #: Reply code and text of connection.close.
        self._closed: tuple[int, str] | None = None
        self._is_closing = False
        self._answer: asyncio.Future[tuple[Any, ...]] | None = None

    @property
    def is_blocked(self) -> bool:
        """See above."""
        return self._is_blocked or self.is_full

    # -- the connection -----------------------------------------------------------------------------------

    async def connect(self) -> None:
        """Open the connection and the channel.

        Raises:
            EndFault: The other broker cannot be reached, or refuses.
        """
        uri, parameters = self.uri, self.uri.parameters
        query = {"heartbeat": parameters.get("heartbeat", str(_HEARTBEAT_SECONDS))}
        query["auth"] = parameters.get("auth_mechanism", "plain")
        user, password = (uri.user, uri.password or "") if uri.user is not None else ("guest", "guest")
        scheme = "amqps" if uri.encrypted else "amqp"
        url = URL.build(
            scheme=scheme, user=user, password=password, host=uri.host, port=uri.port, path="/", query=query
        )
        properties: dict[str, Any] = {"connection_name": f"Shovel {self.owner.name}", "product": "Leveret"}
        connection = Connection(url, transport_factory=self, client_properties=properties)
        connection.vhost = uri.vhost
        seconds = int(parameters.get("connection_timeout", 1000 * _ANSWER_SECONDS)) / 1000
        try:
            async with asyncio.timeout(seconds):
                await connection.connect()
        except (OSError, AMQPError, ValueError) as error:
            said = f"timed out after {seconds:g} s" if isinstance(error, TimeoutError) else str(error)
            raise EndFault(format_text(f"{uri.shown}: {said or type(error).__name__}"), is_refused=True) from None
        finally:
            self._connection = connection
        self._frame_max = connection.connection_tune.frame_max or 1 << 31
        await self._open_channel()

    async def create(self, url: URL, **kwargs: Any) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Connect to the other broker; called by aiormq."""
        loop, uri = asyncio.get_running_loop(), self.uri
        context = await asyncio.to_thread(_make_tls, uri) if uri.encrypted else None
        name = uri.parameters.get("server_name_indication", uri.host) if context is not None else None
        name = uri.host if name == _NO_NAME else name
        reader = self._reader = asyncio.StreamReader()
        transport, protocol = await loop.create_connection(
            lambda: _Stream(reader, self), uri.host, uri.port, ssl=context, server_hostname=name
        )
        self._transport = transport
        return reader, asyncio.StreamWriter(transport, protocol, reader, loop)

    async def close(self) -> None:
        """Close the connection; see End."""
        self._is_closing = True
        connection, transport = self._connection, self._transport
        if transport is not None and not transport.is_closing() and connection is not None:
            with suppress(Exception):
                async with asyncio.timeout(_CLOSE_SECONDS):
                    await connection.close()
        if transport is not None:
            transport.abort()

    def abort(self) -> None:
        """Drop the connection at once."""
        self._is_closing = True
        if self._transport is not None:
            self._transport.abort()

    def lost(self) -> None:
        """Note the end of the connection."""
        reason = "socket_closed_unexpectedly"
        if self._closed is not None:
            code, text = self._closed
            reason = format_tuple("shutdown", format_tuple("server_initiated_close", str(code), format_text(text)))
        self._fail(EndFault(reason))

    def _fail(self, fault: EndFault) -> None:
        answer, self._answer = self._answer, None
        if answer is not None and not answer.done():
            answer.set_exception(fault)
        elif not self._is_closing:
            self.owner.failed(fault)

    # -- frames -------------------------------------------------------------------------------------------

    def received(self, data: bytes) -> list[bytes]:
        """Handle the frames of the channel; return those of channel 0."""
        if not self._is_begun and data.startswith(b"AMQP"):
            # It speaks another version.
            return [data]
        self._is_begun = True
        if self._rest:
            data = self._rest + data
        at, end = 0, len(data)
        others: list[bytes] = []
        while end - at >= FRAME_OVERHEAD:
            kind, channel, size = _HEAD.unpack_from(data, at)
            stop = at + size + FRAME_OVERHEAD
            if stop > end:
                break
            if channel:
                self._read(kind, data[at + FRAME_HEAD_SIZE : stop - 1])
            else:
                others.append(data[at:stop])
                if kind == FRAME_METHOD:
                    self._look(data[at + FRAME_HEAD_SIZE : stop - 1])
            at = stop
        self._rest = data[at:]
        now = asyncio.get_running_loop().time()
        if others:
            self._alive_at = now
        elif now - self._alive_at >= _ALIVE_SECONDS:
            self._alive_at = now
            others.append(_HEARTBEAT)
        self._read_all()
        return others

    def _look(self, payload: bytes) -> None:
        """Note what a method on channel 0 says."""
        index = int.from_bytes(payload[:4], "big")
        if index in (_BLOCKED, _UNBLOCKED):
            self._is_blocked = index == _BLOCKED
            if not self._is_blocked:
                self.owner.writable()
        elif index == _CONNECTION_CLOSE:
            code, text, *_ = decode_arguments(METHODS[index], payload[4:])
            self._closed = code, text

    def _read(self, kind: int, payload: bytes) -> None:
        """Handle a frame of the channel."""
        if kind == FRAME_METHOD:
            self._read_method(payload)

    def _read_method(self, payload: bytes) -> None:
        index = int.from_bytes(payload[:4], "big")
        arguments = decode_arguments(METHODS[index], payload[4:])
        if index == _CHANNEL_CLOSE:
            self.write(encode_method(_CHANNEL, INDEX["channel.close-ok"]))
            self._fail(_ChannelClosed(arguments[0], arguments[1]))
        elif index == _CANCEL:
            self._fail(EndFault(format_text("the consumer was cancelled: its queue was deleted")))
        elif self._answer is not None and not self._answer.done():
            self._answer.set_result(arguments)

    def _read_all(self) -> None:
        """Note that all frames that have come have been handled."""

    def write(self, octets: bytes) -> None:
        """Send bytes; nothing on a connection that has ended, of which lost() tells."""
        assert self._transport is not None
        # Raised behind write_eof() and close(): what is confirmed now cannot be acknowledged, and comes again.
        with suppress(RuntimeError):
            self._transport.write(octets)

    async def call(self, method: str, *arguments: Any) -> tuple[Any, ...]:
        """Send a method; return the arguments of its answer.

        Raises:
            EndFault: It is refused, or not answered.
        """
        try:
            octets = encode_method(_CHANNEL, INDEX[method], *arguments)
        except ValueError as error:
            raise EndFault(format_text(f"{method}: {error}")) from None
        answer: asyncio.Future[tuple[Any, ...]] = asyncio.get_running_loop().create_future()
        self._answer = answer
        self.write(octets)
        try:
            async with asyncio.timeout(_ANSWER_SECONDS):
                return await answer
        except TimeoutError:
            raise EndFault(format_text(f"{method} was not answered for {_ANSWER_SECONDS} s")) from None
        finally:
            self._answer = None

    async def _open_channel(self) -> None:
        await self.call("channel.open", "")

    async def open_queue(self, end: ShovelEnd) -> int:
        """Find the queue of an end, or declare it if it does not exist; return how many messages it has.

        Raises:
            EndFault: It is refused.
        """
        try:
            found = await self.call("queue.declare", 0, end.queue, True, False, False, False, False, ())
        except _ChannelClosed as closed:
            if closed.code != ReplyCode.NOT_FOUND or end.predeclared:
                raise
            await self._open_channel()
            table = table_from_json(end.arguments)
            found = await self.call("queue.declare", 0, end.queue, False, True, False, False, False, table)
        return int(found[1])


class RemoteSource(RemoteChannel):
    """A queue of another broker; see Source."""

    def __init__(self, uri: AmqpUri, shovel: Shovel, owner: Owner) -> None:
        super().__init__(uri, owner)
        self.message_count = 0
        self._shovel = shovel
        self._no_ack = shovel.ack_mode == "no-ack"
        self._queue = shovel.source.queue or ""
        self._ack_head = ack_head(_CHANNEL)
        #: Delivery tags that are not settled, in order.
        self._unsettled: OrderedDict[int, None] = OrderedDict()
        self._batch: list[Delivered] = []
        # The message of which not everything has come.
        self._tag = self._missing = 0
        self._route = self._header = b""
        self._parts: list[bytes] = []
        self._is_paused = False

    async def open(self) -> None:
        """Connect, and find the queue or make one of its own.

        Raises:
            EndFault: It is refused.
        """
        await self.connect()
        end = self._shovel.source
        if end.queue is not None:
            self.message_count = await self.open_queue(end)
            return
        declared = await self.call("queue.declare", 0, "", False, False, True, False, False, ())
        self._queue = declared[0]
        await self.call("queue.bind", 0, self._queue, end.exchange, end.key or "", False, ())

    async def consume(self, arguments: Mapping[str, Any]) -> None:
        """Begin to deliver messages; see Source."""
        shovel, tag = self._shovel, generate_name("amq.ctag")
        await self.call("basic.qos", 0, min(shovel.prefetch or WINDOW, 65_535), False)
        flags = False, self._no_ack, False, False
        await self.call("basic.consume", 0, self._queue, tag, *flags, table_from_json(arguments))

    def _read(self, kind: int, payload: bytes) -> None:
        if kind == FRAME_BODY:
            self._parts.append(payload)
            self._missing -= len(payload)
        elif kind == FRAME_HEADER:
            self._header, self._parts = payload, []
            self._missing = _U64.unpack_from(payload, 4)[0]
        elif payload[:4] == _DELIVER:
            tag_at = _TAG_LENGTH_AT + 1 + payload[_TAG_LENGTH_AT]
            self._tag = _U64.unpack_from(payload, tag_at)[0]
            # Behind the bit that says whether it is redelivered.
            self._route = payload[tag_at + 9 :]
            return
        else:
            self._read_method(payload)
            return
        if self._missing <= 0:
            body = self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)
            self._batch.append(Delivered(self._tag, self._route, self._header, body))
            self._parts = []

    def _read_all(self) -> None:
        batch, self._batch = self._batch, []
        if not batch:
            return
        if not self._no_ack:
            self._unsettled.update(dict.fromkeys([message.tag for message in batch]))
        self.owner.delivered(batch)
        if self.owner.room() <= 0 and not self._is_paused and self._transport is not None:
            # The prefetch count limits messages, not bytes.
            self._is_paused = True
            self._transport.pause_reading()
            self._keep_alive()

    def _keep_alive(self) -> None:
        """Tell aiormq that the other broker is alive, which it cannot see while nothing is read."""
        if self._is_paused and self._reader is not None and not self._is_closing:
            self._reader.feed_data(_HEARTBEAT)
            asyncio.get_running_loop().call_later(_ALIVE_SECONDS, self._keep_alive)

    async def close(self) -> None:
        """Read again, for the answer, and close the connection; see End."""
        if self._is_paused and self._transport is not None:
            self._is_paused = False
            self._transport.resume_reading()
        await super().close()

    def settle(self, tags: Sequence[int]) -> None:
        """Acknowledge messages; see Source."""
        self._answer_tags(tags, lambda tag, multiple: encode_ack(self._ack_head, tag, multiple))

    def give_back(self, tags: Sequence[int]) -> None:
        """Return messages to the queue; see Source."""
        nack = INDEX["basic.nack"]
        self._answer_tags(tags, lambda tag, multiple: encode_method(_CHANNEL, nack, tag, multiple, True))

    def _answer_tags(self, tags: Sequence[int], encode: Any) -> None:
        if self._no_ack or not tags:
            return
        unsettled = self._unsettled
        for tag in tags:
            del unsettled[tag]
        if not unsettled or next(iter(unsettled)) > tags[-1]:
            self.write(encode(tags[-1], True))
        else:
            self.write(b"".join([encode(tag, False) for tag in tags]))

    def resume(self) -> None:
        """Deliver again; see Source."""
        if self._is_paused and self._transport is not None and self.owner.room() > 0:
            self._is_paused = False
            self._transport.resume_reading()


class RemoteDestination(RemoteChannel):
    """The exchanges of another broker; see Destination.

    Args:
        confirms: Whether the owner waits for confirms.
    """

    def __init__(self, uri: AmqpUri, end: ShovelEnd, owner: Owner, confirms: bool) -> None:
        super().__init__(uri, owner)
        self._end = end
        self._confirms = confirms
        # Without confirms nothing could be moved again: it has left the source.
        is_mandatory = confirms and end.queue is not None
        #: The bits of basic.publish.
        self._bits = b"\1" if is_mandatory else b"\0"
        self._has_returned = False
        self._last_route = b""
        self._method = b""

    async def open(self) -> None:
        """Connect, and find the queue if there is one.

        Raises:
            EndFault: It is refused.
        """
        await self.connect()
        if self._end.queue is not None:
            await self.open_queue(self._end)
        if self._confirms:
            await self.call("confirm.select", False)

    def _read(self, kind: int, payload: bytes) -> None:
        if self._has_returned:
            # The confirm that follows is of a message that is in no queue.
            return
        if payload[:4] == _ACK and kind == FRAME_METHOD:
            self.owner.answered(_U64.unpack_from(payload, _NUMBER_AT)[0], bool(payload[_BITS_AT] & 1), accepted=True)
        elif payload[:4] == _NACK and kind == FRAME_METHOD:
            self.owner.answered(_U64.unpack_from(payload, _NUMBER_AT)[0], bool(payload[_BITS_AT] & 1), accepted=False)
        elif payload[:4] == _RETURN and kind == FRAME_METHOD:
            self._has_returned = True
            self._fail(EndFault(format_text(f"queue '{self._end.queue}' was deleted")))
        else:
            super()._read(kind, payload)

    def publish(self, first: int, messages: Sequence[Outgoing]) -> None:
        """Publish messages; see Destination."""
        parts: list[bytes] = []
        largest = self._frame_max - FRAME_OVERHEAD
        for route, header, body in messages:
            if route != self._last_route:
                self._last_route = route
                arguments = _PUBLISH + route + self._bits
                self._method = _HEAD.pack(FRAME_METHOD, _CHANNEL, len(arguments)) + arguments + _END
            parts += (self._method, _HEAD.pack(FRAME_HEADER, _CHANNEL, len(header)), header, _END)
            for at in range(0, len(body), largest):
                part = body if len(body) <= largest else body[at : at + largest]
                parts += (_HEAD.pack(FRAME_BODY, _CHANNEL, len(part)), part, _END)
        self.write(b"".join(parts))


def _make_tls(uri: AmqpUri) -> ssl.SSLContext:
    """Return the TLS configuration of a URI: the other broker's certificate is checked unless it says otherwise.

    Raises:
        OSError: A file cannot be used.
    """
    parameters = uri.parameters
    context = ssl.create_default_context(cafile=parameters.get("cacertfile"))
    is_unchecked = parameters.get("verify") == "verify_none"
    if is_unchecked or parameters.get("server_name_indication") == _NO_NAME:
        context.check_hostname = False
    if is_unchecked:
        context.verify_mode = ssl.CERT_NONE
    if "certfile" in parameters:
        context.load_cert_chain(parameters["certfile"], parameters.get("keyfile"), parameters.get("password"))
    return context
