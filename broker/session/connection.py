"""The asyncio shell of one connection: socket, timers, and its life from accept to close."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final, Literal, cast

from leveret.broker.addresses import is_loopback
from leveret.broker.session.authorization import Authorization
from leveret.broker.session.capabilities import Capabilities
from leveret.broker.session.channel_table import ChannelTable
from leveret.broker.session.dispatch import dispatch, method_of
from leveret.broker.session.handshake import Handshake
from leveret.broker.session.heartbeat import Heartbeat
from leveret.broker.session.intake import Intake
from leveret.broker.session.output import Output
from leveret.broker.session.peer_certificate import TlsSession, tls_session
from leveret.broker.session.remembered_routes import RememberedRoutes
from leveret.broker.session.route_search import RouteSearch
from leveret.broker.session.sockets import disable_delay, ends, name_of, reset
from leveret.broker.session.unfinished import Unfinished
from leveret.protocol.events import Event, MethodReceived
from leveret.protocol.faults import AmqpFault, ConnectionFault, ReplyCode, WireFault, encode_reply_text
from leveret.protocol.field_table import FieldTable
from leveret.protocol.frame_reader import ChannelFrames, FrameReader
from leveret.protocol.methods import INDEX, encode_method
from leveret.protocol.proxy_header import ProxiedEnds
from leveret.protocol.states import ConnectionInput, ConnectionState, next_connection_state

if TYPE_CHECKING:
    from leveret.broker.auth.users import User
    from leveret.broker.core.vhost import VirtualHost
    from leveret.broker.session.server import Server

log = logging.getLogger("leveret.connection")

_CLOSE: Final = INDEX["connection.close"]
_CLOSE_OK: Final = INDEX["connection.close-ok"]

#: How long a client may take to drop a connection that has been closed, in seconds, at the most.
_CLOSING_SECONDS: Final = 30.0
#: How long a connection stays open in silence after a failed handshake or unreadable input, in seconds.
_SILENCE_SECONDS: Final = 3.0
#: How long a client may take to read what is on its way to it when its socket is dropped, in seconds.
_LINGER_SECONDS: Final = 3.0


class Connection(asyncio.BufferedProtocol):
    """One client connection.

    Args:
        server: What all connections share.
        proxied: Its ends, if it comes through a proxy that has said so; those of the socket otherwise.

    Attributes:
        name: Peer and own address, as the log shows it.
        peer: Address and port of the client.
        local: Address and port that it has connected to.
        connected_at: When that was, in milliseconds since 1970.
        auth_mechanism: How the client has logged in.
        heartbeat: Seconds; 0 for none.
        peer_is_loopback: Whether the client is on this machine.
        tls: How it is encrypted; None if it is not.
        state: Where it stands.
        reader: Its incoming half.
        intake: What has been read; there from connection_made(), as is output.
        output: Its outgoing half.
        channels: Its channels.
        routes: Where its publishes go.
        route_search: Finds that out.
        capabilities: What the client can do.
        client_properties: As the client sent them.
        frame_max: Largest frame in bytes, framing included.
        channel_max: Channels that may be open at once.
        user: Who has logged in; there once a virtual host is open, as are vhost and authorization.
        vhost: The virtual host.
        authorization: What the user may do there.
    """

    name: str
    peer: tuple[str, int]
    local: tuple[str, int]
    connected_at: int
    peer_is_loopback: bool
    tls: TlsSession | None
    intake: Intake
    output: Output
    user: User
    vhost: VirtualHost
    authorization: Authorization

    def __init__(self, server: Server, proxied: ProxiedEnds | None = None) -> None:
        self.server = server
        self._proxied = proxied
        self.state = ConnectionState.AWAIT_HEADER
        self.reader = FrameReader(server.settings.max_message_size)
        self.reader.handle_channels(ChannelFrames.REFUSED)
        self.channels = ChannelTable(self)
        self.routes = RememberedRoutes()
        self.route_search = RouteSearch(server.broker.turn)
        self.capabilities = Capabilities()
        self.client_properties: FieldTable = ()
        self.frame_max = self.reader.frame_max
        self.channel_max = 0
        self.auth_mechanism = ""
        self.heartbeat = 0
        self.username = ""
        self.vhost_name = ""
        self._handshake: Handshake | None = Handshake(self)
        self._is_open = False
        self._transport: asyncio.Transport | None = None
        self._heartbeat: Heartbeat | None = None
        self._timer: asyncio.TimerHandle | None = None

    # -- socket -------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client has connected: it has the handshake timeout to open a virtual host."""
        self._transport = cast("asyncio.Transport", transport)
        if self.server.settings.tcp_listen_options.nodelay:
            disable_delay(transport)
        proxied = self._proxied
        self.peer, self.local = ends(transport) if proxied is None else (proxied.peer, proxied.local)
        self.name = name_of(self.peer, self.local)
        self.connected_at = time.time_ns() // 1_000_000
        self.peer_is_loopback = is_loopback(self.peer[0])
        self.tls = tls_session(transport)
        self.output = Output(self.server.broker.turn, self._transport)
        self.intake = Intake(self, self._transport)
        self.server.sockets.add(self)
        log.info("accepting AMQP connection %s", self.name)
        self.close_later(self.server.settings.handshake_timeout / 1000)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Where to read to: one buffer for all connections, emptied before the next one reads."""
        return self.server.read_buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Bytes have come."""
        if self._heartbeat is not None:
            self._heartbeat.received = True
        counters = self.output.counters
        counters.recv_oct += nbytes
        counters.recv_cnt += 1
        self.server.note_received(nbytes)
        octets = bytes(self.server.read_buffer[:nbytes])
        if self.state is ConnectionState.AWAIT_HEADER and self._handshake is not None:
            octets = self._handshake.receive_header(octets)
        self.reader.receive(octets)
        self.intake.process()

    def pause_writing(self) -> None:
        """The client reads slower than we write."""
        self.output.pause()

    def resume_writing(self) -> None:
        """The client has caught up."""
        self.output.unpause()

    def connection_lost(self, exc: Exception | None) -> None:
        """The socket is gone."""
        if self.state is ConnectionState.RUNNING:
            log.warning("closing AMQP connection %s: client unexpectedly closed TCP connection", self.name)
        if self._heartbeat is not None:
            self._heartbeat.stop()
        self.move(ConnectionInput.LOST)
        self._end()
        self.server.sockets.discard(self)
        self.server.check_all_gone()
        if self._timer is not None:
            self._timer.cancel()
        self._transport = None

    # -- events -------------------------------------------------------------------------------------------

    def handle(self, event: Event) -> None:
        """Handle one event. Must not raise: whatever goes wrong ends this connection at most."""
        try:
            if self.state is ConnectionState.RUNNING:
                dispatch(self, event)
            elif self._handshake is not None:
                self._handshake.receive(event)
            else:
                self._handle_closing(event)
        except Unfinished as work:
            self.intake.work(work.go_on)
        except AmqpFault as fault:
            self.fail(fault, method_of(event))
        except WireFault as fault:
            log.error("dropping AMQP connection %s: %s", self.name, fault)
            self.drop("reset")
        except Exception:
            log.exception("AMQP connection %s: internal error", self.name)
            self.fail(ConnectionFault(ReplyCode.INTERNAL_ERROR), method_of(event))

    def _handle_closing(self, event: Event) -> None:
        """After a close only its answer, the peer's own close, and what cannot be read matter."""
        if isinstance(event, WireFault):
            raise event
        if isinstance(event, ConnectionFault):
            if event.discards_input:
                self.close_later(_SILENCE_SECONDS)
        elif type(event) is MethodReceived and event.channel == 0:
            if event.method.index == _CLOSE_OK and self.move(ConnectionInput.CLOSE_OK):
                self.drop("reset")
            elif event.method.index == _CLOSE and self.move(ConnectionInput.CLOSE):
                self.output.send(encode_method(0, _CLOSE_OK))

    def move(self, happened: ConnectionInput) -> bool:
        """Go to the next state; return whether what happened may happen here."""
        state = next_connection_state(self.state, happened)
        if state is not None:
            self.state = state
        return state is not None

    # -- opening ------------------------------------------------------------------------------------------

    def tuned(self, channel_max: int, frame_max: int, heartbeat: int) -> None:
        """The client has chosen its limits."""
        self.channel_max = channel_max
        self.heartbeat = heartbeat
        self.frame_max = self.reader.frame_max = frame_max
        if heartbeat:
            self._heartbeat = Heartbeat(self.server.loop, heartbeat, self.output, self._heartbeat_missed)

    def opened(self, user: User, vhost: VirtualHost) -> None:
        """The handshake is done."""
        self.user, self.vhost = user, vhost
        self.authorization = Authorization(self.server.accounts, user, vhost)
        self.username, self.vhost_name = user.name, vhost.name
        self._is_open = True
        self._end_handshake()
        self.reader.handle_channels(ChannelFrames.READ)
        if self._timer is not None:
            self._timer.cancel()
        self.server.broker.register(self)
        log.info("connection %s: user '%s' opened vhost '%s'", self.name, user.name, vhost.name)

    @property
    def blocked(self) -> bool:
        """Whether it is not read from, for it has published while an alarm was set."""
        return self.intake.blocked

    def pause_heartbeat(self, paused: bool) -> None:
        """Do not miss the client while it is not read from, or do again."""
        if self._heartbeat is not None:
            self._heartbeat.paused = paused

    def _end_handshake(self) -> None:
        self._handshake = None
        self.reader.stepwise = False

    def _heartbeat_missed(self) -> None:
        log.error("closing AMQP connection %s: missed heartbeats from client", self.name)
        self.drop("reset")

    # -- closing ------------------------------------------------------------------------------------------

    def closed_by_client(self) -> None:
        """The client has closed the connection: answer, and wait until it drops the socket."""
        log.info("closing AMQP connection %s: client closed it", self.name)
        self.move(ConnectionInput.CLOSE)
        self._end()
        self.output.send(encode_method(0, _CLOSE_OK))
        self.close_later()

    def fail(self, fault: AmqpFault, method: int) -> None:
        """Close the connection because of a fault.

        Args:
            fault: What the client is told.
            method: The method in hand, blamed unless the fault blames another.
        """
        blamed = method if fault.method is None else fault.method
        if not self.move(ConnectionInput.FAULT):
            return
        level = logging.INFO if fault.code is ReplyCode.CONNECTION_FORCED else logging.ERROR
        log.log(level, "closing AMQP connection %s: %s", self.name, fault)
        self._end_handshake()
        self._end()
        text = encode_reply_text(fault.text)
        self.output.send(encode_method(0, _CLOSE, fault.code, text, blamed >> 16, blamed & 0xFFFF))
        if isinstance(fault, ConnectionFault) and fault.discards_input:
            self.close_later(_SILENCE_SECONDS)
        else:
            self.close_later()

    def terminate(self, fault: AmqpFault) -> None:
        """Close the connection for a reason of ours, and tell the client at once."""
        self.fail(fault, 0)
        self.output.flush()

    def refuse(self, reason: str) -> None:
        """End a handshake as RabbitMQ does: in silence, 3 s later."""
        log.error("closing AMQP connection %s: %s", self.name, reason)
        self.move(ConnectionInput.REFUSED)
        self._end_handshake()
        self.reader.discard_input()
        self.close_later(_SILENCE_SECONDS)

    def hold_back(self, seconds: float, then: Callable[[], object]) -> None:
        """Listen to nothing more of the client, and go on after a while; a handshake still takes no longer than it may.

        Args:
            seconds: How long.
            then: Called afterwards, unless the connection is gone.
        """
        self.reader.discard_input()
        most = self.server.settings.handshake_timeout / 1000
        self._set_timer(min(seconds, most), then if seconds <= most else self.drop)

    def close_later(self, seconds: float | None = None) -> None:
        """Drop the socket after a while, unless a later call sets another time.

        Args:
            seconds: How long; by default as long as a client may take to drop a closed connection.
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
            how: Once what was sent before has gone out; if that is so already, with RST, as RabbitMQ does; or at once.
        """
        self.reader.discard_input()
        if self._heartbeat is not None:
            self._heartbeat.stop()
        if self._transport is None:
            return
        self.move(ConnectionInput.LOST)
        self._end()
        if how == "abort":
            self._transport.abort()
            return
        self.output.flush()
        if how == "reset" and not self.output.pending_bytes():
            reset(self._transport)
            return
        self._transport.close()
        # Else a client that reads nothing would keep it for ever.
        self._set_timer(_LINGER_SECONDS, self._transport.abort)

    def _end(self) -> None:
        """Give up all that the connection holds in the broker."""
        self.intake.release()
        # The client need not answer any more; as long as the socket is there, it hears from us.
        self.pause_heartbeat(True)
        self.reader.handle_channels(ChannelFrames.SKIPPED)
        if self._is_open:
            self._is_open = False
            self.channels.end()
            self.routes.forget()
            self.route_search.forget()
            self.output.confirming.clear()
            self.vhost.delete_queues_of(self)
            self.server.broker.unregister(self)
