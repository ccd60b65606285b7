"""The connection handshake, from the protocol header to connection.open-ok.

As in RabbitMQ, most errors are not answered: the socket is closed after 3 s, which also slows down password guessing.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from leveret.broker.session.capabilities import Capabilities
from leveret.protocol.constants import FRAME_MIN_SIZE, PROTOCOL_HEADER
from leveret.protocol.erlang_terms import format_binary
from leveret.protocol.events import Event, MethodReceived
from leveret.protocol.faults import AmqpFault, ConnectionFault, ReplyCode, WireFault
from leveret.protocol.methods import INDEX, encode_method
from leveret.protocol.sasl import MECHANISMS, MalformedResponse
from leveret.protocol.states import ConnectionInput, ConnectionState

if TYPE_CHECKING:
    from leveret.broker.auth.users import User
    from leveret.broker.core.vhost import VirtualHost
    from leveret.broker.session.connection import Connection

log = logging.getLogger("leveret.connection")

_START: Final = INDEX["connection.start"]
_START_OK: Final = INDEX["connection.start-ok"]
_TUNE: Final = INDEX["connection.tune"]
_TUNE_OK: Final = INDEX["connection.tune-ok"]
_OPEN: Final = INDEX["connection.open"]
_OPEN_OK: Final = INDEX["connection.open-ok"]

#: The SASL mechanism that uses the client certificate.
_EXTERNAL: Final = "EXTERNAL"

#: Version in connection.start, by protocol header. 0-9-1 is announced as 0-9; the headers of 0-8 and 0-9 are accepted
#: as in RabbitMQ 3.10.
_VERSIONS: Final = {
    PROTOCOL_HEADER: (0, 9),
    b"AMQP\x01\x01\x00\x09": (0, 9),
    b"AMQP\x01\x01\x08\x00": (8, 0),
    b"AMQP\x01\x01\x09\x01": (8, 0),
}

#: First bytes of a TLS connection.
_TLS_HANDSHAKE: Final = b"\x16\x03"
_HTTP: Final = frozenset({b"GET ", b"POST", b"PUT ", b"HEAD", b"OPTI"})

#: Index of the expected method, by state.
_EXPECTED: Final = {
    ConnectionState.AWAIT_START_OK: _START_OK,
    ConnectionState.AWAIT_TUNE_OK: _TUNE_OK,
    ConnectionState.AWAIT_OPEN: _OPEN,
}


class Handshake:
    """Handshake of one connection.

    Args:
        connection: The connection.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._header = b""
        self._user: User | None = None

    # -- protocol header ----------------------------------------------------------------------------------

    def receive_header(self, octets: bytes) -> bytes:
        """Process the first bytes from the client.

        Returns:
            The bytes after the protocol header; b"" while the header is incomplete, or if it is refused.
        Spec: AMQP 0-9-1 section 4.2.2.
        """
        connection = self._connection
        octets = self._header + octets
        if len(octets) < len(PROTOCOL_HEADER):
            self._header = octets
            return b""
        header, rest = octets[:8], octets[8:]
        version = _VERSIONS.get(header)
        if version is None:
            log.error("closing AMQP connection %s: %s", connection.name, _explain(header))
            connection.output.send(PROTOCOL_HEADER)
            connection.reader.discard_input()
            connection.drop()
            return b""
        self._connection.transition(ConnectionInput.HEADER)
        server = connection.server
        mechanisms = " ".join(self._mechanisms()).encode()
        connection.output.send(encode_method(0, _START, *version, server.properties, mechanisms, b"en_US"))
        return rest

    # -- methods ------------------------------------------------------------------------------------------

    def receive(self, event: Event) -> None:
        """Process an event of the frame reader.

        Raises:
            ConnectionFault: NOT_ALLOWED (530), ACCESS_REFUSED (403), and errors of the opening state.
            WireFault: An unknown method.
        """
        connection = self._connection
        state = connection.state
        expected = isinstance(event, MethodReceived) and event.channel == 0 and event.method.index
        if expected != _EXPECTED.get(state, -1):
            self._refuse_unexpected(event)
            return
        assert isinstance(event, MethodReceived)
        if state is ConnectionState.AWAIT_START_OK:
            self._receive_start_ok(*event.arguments)
        elif state is ConnectionState.AWAIT_TUNE_OK:
            self._receive_tune_ok(*event.arguments)
        else:
            self._receive_open(*event.arguments)

    def _refuse_unexpected(self, event: Event) -> None:
        if isinstance(event, WireFault):
            raise event
        undecodable = isinstance(event, AmqpFault) and event.code is ReplyCode.INTERNAL_ERROR
        if undecodable or self._connection.state is not ConnectionState.AWAIT_OPEN:
            self._connection.refuse("unexpected input during the handshake")
        elif isinstance(event, AmqpFault):
            raise event
        else:
            assert isinstance(event, MethodReceived), "runs are of channels, which are refused here"
            text = "unexpected method in connection state opening"
            raise ConnectionFault(ReplyCode.CHANNEL_ERROR, text, event.method.index)

    # -- authentication -----------------------------------------------------------------------------------

    def _receive_start_ok(self, client_properties: Any, mechanism: str, response: bytes, locale: str) -> None:
        connection = self._connection
        connection.client_properties = client_properties
        connection.capabilities = Capabilities(client_properties)
        if mechanism not in self._mechanisms():
            connection.refuse(f"unsupported authentication mechanism '{mechanism}'")
            return
        accounts, from_loopback = connection.server.accounts, connection.peer_is_loopback
        if mechanism == _EXTERNAL:
            username = self._certified_user()
            user = accounts.authenticate_external(username, from_loopback)
        else:
            try:
                username, password = MECHANISMS[mechanism](response)
            except MalformedResponse as malformed:
                connection.refuse(f"malformed response of mechanism {mechanism}: {malformed}")
                return
            user = accounts.authenticate(username, password, from_loopback)
        address = connection.peer[0]
        if user is None:
            seconds = accounts.throttle.failed(address, username, connection.server.loop.time())
            if seconds:
                connection.delay_handshake(seconds, partial(self._refuse_login, username, mechanism))
            else:
                self._refuse_login(username, mechanism)
            return
        accounts.throttle.succeeded(address, username)
        self._user = user
        connection.auth_mechanism = mechanism
        self._connection.transition(ConnectionInput.START_OK)
        settings = connection.server.settings
        connection.output.send(encode_method(0, _TUNE, settings.channel_max, settings.frame_max, settings.heartbeat))

    def _mechanisms(self) -> list[str]:
        """Return the SASL mechanisms offered to this client."""
        offered = self._connection.server.settings.auth_mechanisms
        return [each for each in offered if each != _EXTERNAL or self._certified_user()]

    def _certified_user(self) -> str:
        """Return the user name in the client certificate; "" if there is none."""
        tls, settings = self._connection.tls, self._connection.server.settings
        return "" if tls is None else tls.login(settings.ssl_cert_login_from)

    def _refuse_login(self, username: str, mechanism: str) -> None:
        connection = self._connection
        if not connection.capabilities.authentication_failure_close:
            connection.refuse(f"{mechanism} login refused: user '{username}' - invalid credentials")
            return
        text = f"Login was refused using authentication mechanism {mechanism}. For details see the broker logfile."
        connection.fail(ConnectionFault(ReplyCode.ACCESS_REFUSED, text, 0), 0)
        connection.close_later(3.0)

    # -- tuning and opening -------------------------------------------------------------------------------

    def _receive_tune_ok(self, channel_max: int, frame_max: int, heartbeat: int) -> None:
        connection = self._connection
        settings = connection.server.settings
        if not FRAME_MIN_SIZE <= frame_max <= settings.frame_max:
            connection.refuse(f"negotiated frame_max = {frame_max} is outside {FRAME_MIN_SIZE}..{settings.frame_max}")
        elif settings.channel_max and not 1 <= channel_max <= settings.channel_max:
            connection.refuse(f"negotiated channel_max = {channel_max} is outside 1..{settings.channel_max}")
        else:
            self._connection.transition(ConnectionInput.TUNE_OK)
            connection.tuned(channel_max or 65535, frame_max, heartbeat)

    def _receive_open(self, vhost_name: str, capabilities: str, insist: bool) -> None:
        """Open the virtual host, with the checks in RabbitMQ's order."""
        assert self._user is not None
        vhost = self._check_limits(vhost_name, self._user)
        if self._connection.server.accounts.permissions(self._user.name, vhost_name) is None:
            raise _not_allowed(f"access to vhost '{vhost_name}' refused for user '{self._user.name}'")
        self._connection.transition(ConnectionInput.OPEN)
        self._connection.opened(self._user, vhost)
        self._connection.output.send(encode_method(0, _OPEN_OK, ""))

    def _check_limits(self, vhost_name: str, user: User) -> VirtualHost:
        server = self._connection.server
        broker = server.broker
        limit = server.settings.connection_max
        if limit is not None and len(broker.connections) >= limit:
            raise _not_allowed(f"connection refused: node connection limit ({limit}) is reached")
        vhost = broker.vhosts.get(vhost_name)
        if vhost is None:
            raise _not_allowed(f"vhost {vhost_name} not found")
        limit = vhost.max_connections
        if limit is not None and 0 <= limit <= broker.connections.by_vhost[vhost.name]:
            raise _not_allowed(
                f"access to vhost '{vhost_name}' refused for user '{user.name}': connection limit ({limit}) is reached"
            )
        limit = user.limits.max_connections
        if limit is not None and 0 <= limit <= broker.connections.by_user[user.name]:
            raise _not_allowed(f"connection refused for user '{user.name}': user connection limit ({limit}) is reached")
        return vhost


def _explain(header: bytes) -> str:
    """Describe an invalid protocol header for the log."""
    if header[:2] == _TLS_HANDSHAKE:
        return "the client speaks TLS, but this is a port without TLS"
    if header[:4] in _HTTP:
        return "the client speaks HTTP, but this is a port for AMQP"
    return f"bad protocol header {format_binary(header)}"


def _not_allowed(explanation: str) -> ConnectionFault:
    return ConnectionFault(ReplyCode.NOT_ALLOWED, explanation)
