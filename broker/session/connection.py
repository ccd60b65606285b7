"""AMQP connections: the asyncio protocol with socket, timers and connection state."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final, Literal, cast

from leveret.broker.addresses import connection_name, disable_delay, endpoints, reset
from leveret.broker.auth.accounts import User
from leveret.broker.auth.backend_interface import Refused
from leveret.broker.auth.backends.chain import LoginAttempt
from leveret.broker.core.clients import login_fields
from leveret.broker.core.events import BROKER, Actor
from leveret.broker.session.channel import Channel
from leveret.broker.session.channel_table import ChannelTable, method_of
from leveret.broker.session.handshake import Handshake, Refusal, UnknownProtocol
from leveret.broker.session.intake import Intake
from leveret.broker.session.output import Heartbeat, Output
from leveret.broker.session.peer_certificate import TlsSession, tls_session
from leveret.broker.session.shared_state import ChannelHost, Server
from leveret.broker.unfinished import Unanswered, Unfinished
from leveret.protocol.constants import PROTOCOL_HEADER
from leveret.protocol.faults import AmqpFault, ConnectionFault, ReplyCode, WireFault, encode_reply_text
from leveret.protocol.field_table import FieldTable
from leveret.protocol.frame_reader import (
    AckRun,
    ChannelFrames,
    Event,
    FrameReader,
    MethodReceived,
    PublishRun,
    VariedRun,
)
from leveret.protocol.methods import INDEX, encode_method
from leveret.protocol.proxy_header import ProxiedAddresses
from leveret.protocol.states import ConnectionInput, ConnectionState, next_connection_state

log = logging.getLogger("leveret.connection")

_CLOSE: Final = INDEX["connection.close"]
_CLOSE_OK: Final = INDEX["connection.close-ok"]
_UPDATE_SECRET: Final = INDEX["connection.update-secret"]
_UPDATE_SECRET_OK: Final = INDEX["connection.update-secret-ok"]

#: Looked up once: to get a member of an enum takes long, compared with the other work for an event.
_RUNNING: Final = ConnectionState.RUNNING

#: Maximum time for a client to close the socket after connection.close, in seconds.
_CLOSING_SECONDS: Final = 30.0
#: Delay before the socket is closed after a failed handshake or malformed input, in seconds.
_SILENCE_SECONDS: Final = 3.0
#: Maximum time for a client to read remaining output while the socket is closed, in seconds.
_LINGER_SECONDS: Final = 3.0


class OpenConnections:
    """All connections with an open socket, including those in the handshake.

    Attributes:
        all_closed: Set when no connection is open.
    """

    def __init__(self) -> None:
        self._open: set[Connection] = set()
        self.all_closed = asyncio.Event()
        self.all_closed.set()

    def __len__(self) -> int:
        return len(self._open)

    def __iter__(self) -> Iterator[Connection]:
        return iter(list(self._open))

    def channels(self) -> Iterator[Channel]:
        """Iterate over the channels of all connections."""
        for connection in self:
            if connection.is_open:
                yield from connection.channels

    def add(self, connection: Connection) -> None:
        """Add a connection."""
        self._open.add(connection)
        self.all_closed.clear()

    def remove(self, connection: Connection) -> None:
        """Remove a closed connection."""
        self._open.discard(connection)
        if not self._open:
            self.all_closed.set()


class Connection:
    """One client connection: what asyncio calls Protocol.

    It has the methods of that class and does not inherit from it, so that it can be compiled. A BufferedProtocol would
    cost more: it is called twice for each read, and its bytes have to be copied out of the buffer.

    Args:
        connections: All connections; this one is among them while its socket is open.
        proxied: Addresses from the PROXY protocol header; None to use those of the socket.

    Attributes:
        name: Addresses of both ends, as in RabbitMQ. Set by connection_made(), like peer, local, connected_at, tls,
            intake and output.
        peer: Address and port of the client.
        local: Address and port of the broker.
        connected_at: Time of the connect, in milliseconds since 1970.
        tls: The TLS session; None without TLS.
        intake: Input buffer.
        output: Output buffer.
        state: State of the connection.
        is_open: Whether a virtual host is open.
        reader: Frame reader.
        host: What the channels share. Set when the virtual host is opened, like channels, auth_mechanism,
            client_properties, username and vhost_name.
        channels: The open channels.
        auth_mechanism: The SASL mechanism of the login.
        client_properties: Client properties as received.
        username: Name of the user.
        vhost_name: Name of the virtual host.
        heartbeat: Negotiated heartbeat in seconds; 0 for none. Set by connection.tune-ok, like frame_max and
            channel_max.
        frame_max: Maximum frame size in bytes, including the frame header and end.
        channel_max: Maximum number of channels.
    """

    name: str
    peer: tuple[str, int]
    local: tuple[str, int]
    connected_at: int
    tls: TlsSession | None
    intake: Intake
    output: Output
    host: ChannelHost
    channels: ChannelTable
    auth_mechanism: str
    client_properties: FieldTable
    username: str
    vhost_name: str
    heartbeat: int
    frame_max: int
    channel_max: int
    _transport: asyncio.Transport
    _heartbeats: Heartbeat

    def __init__(self, server: Server, connections: OpenConnections, proxied: ProxiedAddresses | None = None) -> None:
        self._server = server
        self._connections = connections
        self._proxied = proxied
        self.state = ConnectionState.AWAIT_HEADER
        self.is_open = False
        self.reader = FrameReader(server.settings.max_message_size)
        self.reader.frame_max = server.settings.initial_frame_max
        self.reader.set_channel_frames(ChannelFrames.REFUSED)
        self._handshake: Handshake | None = None
        self._is_lost = False
        self._timer: asyncio.TimerHandle | None = None
        #: Ends the connection with its user's login.
        self._expiry: asyncio.TimerHandle | None = None
        #: What another server is asked, and what ends the use of its answers.
        self._question: asyncio.Task[None] | None = None
        self._forgetting: asyncio.TimerHandle | None = None
        self._renewal: LoginAttempt | None = None

    # -- socket -------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Set up the connection, and start the handshake timeout."""
        server, proxied = self._server, self._proxied
        self._transport = cast("asyncio.Transport", transport)
        if server.settings.tcp_listen_options.nodelay:
            disable_delay(transport)
        self.peer, self.local = endpoints(transport) if proxied is None else (proxied.peer, proxied.local)
        self.name = connection_name(self.peer, self.local)
        self.connected_at = server.broker.timers.now() // 1000
        self.tls = tls_session(transport)
        self.output = Output(server.broker.turn, self._transport)
        self._heartbeats = Heartbeat(server.loop, self.output, self.name)
        handle: Callable[[Event], None] = self.handle
        if server.interceptor is not None:
            handle = server.interceptor.wrap(self, handle)
        self.intake = Intake(self.name, server, self._transport, self.reader, self.output, self._heartbeats, handle)
        self._handshake = Handshake(server, self.peer, self.tls)
        self._connections.add(self)
        log.info("accepting AMQP connection %s", self.name)
        self.drop_later(server.settings.handshake_timeout / 1000)

    def data_received(self, octets: bytes) -> None:
        """Process received bytes."""
        self._heartbeats.received = True
        counters = self.output.counters
        counters.recv_oct += len(octets)
        counters.recv_cnt += 1
        self._server.memory_checks.count_received(len(octets))
        if self._handshake is not None and self.state is ConnectionState.AWAIT_HEADER:
            octets = self._receive_header(self._handshake, octets)
        self.reader.receive(octets)
        self.intake.process()

    def eof_received(self) -> bool:
        """Let the transport close the socket: the client has closed it."""
        return False

    def pause_writing(self) -> None:
        """Pause deliveries: the client reads more slowly than the broker writes."""
        self.output.pause()

    def resume_writing(self) -> None:
        """Resume deliveries: the write buffer has drained."""
        self.output.unpause()

    def connection_lost(self, exc: Exception | None) -> None:
        """Clean up after the socket is closed."""
        if self.state is ConnectionState.RUNNING:
            log.warning("closing AMQP connection %s: client unexpectedly closed TCP connection", self.name)
        self._heartbeats.stop()
        self.transition(ConnectionInput.LOST)
        self._release()
        self.intake.end()
        self._connections.remove(self)
        self._cancel_timer()
        self._is_lost = True

    # -- events -------------------------------------------------------------------------------------------

    def handle(self, event: Event) -> None:
        """Handle one event. Does not raise: an error closes this connection only."""
        try:
            if self.state is _RUNNING:
                self._handle_running(event)
            elif self._handshake is not None:
                self._continue_handshake(self._handshake, event)
            else:
                self._handle_closing(event)
        except Unanswered as question:
            self._ask(question)
        except Unfinished as work:
            self.intake.run_in_slices(work.step, work.is_handled)
        except Refusal as refusal:
            self._refuse(refusal)
        except AmqpFault as fault:
            self.fail(fault, method_of(event))
        except WireFault as fault:
            log.error("dropping AMQP connection %s: %s", self.name, fault)
            self.drop("reset")
        except Exception:
            log.exception("AMQP connection %s: internal error", self.name)
            self.fail(ConnectionFault(ReplyCode.INTERNAL_ERROR), method_of(event))

    def _handle_running(self, event: Event) -> None:
        """Handle an event of an open connection."""
        if type(event) is PublishRun or type(event) is AckRun or type(event) is VariedRun:
            self.channels.receive(event)
        elif type(event) is MethodReceived:
            if event.channel:
                self.host.events.actor = self.host.actor
                try:
                    self.channels.handle(event)
                finally:
                    self.host.events.actor = BROKER
            else:
                self._handle_own(event)
        elif isinstance(event, Exception):
            raise event

    def _handle_own(self, event: MethodReceived) -> None:
        """Handle a method of the connection itself."""
        method = event.method.index
        if method == _CLOSE:
            self.closed_by_client()
        elif method == _UPDATE_SECRET:
            self._update_secret(*event.arguments)
        else:
            raise ConnectionFault(ReplyCode.CHANNEL_ERROR, "unexpected method in connection state running", method)

    def _update_secret(self, secret: bytes, reason: str) -> None:
        """Go on with another password or token, if it is valid for the user."""
        if self._renewal is None:
            self._renewal = self._server.backends.renewal(self.host.user, secret)
        try:
            user = self._renewal.user()
        except Refused as refused:
            log.error("connection %s: new secret of user '%s' was refused: %s", self.name, self.username, refused)
            raise ConnectionFault(ReplyCode.NOT_ALLOWED, "New secret was refused by one of the backends") from None
        self._renewal = None
        if user is not self.host.user:
            self.host.renew(user)
            self._expire_with(user)
        self.output.send(encode_method(0, _UPDATE_SECRET_OK))

    def _ask(self, question: Unanswered) -> None:
        """Ask another server; handle the current event again when it has answered."""
        self._question = asking = self._server.loop.create_task(question.ask())
        self.intake.hold_until(asking)
        if self.is_open and question.seconds and self._forgetting is None:
            self._forgetting = self._server.loop.call_later(question.seconds, self._forget_routes)

    def _forget_routes(self) -> None:
        """Check again what may be published: the answers have become old."""
        self._forgetting = None
        if self.is_open:
            self.host.routes.clear()

    def _expire_with(self, user: User) -> None:
        """Close the connection when the login of its user ends."""
        if self._expiry is not None:
            self._expiry.cancel()
            self._expiry = None
        if user.expires_at is not None:
            seconds = max(user.expires_at - self._server.broker.timers.now() / 1_000_000, 0.0)
            fault = ConnectionFault(ReplyCode.CONNECTION_FORCED, "credential expired")
            self._expiry = self._server.loop.call_later(seconds, partial(self.terminate, fault))

    def _handle_closing(self, event: Event) -> None:
        """Handle an event after connection.close: only close-ok, the client's close and malformed input count."""
        if isinstance(event, WireFault):
            raise event
        if isinstance(event, ConnectionFault):
            if event.discards_input:
                self.drop_later(_SILENCE_SECONDS)
        elif type(event) is MethodReceived and event.channel == 0:
            if event.method.index == _CLOSE_OK and self.transition(ConnectionInput.CLOSE_OK):
                self.drop("reset")
            elif event.method.index == _CLOSE and self.transition(ConnectionInput.CLOSE):
                self.output.send(encode_method(0, _CLOSE_OK))

    def transition(self, connection_input: ConnectionInput) -> bool:
        """Change the state; return whether the input is valid in the current state."""
        state = next_connection_state(self.state, connection_input)
        if state is not None:
            self.state = state
        return state is not None

    # -- handshake ----------------------------------------------------------------------------------------

    def _receive_header(self, handshake: Handshake, octets: bytes) -> bytes:
        """Answer the protocol header; return the bytes after it."""
        try:
            start, rest = handshake.receive_header(octets)
        except UnknownProtocol as unknown:
            log.error("closing AMQP connection %s: %s", self.name, unknown)
            self.output.send(PROTOCOL_HEADER)
            self.reader.discard_input()
            self.drop()
            return b""
        if start:
            self.transition(ConnectionInput.HEADER)
            self.output.send(start)
        return rest

    def _continue_handshake(self, handshake: Handshake, event: Event) -> None:
        received, reply = handshake.receive(self.state, event)
        self.transition(received)
        if received is ConnectionInput.TUNE_OK:
            self.channel_max, self.heartbeat = handshake.channel_max, handshake.heartbeat
            self.frame_max = self.reader.frame_max = handshake.frame_max
            if self.heartbeat:
                self._heartbeats.start(self.heartbeat, partial(self.drop, "reset"))
        elif received is ConnectionInput.OPEN:
            self._open(handshake)
        elif received is ConnectionInput.START_OK:
            self._tell_login("success", handshake.user.name, handshake.auth_mechanism)
        if reply:
            self.output.send(reply)

    def _open(self, handshake: Handshake) -> None:
        """Finish the handshake: the virtual host is open."""
        server, user, vhost = self._server, handshake.user, handshake.vhost
        self.username, self.vhost_name = user.name, vhost.name
        self.auth_mechanism, self.client_properties = handshake.auth_mechanism, handshake.client_properties
        self.host = ChannelHost(
            server.broker,
            server.settings,
            server.accounts,
            user,
            vhost,
            self.output,
            self.name,
            self.peer,
            self.client_properties,
            self.frame_max,
            handshake.capabilities.consumer_cancel_notify,
        )
        node_max = server.settings.channel_max_per_node
        self.channels = ChannelTable(self.host, server.broker, self.channel_max, node_max)
        self.is_open = True
        self._end_handshake()
        self.intake.open(handshake.capabilities.blocked)
        self.reader.set_channel_frames(ChannelFrames.READ)
        self._cancel_timer()
        self._expire_with(user)
        server.broker.connections.add(self)
        log.info("connection %s: user '%s' opened vhost '%s'", self.name, user.name, vhost.name)

    def _refuse(self, refusal: Refusal) -> None:
        """Refuse the handshake, now or after its delay. If the handshake timeout comes first, only drop the socket."""
        if refusal.login is not None:
            self._tell_login("failure", *refusal.login)
            refusal.login = None
        if refusal.delay:
            self.reader.discard_input()
            timeout = self._server.settings.handshake_timeout / 1000
            refuse = partial(self._refuse, Refusal(str(refusal), refusal.fault))
            self._call_later(min(refusal.delay, timeout), refuse if refusal.delay <= timeout else self.drop)
            return
        if refusal.fault is not None:
            # The client is not told why.
            log.error("Error on AMQP connection (%s, state: starting): %s", self.name, refusal)
            self.fail(refusal.fault, 0)
        else:
            log.error("closing AMQP connection %s: %s", self.name, refusal)
            self.transition(ConnectionInput.REFUSED)
            self._end_handshake()
            self.reader.discard_input()
        self.drop_later(_SILENCE_SECONDS)

    def _tell_login(self, result: str, username: str, mechanism: str, why: str = "") -> None:
        """Tell that a login has succeeded or failed."""
        about = username, self.name, (self.peer, self.local), mechanism, self.tls is not None, why
        actor = Actor(username, self.peer[0])
        self._server.broker.events.tell(f"user.authentication.{result}", login_fields, *about, actor=actor)

    def _end_handshake(self) -> None:
        self._handshake = None
        self.reader.stepwise = False

    @property
    def blocked(self) -> bool:
        """Whether the connection is blocked by a resource alarm."""
        return self.intake.blocked

    # -- closing ------------------------------------------------------------------------------------------

    def closed_by_client(self) -> None:
        """Answer the client's connection.close, and wait until it closes the socket."""
        log.info("closing AMQP connection %s: client closed it", self.name)
        self.transition(ConnectionInput.CLOSE)
        self._release()
        self.output.send(encode_method(0, _CLOSE_OK))
        self.drop_later()

    def fail(self, fault: AmqpFault, method: int) -> None:
        """Close the connection because of a fault.

        Args:
            fault: Reply code and text for connection.close.
            method: Index of the current method; sent in connection.close unless the fault names another.
        """
        blamed = method if fault.method is None else fault.method
        if not self.transition(ConnectionInput.FAULT):
            return
        level = logging.INFO if fault.code is ReplyCode.CONNECTION_FORCED else logging.ERROR
        log.log(level, "closing AMQP connection %s: %s", self.name, fault)
        self._end_handshake()
        self._release()
        text = encode_reply_text(fault.text)
        self.output.send(encode_method(0, _CLOSE, fault.code, text, blamed >> 16, blamed & 0xFFFF))
        if isinstance(fault, ConnectionFault) and fault.discards_input:
            self.drop_later(_SILENCE_SECONDS)
        else:
            self.drop_later()

    def terminate(self, fault: AmqpFault) -> None:
        """Close the connection on the broker's initiative, and send connection.close immediately."""
        self.fail(fault, 0)
        self.output.flush()

    def drop_later(self, seconds: float | None = None) -> None:
        """Drop the socket after a delay. A later call replaces the delay of an earlier one.

        Args:
            seconds: Delay in seconds; by default 30 s, or the heartbeat interval if that is shorter.
        """
        if seconds is None:
            seconds = min(_CLOSING_SECONDS, self._heartbeats.interval or _CLOSING_SECONDS)
        self._call_later(seconds, partial(self.drop, "reset"))

    def drop(self, how: Literal["finish", "reset", "abort"] = "finish") -> None:
        """Drop the socket.

        Args:
            how: "finish" closes after pending output is sent; "reset" does the same, but sends RST if no output is
                pending, as in RabbitMQ; "abort" discards pending output.
        """
        self.reader.discard_input()
        self._heartbeats.stop()
        if self._is_lost:
            return
        self.transition(ConnectionInput.LOST)
        self._release()
        if how == "abort":
            self._transport.abort()
            return
        self.output.flush()
        if how == "reset" and not self.output.pending_bytes():
            reset(self._transport)
            return
        self._transport.close()
        # A client that reads nothing would otherwise keep the socket open forever.
        self._call_later(_LINGER_SECONDS, self._transport.abort)

    def _call_later(self, seconds: float, action: Callable[[], object]) -> None:
        """Do something after a delay, in place of what was to be done before."""
        self._cancel_timer()
        self._timer = self._server.loop.call_later(seconds, action)

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _release(self) -> None:
        """Release all resources of the connection in the broker."""
        self.intake.release()
        for awaited in (self._question, self._forgetting, self._expiry):
            if awaited is not None:
                awaited.cancel()
        self._question = self._forgetting = self._expiry = None
        # The client need not send heartbeats any more; the broker sends them while the socket is open.
        self._heartbeats.paused = True
        self.reader.set_channel_frames(ChannelFrames.SKIPPED)
        if self.is_open:
            self.is_open = False
            acting = self.host.events.actor
            if acting is BROKER:
                self.host.events.actor = self.host.actor
            self.channels.close_all()
            self.host.routes.clear()
            self.host.route_search.cancel()
            self.output.confirming.clear()
            self.host.vhost.delete_queues_of(self.host)
            self._server.broker.forget_connection(self)
            self.host.events.actor = acting
