"""The session layer of a broker without sockets or real time, and a client that exchanges bytes with it."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable
from typing import Any, cast

from pamqp import commands

from leveret.broker.auth.accounts import Accounts
from leveret.broker.auth.backends.chain import AuthBackends
from leveret.broker.config.options import Settings
from leveret.broker.core.broker import Broker
from leveret.broker.core.resources.memory import MemoryMonitor
from leveret.broker.core.resources.memory_checks import MemoryChecks, Pager
from leveret.broker.core.scheduling.turn import Turn
from leveret.broker.session.connection import Connection, OpenConnections
from leveret.broker.session.shared_state import Server
from tests.support import content, methods
from tests.support.manual_loop import ManualLoop
from tests.support.memory_transport import MemoryTransport
from tests.support.methods import Method, MethodType
from tests.support.queues import ManualTimers
from tests.support.simulated_stores import simulated_stores
from tests.support.transport import BODY, HEADER, METHOD, PROTOCOL_HEADER, Frame, frame

#: As much as uvloop reads at once.
_READ_BYTES = 256_000
#: Bytes of memory that no test uses.
_MEMORY_LIMIT = 1 << 60
#: Capabilities of current client libraries.
CAPABILITIES = ("authentication_failure_close", "connection.blocked", "consumer_cancel_notify")


class MemoryBroker:
    """A broker with the vhost / and the user guest, on a ManualLoop."""

    def __init__(self, slice_clock: Callable[[], int] = lambda: 0, **settings: Any) -> None:
        self.loop = ManualLoop()
        turn, timers = Turn(self.loop.call_soon, clock=slice_clock), ManualTimers(self.loop)
        self.broker = Broker(turn, timers, stores=simulated_stores(turn, timers))
        self.vhost = self.broker.add_vhost("/")
        self.accounts = Accounts(("guest",))
        self.accounts.add_user("guest", "guest", ("administrator",))
        self.accounts.set_permissions("guest", "/", ".*", ".*", ".*")
        monitor = MemoryMonitor(self.broker.alarms, _MEMORY_LIMIT, self.loop.time)
        self.memory_checks = MemoryChecks(monitor, Pager(self.broker.backings, _MEMORY_LIMIT), self.loop.loop)
        self.server = Server(
            Settings(**settings), self.broker, AuthBackends(self.accounts), self.memory_checks, self.loop.loop
        )
        self.connections = OpenConnections()

    def connect(self, **extra: Any) -> MemoryClient:
        """Return a connected client that has sent nothing."""
        return MemoryClient(self, extra)

    def open(self, **handshake: Any) -> MemoryClient:
        """Return a client that has opened the vhost; for the arguments see `MemoryClient.open`."""
        client = self.connect()
        client.open(**handshake)
        return client


class MemoryClient:
    """The client's end of a connection."""

    def __init__(self, broker: MemoryBroker, extra: dict[str, Any]) -> None:
        self._broker = broker
        self.connection = Connection(broker.server, broker.connections)
        addresses = {"peername": ("127.0.0.1", 50001), "sockname": ("127.0.0.1", 5672)}
        self.transport = MemoryTransport(broker.loop, addresses | extra)
        self.transport.set_protocol(cast("asyncio.Protocol", self.connection))

    # -- sending -------------------------------------------------------------------------------------------

    def feed(self, octets: bytes | memoryview) -> None:
        """Pass bytes to the server in pieces as long as one read; do not end the turn."""
        while octets and not self.transport.closed:
            assert self.transport.reading, "the server does not read"
            piece, octets = octets[:_READ_BYTES], octets[_READ_BYTES:]
            self.connection.data_received(bytes(piece))

    def send(self, *frames: bytes) -> None:
        """Pass frames to the server at once, and end the turn."""
        self.feed(b"".join(frames))
        self._broker.loop.run()

    def call(self, channel: int, kind: MethodType, **arguments: Any) -> list[Method]:
        """Send a method and return the methods received, on any channel."""
        self.send(method(channel, kind, **arguments))
        return self.methods()

    def abort(self) -> None:
        """Drop the connection without connection.close."""
        self.transport.lose()
        self._broker.loop.run()

    # -- receiving -----------------------------------------------------------------------------------------

    def frames(self) -> list[Frame]:
        """Return the frames received since the last call."""
        data, found, at = self.transport.take(), [], 0
        while at < len(data):
            kind, channel, size = struct.unpack_from(">BHI", data, at)
            assert data[at + 7 + size] == 0xCE, data[at:]
            found.append(Frame(kind, channel, data[at + 7 : at + 7 + size]))
            at += size + 8
        assert at == len(data), "an incomplete frame was written"
        return found

    def methods(self) -> list[Method]:
        """Return the methods received since the last call, without contents and heartbeats."""
        return [methods.parse(each.payload) for each in self.frames() if each.type == METHOD]

    def only(self, kind: MethodType) -> Method:
        """Return the only method received since the last call; assert that it is of this kind."""
        received = self.methods()
        assert [each.kind for each in received] == [kind], received
        return received[0]

    # -- the handshake -------------------------------------------------------------------------------------

    def open(
        self,
        *,
        capabilities: tuple[str, ...] = CAPABILITIES,
        heartbeat: int = 0,
        frame_max: int = 131_072,
        channel_max: int = 2047,
        channels: int = 1,
    ) -> None:
        """Open the vhost /, and channels 1 to `channels`."""
        self.send(PROTOCOL_HEADER, start_ok(capabilities=capabilities))
        self.send(tune_ok(channel_max, frame_max, heartbeat), method(0, commands.Connection.Open, virtual_host="/"))
        received = [each.kind for each in self.methods()]
        assert received == [commands.Connection.Start, commands.Connection.Tune, commands.Connection.OpenOk]
        for number in range(1, channels + 1):
            assert [each.kind for each in self.call(number, commands.Channel.Open)] == [commands.Channel.OpenOk]


