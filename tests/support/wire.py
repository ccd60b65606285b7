"""A small synchronous AMQP 0-9-1 client for black-box tests, with control of every byte that it sends."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from pamqp import commands

from tests.support import methods
from tests.support.channel import Channel
from tests.support.events import ChannelClosed, Confirm, ConnectionClosed, Delivery, ReplyClosed, Returned
from tests.support.methods import Method, MethodType
from tests.support.tables import Triple
from tests.support.transport import (
    BODY,
    DEFAULT_TIMEOUT,
    HEADER,
    HEARTBEAT,
    METHOD,
    PROTOCOL_HEADER,
    Address,
    ConnectionDropped,
    Frame,
    Wire,
    frame,
    method_frame,
    parse_url,
    raw_connect,
    silent_close_times,
)

__all__ = [
    "ALL_CAPABILITIES", "BODY", "DEFAULT_TIMEOUT", "HEADER", "HEARTBEAT", "METHOD", "PROTOCOL_HEADER", "Address",
    "Channel", "ChannelClosed", "Confirm", "Connection", "ConnectionClosed", "ConnectionDropped", "Delivery", "Frame",
    "Method", "ReplyClosed", "Returned", "Wire", "frame", "method_frame", "parse_url", "plain_response",
    "raw_connect", "silent_close_times", "start_ok",
]  # fmt: skip

ALL_CAPABILITIES: Mapping[str, bool] = {
    "authentication_failure_close": True,
    "basic.nack": True,
    "connection.blocked": True,
    "consumer_cancel_notify": True,
    "exchange_exchange_bindings": True,
    "publisher_confirms": True,
}


def plain_response(user: str, password: str) -> bytes:
    """Build the SASL PLAIN response."""
    return b"\0" + user.encode() + b"\0" + password.encode()


def start_ok(
    wire: Wire,
    *,
    mechanism: str = "PLAIN",
    response: bytes = b"\0guest\0guest",
    capabilities: Mapping[str, bool] | None = None,
    properties: Sequence[Triple] = (),
) -> None:
    """Send connection.start-ok with a capabilities table (default: all) and further client properties."""
    declared = ALL_CAPABILITIES if capabilities is None else capabilities
    flags: list[Triple] = [(name, "t", int(value)) for name, value in declared.items()]
    wire.send_method(
        0,
        commands.Connection.StartOk,
        client_properties=[*properties, ("capabilities", "F", flags)],
        mechanism=mechanism,
        response=response,
        locale="en_US",
    )


class Connection:
    """An open connection; a context manager that closes it with connection.close."""

    def __init__(
        self,
        url: str,
        *,
        user: str | None = None,
        password: str | None = None,
        vhost: str | None = None,
        capabilities: Mapping[str, bool] | None = None,
        client_properties: Sequence[Triple] = (),
        heartbeat: int = 0,
        frame_max: int | None = None,
        channel_max: int | None = None,
        timeout: float = DEFAULT_TIMEOUT,
        mechanism: str = "PLAIN",
        response: bytes | None = None,
    ) -> None:
        address = parse_url(url)
        if response is None:
            secret = address.password if password is None else password
            response = plain_response(user or address.user, secret)
        self.timeout = timeout
        self.channels: dict[int, Channel] = {}
        self.replies: deque[Method] = deque()
        self.blocked: str | None = None
        self.closed: ConnectionClosed | None = None
        self.heartbeats = 0
        self.frame_max = 4096
        self.wire = raw_connect(url, timeout=timeout)
        try:
            self.start = self.reply(commands.Connection.Start)
            start_ok(
                self.wire,
                mechanism=mechanism,
                response=response,
                capabilities=capabilities,
                properties=client_properties,
            )
            self.tune = self.reply(commands.Connection.Tune)
            self._tune(heartbeat, frame_max, channel_max)
            self.rpc(commands.Connection.Open, virtual_host=address.vhost if vhost is None else vhost)
        except BaseException:
            self.wire.abort()
            raise

    def _tune(self, heartbeat: int, frame_max: int | None, channel_max: int | None) -> None:
        self.frame_max = self.tune.frame_max if frame_max is None else frame_max
        self.wire.send_method(
            0,
            commands.Connection.TuneOk,
            channel_max=self.tune.channel_max if channel_max is None else channel_max,
            frame_max=self.frame_max,
            heartbeat=heartbeat,
        )

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    @property
    def name(self) -> str:
        """The connection's name in RabbitMQ's management: `CLIENT:PORT -> SERVER:PORT`."""
        (client, port), (server, server_port) = self.wire.socket.getsockname(), self.wire.socket.getpeername()
        return f"{client}:{port} -> {server}:{server_port}"

    # Receiving

    def read(self, timeout: float | None = None) -> None:
        """Read one frame and pass it to its channel, or handle it here if it is on channel 0."""
        if self.closed is not None:
            raise self.closed
        received = self.wire.read_frame(timeout)
        if received.type == HEARTBEAT:
            assert received == Frame(HEARTBEAT, 0, b"")
            self.heartbeats += 1
        elif received.channel:
            self.channels[received.channel].handle(received)
        else:
            assert received.type == METHOD, f"{received} on channel 0"
            self._handle_method(methods.parse(received.payload))

    def _handle_method(self, method: Method) -> None:
        if method.kind is commands.Connection.Close:
            self.closed = ConnectionClosed.of(method)
            self.wire.send_method(0, commands.Connection.CloseOk)
            raise self.closed
        if method.kind is commands.Connection.Blocked:
            self.blocked = method.reason
        elif method.kind is commands.Connection.Unblocked:
            self.blocked = None
        else:
            self.replies.append(method)

    def reply(self, *kinds: MethodType, timeout: float | None = None) -> Method:
        """Wait for the next reply on channel 0 and assert that it is one of `kinds`."""
        deadline = time.monotonic() + (self.timeout if timeout is None else timeout)
        while not self.replies:
            self.read(deadline - time.monotonic())
        method = self.replies.popleft()
        assert method.kind in kinds, f"one of {[kind.name for kind in kinds]} expected, got {method}"
        return method

    def rpc(self, kind: MethodType, **arguments: Any) -> Method:
        """Send a method on channel 0 and wait for the first reply that pamqp lists."""
        self.wire.send_method(0, kind, **arguments)
        return self.reply(getattr(commands.Connection, kind.valid_responses[0].split(".")[1]))

    # Channels

    def channel(self, number: int | None = None) -> Channel:
        """Open a channel, by default with the lowest number that this client does not use.

        A channel that the broker closed (and whose close-ok was sent) can be opened again by its number.
        """
        if number is None:
            number = next(n for n in range(1, 65536) if n not in self.channels)
        opened = self.attach(number)
        opened.rpc(commands.Channel.Open)
        return opened

    def attach(self, number: int) -> Channel:
        """Return a `Channel` for a number without sending channel.open."""
        self.channels[number] = attached = Channel(self, number)
        return attached

    def forget(self, channel: Channel) -> None:
        """Make the number of a closed channel free again."""
        if self.channels.get(channel.number) is channel:
            del self.channels[channel.number]

    # Closing

    def close(self, code: int = 200, text: str = "Normal shutdown") -> None:
        """Send connection.close, wait for close-ok and close TCP. Does nothing if the connection has ended."""
        try:
            if self.closed is None and self.wire.socket.fileno() >= 0:
                arguments = {"reply_code": code, "reply_text": text}
                self.wire.send_method(0, commands.Connection.Close, class_id=0, method_id=0, **arguments)
                self.replies.clear()
                self.reply(commands.Connection.CloseOk)
        except (ConnectionDropped, ConnectionClosed):
            pass
        finally:
            self.wire.abort()

    def abort(self) -> None:
        """Drop TCP without connection.close."""
        self.wire.abort()

    @contextmanager
    def expect_connection_close(
        self, code: int, text: str, ids: tuple[int, int] | MethodType | None = None
    ) -> Iterator[None]:
        """Assert that the broker sends this connection.close during the block or after it."""
        try:
            yield
            deadline = time.monotonic() + self.timeout
            while True:
                self.read(deadline - time.monotonic())
        except ConnectionClosed:
            pass
        assert self.closed is not None
        self.closed.check(code, text, ids)

    @contextmanager
    def expect_drop(self) -> Iterator[None]:
        """Assert that the broker closes TCP without a connection.close during the block or after it."""
        try:
            yield
            deadline = time.monotonic() + self.timeout
            while True:
                self.read(deadline - time.monotonic())
        except ConnectionDropped:
            pass
