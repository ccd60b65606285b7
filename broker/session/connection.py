"""AMQP connections: the asyncio protocol with socket, timers and connection state."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final, Literal, cast

from leveret.broker.addresses import is_loopback
from leveret.broker.core.scheduling.time_slice import Unfinished
from leveret.broker.session.capabilities import Capabilities
from leveret.broker.session.channel_host import ChannelHost
from leveret.broker.session.channel_table import ChannelTable
from leveret.broker.session.dispatch import dispatch, method_of
from leveret.broker.session.handshake import Handshake
from leveret.broker.session.heartbeat import Heartbeat
from leveret.broker.session.intake import Intake
from leveret.broker.session.output import Output
from leveret.broker.session.peer_certificate import TlsSession, tls_session
from leveret.broker.session.sockets import connection_name, disable_delay, endpoints, reset
from leveret.protocol.events import Event, MethodReceived
from leveret.protocol.faults import AmqpFault, ConnectionFault, ReplyCode, WireFault, encode_reply_text
from leveret.protocol.field_table import FieldTable
from leveret.protocol.frame_reader import ChannelFrames, FrameReader
from leveret.protocol.methods import INDEX, encode_method
from leveret.protocol.proxy_header import ProxiedAddresses
from leveret.protocol.states import ConnectionInput, ConnectionState, next_connection_state

if TYPE_CHECKING:
    from leveret.broker.auth.users import User
    from leveret.broker.core.vhost import VirtualHost
    from leveret.broker.session.server import Server

log = logging.getLogger("leveret.connection")

_CLOSE: Final = INDEX["connection.close"]
_CLOSE_OK: Final = INDEX["connection.close-ok"]
_UPDATE_SECRET: Final = INDEX["connection.update-secret"]
_UPDATE_SECRET_OK: Final = INDEX["connection.update-secret-ok"]

#: Maximum time for a client to close the socket after connection.close, in seconds.
_CLOSING_SECONDS: Final = 30.0
#: Delay before the socket is closed after a failed handshake or malformed input, in seconds.
_SILENCE_SECONDS: Final = 3.0
#: Maximum time for a client to read remaining output while the socket is closed, in seconds.
_LINGER_SECONDS: Final = 3.0


class Connection(asyncio.BufferedProtocol):
    """One client connection.

    Args:
        server: State shared by all connections.
        proxied: Addresses from the PROXY protocol header; None to use those of the socket.

    Attributes:
        name: Addresses of both ends, as in RabbitMQ.
        peer: Address and port of the client.
        local: Address and port of the broker.
        connected_at: Time of the connect, in milliseconds since 1970.
        auth_mechanism: The SASL mechanism of the login.
        heartbeat: Negotiated heartbeat in seconds; 0 for none.
        peer_is_loopback: Whether the client has a loopback address.
        tls: The TLS session; None without TLS.
        state: State of the connection.
        is_open: Whether a virtual host is open.
        reader: Frame reader.
        intake: Input buffer; set by connection_made(), like output.
        output: Output buffer.
        channels: The open channels; set once a virtual host is open, like host.
        host: What the channels share.
        capabilities: Capabilities of the client.
        client_properties: Client properties as received.
        frame_max: Maximum frame size in bytes, including the frame header and end.
        channel_max: Maximum number of channels.
    """

    name: str
    peer: tuple[str, int]
    local: tuple[str, int]
    connected_at: int
    peer_is_loopback: bool
    tls: TlsSession | None
    intake: Intake
    output: Output
    channels: ChannelTable
    host: ChannelHost

    def __init__(self, server: Server, proxied: ProxiedAddresses | None = None) -> None:
        self.server = server
        self._proxied = proxied
        self.state = ConnectionState.AWAIT_HEADER
        self.reader = FrameReader(server.settings.max_message_size)
        self.reader.set_channel_frames(ChannelFrames.REFUSED)
        self.capabilities = Capabilities()
        self.client_properties: FieldTable = ()
        self.frame_max = self.reader.frame_max
        self.channel_max = 0
        self.auth_mechanism = ""
        self.heartbeat = 0
        self.username = ""
        self.vhost_name = ""
        self._handshake: Handshake | None = Handshake(self)
        self.is_open = False
        self._transport: asyncio.Transport | None = None
        self._heartbeat: Heartbeat | None = None
        self._timer: asyncio.TimerHandle | None = None

    # -- socket -------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Set up the connection, and start the handshake timeout."""
        self._transport = cast("asyncio.Transport", transport)
        if self.server.settings.tcp_listen_options.nodelay:
            disable_delay(transport)
        proxied = self._proxied
        self.peer, self.local = endpoints(transport) if proxied is None else (proxied.peer, proxied.local)
        self.name = connection_name(self.peer, self.local)
        self.connected_at = self.server.broker.timers.now() // 1000
        self.peer_is_loopback = is_loopback(self.peer[0])
        self.tls = tls_session(transport)
        self.output = Output(self.server.broker.turn, self._transport)
        self.intake = Intake(self, self._transport)
        self.server.sockets.add(self)
        log.info("accepting AMQP connection %s", self.name)
        self.close_later(self.server.settings.handshake_timeout / 1000)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return the read buffer, which all connections share."""
        return self.server.read_buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Process received bytes."""
        if self._heartbeat is not None:
            self._heartbeat.received = True
        counters = self.output.counters
        counters.recv_oct += nbytes
        counters.recv_cnt += 1
        self.server.memory_checks.count_received(nbytes)
        octets = bytes(self.server.read_buffer[:nbytes])
        if self.state is ConnectionState.AWAIT_HEADER and self._handshake is not None:
            octets = self._handshake.receive_header(octets)
        self.reader.receive(octets)
        self.intake.process()

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
        if self._heartbeat is not None:
            self._heartbeat.stop()
        self.transition(ConnectionInput.LOST)
        self._release()
        self.server.sockets.discard(self)
        self.server.check_all_closed()
        if self._timer is not None:
            self._timer.cancel()
        self._transport = None

    # -- events -------------------------------------------------------------------------------------------

    def handle(self, event: Event) -> None:
        """Handle one event. Does not raise: an error closes this connection only."""
        try:
            if self.state is ConnectionState.RUNNING:
                self._handle_running(event)
            elif self._handshake is not None:
                self._handshake.receive(event)
            else:
                self._handle_closing(event)
        except Unfinished as work:
            self.intake.run_in_slices(work.step, work.is_handled)
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
        if isinstance(event, Exception):
            raise event
        if type(event) is not MethodReceived or event.channel:
            dispatch(self.channels, event)
        elif event.method.index == _CLOSE:
            self.closed_by_client()
        elif event.method.index == _UPDATE_SECRET:
            self.output.send(encode_method(0, _UPDATE_SECRET_OK))
        else:
            text = "unexpected method in connection state running"
            raise ConnectionFault(ReplyCode.CHANNEL_ERROR, text, event.method.index)

    def _handle_closing(self, event: Event) -> None:
        """Handle an event after connection.close: only close-ok, the client's close and malformed input count."""
        if isinstance(event, WireFault):
            raise event
        if isinstance(event, ConnectionFault):
            if event.discards_input:
                self.close_later(_SILENCE_SECONDS)
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

    # -- opening ------------------------------------------------------------------------------------------

    def tuned(self, channel_max: int, frame_max: int, heartbeat: int) -> None:
        """Apply the values of connection.tune-ok."""
        self.channel_max = channel_max
        self.heartbeat = heartbeat
        self.frame_max = self.reader.frame_max = frame_max
        if heartbeat:
            self._heartbeat = Heartbeat(self.server.loop, heartbeat, self.output, self._heartbeat_missed)

    def opened(self, user: User, vhost: VirtualHost) -> None:
        """Finish the handshake: the virtual host is open."""
        server = self.server
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
            self.capabilities.consumer_cancel_notify,
        )
        node_max = server.settings.channel_max_per_node
        self.channels = ChannelTable(self.host, server.broker, self.channel_max, node_max)
        self.username, self.vhost_name = user.name, vhost.name
        self.is_open = True
        self._handshake, self.reader.stepwise = None, False
        self.reader.set_channel_frames(ChannelFrames.READ)
        if self._timer is not None:
            self._timer.cancel()
        server.broker.register(self)
        log.info("connection %s: user '%s' opened vhost '%s'", self.name, user.name, vhost.name)

    @property
    def blocked(self) -> bool:
        """Whether the connection is blocked by a resource alarm."""
        return self.intake.blocked

    def pause_heartbeat(self, paused: bool) -> None:
        """Stop or resume the check for heartbeats of the client, which are not read while reading is paused."""
        if self._heartbeat is not None:
            self._heartbeat.paused = paused

    def _heartbeat_missed(self) -> None:
        log.error("closing AMQP connection %s: missed heartbeats from client", self.name)
        self.drop("reset")

    # -- closing ------------------------------------------------------------------------------------------

    def closed_by_client(self) -> None:
        """Answer the client's connection.close, and wait until it closes the socket."""
        log.info("closing AMQP connection %s: client closed it", self.name)
        self.transition(ConnectionInput.CLOSE)
        self._release()
        self.output.send(encode_method(0, _CLOSE_OK))
        self.close_later()

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
        self._handshake, self.reader.stepwise = None, False
        self._release()
        text = encode_reply_text(fault.text)
        self.output.send(encode_method(0, _CLOSE, fault.code, text, blamed >> 16, blamed & 0xFFFF))
        if isinstance(fault, ConnectionFault) and fault.discards_input:
            self.close_later(_SILENCE_SECONDS)
        else:
            self.close_later()

    def terminate(self, fault: AmqpFault) -> None:
        """Close the connection on the broker's initiative, and send connection.close immediately."""
        self.fail(fault, 0)
        self.output.flush()

    def refuse(self, reason: str) -> None:
        """End a handshake as RabbitMQ does: close the socket after 3 s without a reply."""
        log.error("closing AMQP connection %s: %s", self.name, reason)
        self.transition(ConnectionInput.REFUSED)
        self._handshake, self.reader.stepwise = None, False
        self.reader.discard_input()
        self.close_later(_SILENCE_SECONDS)

    def delay_handshake(self, seconds: float, then: Callable[[], object]) -> None:
        """Discard input, and continue the handshake after a delay; the handshake timeout still applies.

        Args:
            seconds: Delay in seconds.
            then: Called after the delay, unless the connection is closed.
        """
        self.reader.discard_input()
        timeout = self.server.settings.handshake_timeout / 1000
        self._set_timer(min(seconds, timeout), then if seconds <= timeout else self.drop)

    def close_later(self, seconds: float | None = None) -> None:
        """Drop the socket after a delay, unless a later call sets another one.

        Args:
            seconds: Delay in seconds; by default 30 s, or the heartbeat interval if that is shorter.
        """
        if seconds is None:
            interval = self._heartbeat.interval if self._heartbeat is not None else _CLOSING_SECONDS
            seconds = min(_CLOSING_SECONDS, interval)
        self._set_timer(seconds, partial(self.drop, "reset"))

    def _set_timer(self, seconds: float, expired: Callable[[], object]) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self.server.loop.call_later(seconds, expired)

    def drop(self, how: Literal["finish", "reset", "abort"] = "finish") -> None:
        """Drop the socket.

        Args:
            how: "finish" closes after pending output is sent; "reset" likewise, but with RST if none is pending, as in
                RabbitMQ; "abort" discards pending output.
        """
        self.reader.discard_input()
        if self._heartbeat is not None:
            self._heartbeat.stop()
        if self._transport is None:
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
        self._set_timer(_LINGER_SECONDS, self._transport.abort)

    def _release(self) -> None:
        """Release all resources of the connection in the broker."""
        self.intake.release()
        # The client need not send heartbeats any more; the broker sends them while the socket is open.
        self.pause_heartbeat(True)
        self.reader.set_channel_frames(ChannelFrames.SKIPPED)
        if self.is_open:
            self.is_open = False
            self.channels.close_all()
            self.host.routes.clear()
            self.host.route_search.cancel()
            self.output.confirming.clear()
            self.host.vhost.delete_queues_of(self.host)
            self.server.broker.unregister(self)