def method(channel: int, kind: MethodType, **arguments: Any) -> bytes:
    """Return a method frame, by pamqp's class and argument names."""
    return frame(METHOD, channel, methods.payload(kind, **arguments))


def kinds(received: list[Method]) -> list[Any]:
    """Return pamqp's classes of methods."""
    return [each.kind for each in received]


def start_ok(
    *,
    mechanism: str = "PLAIN",
    response: bytes = b"\0guest\0guest",
    capabilities: tuple[str, ...] = CAPABILITIES,
) -> bytes:
    """Return a connection.start-ok frame."""
    flags = [(name, "t", 1) for name in capabilities]
    return method(
        0,
        commands.Connection.StartOk,
        client_properties=[("product", "S", "test"), ("capabilities", "F", flags)],
        mechanism=mechanism,
        response=response,
        locale="en_US",
    )


def tune_ok(channel_max: int = 2047, frame_max: int = 131_072, heartbeat: int = 0) -> bytes:
    """Return a connection.tune-ok frame."""
    limits = {"channel_max": channel_max, "frame_max": frame_max, "heartbeat": heartbeat}
    return method(0, commands.Connection.TuneOk, **limits)


def publish(
    channel: int,
    routing_key: str,
    body: bytes = b"",
    *,
    exchange: str = "",
    mandatory: bool = False,
    frame_max: int = 131_072,
    **properties: Any,
) -> bytes:
    """Return the frames of a message."""
    route = {"exchange": exchange, "routing_key": routing_key, "mandatory": mandatory}
    out = method(channel, commands.Basic.Publish, **route)
    out += frame(HEADER, channel, content.header(len(body), content.properties(**properties)))
    chunk = frame_max - 8
    return out + b"".join(frame(BODY, channel, body[at : at + chunk]) for at in range(0, len(body), chunk))


#: A client's connection.close, and its answer to one.
CLOSE = method(0, commands.Connection.Close, reply_code=200, reply_text="bye", class_id=0, method_id=0)
CLOSE_OK = method(0, commands.Connection.CloseOk)
