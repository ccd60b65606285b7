"""The connection handshake, from the protocol header to connection.open-ok.

As in RabbitMQ, most errors are not answered: the socket is closed after 3 s, which also slows down password guessing.

At the end are parsers of the responses of SASL mechanisms that carry a user name and a password.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from leveret.broker.addresses import is_loopback
from leveret.broker.auth.accounts import User
from leveret.broker.auth.attempts import AMQP
from leveret.broker.auth.backend_interface import Login, Refused, Unavailable
from leveret.broker.auth.backends.chain import LoginAttempt, shortened
from leveret.broker.core.vhosts.vhost import VirtualHost
from leveret.broker.session.peer_certificate import TlsSession
from leveret.broker.session.shared_state import Server
from leveret.protocol.constants import FRAME_MIN_SIZE, PROTOCOL_HEADER
from leveret.protocol.erlang_terms import format_binary
from leveret.protocol.faults import AmqpFault, ConnectionFault, ReplyCode, WireFault
from leveret.protocol.field_table import FieldTable, MalformedTable, as_text, decode_table, find
from leveret.protocol.frame_reader import Event, MethodReceived
from leveret.protocol.methods import INDEX, encode_method
from leveret.protocol.states import ConnectionInput, ConnectionState


class Credentials(NamedTuple):
    """User name and password that a client has sent."""

    username: str
    password: bytes


class MalformedResponse(ValueError):
    """A SASL response that does not follow its mechanism's form."""


def read_plain(response: bytes) -> Credentials:
    """Read a PLAIN response: NUL user NUL password, without an authorization identity.

    Raises:
        MalformedResponse: Any other form.
    Spec: RFC 4616, section 2; RabbitMQ refuses an authorization identity.
    """
    parts = response.split(b"\x00")
    if len(parts) != 3 or parts[0]:
        raise MalformedResponse("PLAIN takes NUL, user, NUL, password")
    return Credentials(_decode(parts[1]), parts[2])


def read_amqplain(response: bytes) -> Credentials:
    """Read an AMQPLAIN response: a field table without its length, keys LOGIN and PASSWORD.

    Raises:
        MalformedResponse: It is not a table, or a key is missing or not a string.
    Spec: AMQP 0-8 section 3.1.4 as RabbitMQ reads it.
    """
    try:
        table = decode_table(response)
    except MalformedTable as malformed:
        raise MalformedResponse(str(malformed)) from None
    login, password = find(table, "LOGIN"), find(table, "PASSWORD")
    if login is None or password is None or login.kind not in "Sx" or password.kind not in "Sx":
        raise MalformedResponse("AMQPLAIN takes a table with the strings LOGIN and PASSWORD")
    return Credentials(as_text(login), password.value)


def _decode(octets: bytes) -> str:
    return octets.decode("utf-8", "surrogateescape")


MECHANISMS: Final[dict[str, Callable[[bytes], Credentials]]] = {
    "AMQPLAIN": read_amqplain,
    "PLAIN": read_plain,
}


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


class UnknownProtocol(Exception):
    """The first bytes of a client are not a protocol header of AMQP 0-9-1. The message describes them for the log."""


class Refusal(Exception):
    """A handshake is refused. The socket closes 3 s later.

    Args:
        reason: The reason, for the log.
        fault: Sent to the client in connection.close; None to send nothing, as in most cases in RabbitMQ.
        delay: Time before the refusal takes effect, in seconds.

    Attributes:
        login: Of a failed login, the user name, the mechanism and why it failed.
    """

    def __init__(self, reason: str, fault: ConnectionFault | None = None, delay: float = 0.0) -> None:
        super().__init__(reason)
        self.fault = fault
        self.delay = delay
        self.login: tuple[str, str, str] | None = None


class Capabilities:
    """The client capabilities that the broker uses.

    Args:
        client_properties: Table of connection.start-ok; a ``capabilities`` entry that is not a table is ignored.
    """

    __slots__ = ("authentication_failure_close", "blocked", "consumer_cancel_notify")

    def __init__(self, client_properties: FieldTable = ()) -> None:
        field = find(client_properties, "capabilities")
        table: FieldTable = field.value if field is not None and field.kind == "F" else ()
        self.authentication_failure_close = _is_set(table, "authentication_failure_close")
        self.blocked = _is_set(table, "connection.blocked")
        self.consumer_cancel_notify = _is_set(table, "consumer_cancel_notify")


def _is_set(table: FieldTable, name: str) -> bool:
    field = find(table, name)
    return field is not None and field.kind == "t" and bool(field.value)


class Handshake:
    """Handshake of one connection: what both sides have agreed on, and the next reply.

    Args:
        tls: The TLS session; None without TLS.

    Attributes:
        client_properties: Client properties as received.
        capabilities: Capabilities of the client.
        auth_mechanism: The SASL mechanism of the login.
        channel_max: Maximum number of channels; 0 until connection.tune-ok.
        frame_max: Maximum frame size in bytes; 0 until connection.tune-ok.
        heartbeat: Heartbeat in seconds; 0 for none.
        user: The authenticated user; set by connection.start-ok.
        vhost: The virtual host; set by connection.open.
    """

    user: User
    vhost: VirtualHost

    def __init__(self, server: Server, peer: tuple[str, int], tls: TlsSession | None) -> None:
        self._server = server
        self._peer = peer
        self._tls = tls
        self._header = b""
        self._attempt: LoginAttempt | None = None
        self.client_properties: FieldTable = ()
        self.capabilities = Capabilities()
        self.auth_mechanism = ""
        self.channel_max = self.frame_max = self.heartbeat = 0

    # -- protocol header ----------------------------------------------------------------------------------

    def receive_header(self, octets: bytes) -> tuple[bytes, bytes]:
        """Process the first bytes from the client.

        Returns:
            The reply connection.start, and the bytes after the protocol header; both b"" while it is incomplete.
        Raises:
            UnknownProtocol: It is not a protocol header of AMQP 0-9-1.
        Spec: AMQP 0-9-1 section 4.2.2.
        """
        octets = self._header + octets
        if len(octets) < len(PROTOCOL_HEADER):
            self._header = octets
            return b"", b""
        header, rest = octets[:8], octets[8:]
        version = _VERSIONS.get(header)
        if version is None:
            raise UnknownProtocol(_explain(header))
        mechanisms = " ".join(self._mechanisms()).encode()
        return encode_method(0, _START, *version, self._server.properties, mechanisms, b"en_US"), rest

    # -- methods ------------------------------------------------------------------------------------------

    def receive(self, state: ConnectionState, event: Event) -> tuple[ConnectionInput, bytes]:
        """Process an event of the frame reader.

        Returns:
            What it means for the state of the connection, and the reply; b"" for none.
        Raises:
            Refusal: The client cannot log in, or is out of line.
            Unanswered: A server has to be asked about the user first. The same call goes on then.
            ConnectionFault: NOT_ALLOWED (530), and errors of the opening state.
            WireFault: An unknown method.
        """
        expected = isinstance(event, MethodReceived) and event.channel == 0 and event.method.index
        if expected != _EXPECTED.get(state, -1):
            raise _unexpected(state, event)
        assert isinstance(event, MethodReceived)
        if state is ConnectionState.AWAIT_START_OK:
            return ConnectionInput.START_OK, self._receive_start_ok(*event.arguments)
        if state is ConnectionState.AWAIT_TUNE_OK:
            self._receive_tune_ok(*event.arguments)
            return ConnectionInput.TUNE_OK, b""
        self._receive_open(*event.arguments)
        return ConnectionInput.OPEN, encode_method(0, _OPEN_OK, "")

    # -- authentication -----------------------------------------------------------------------------------

    def _receive_start_ok(self, client_properties: Any, mechanism: str, response: bytes, locale: str) -> bytes:
        """Authenticate the user; return connection.tune."""
        self.client_properties = client_properties
        self.capabilities = Capabilities(client_properties)
        if mechanism not in self._mechanisms():
            raise Refusal(f"unsupported authentication mechanism '{mechanism}'")
        server, address = self._server, self._peer[0]
        username, secret = self._read_login(mechanism, response)
        if self._attempt is None:
            login = Login(username, secret, address, is_loopback(address), AMQP)
            self._attempt = server.backends.attempt(login)
        throttle = server.accounts.throttle
        try:
            user = self._attempt.user()
        except Refused as refused:
            delay = throttle.failed(address, username, server.loop.time())
            refusal = self._login_refusal(str(refused), mechanism, delay)
            refusal.login = shortened(username), mechanism, str(refused)
            raise refusal from None
        throttle.succeeded(address, username)
        self.user = user
        self.auth_mechanism = mechanism
        settings = server.settings
        return encode_method(0, _TUNE, settings.channel_max, settings.frame_max, settings.heartbeat)

    def _read_login(self, mechanism: str, response: bytes) -> tuple[str, bytes | None]:
        """Return the user name and password that the client has sent, or the name in its certificate."""
        if mechanism != _EXTERNAL:
            try:
                return MECHANISMS[mechanism](response)
            except MalformedResponse as malformed:
                raise Refusal(f"malformed response of mechanism {mechanism}: {malformed}") from None
        username, problem = self._certified_user()
        if problem:
            server, address = self._server, self._peer[0]
            server.accounts.attempts.count(AMQP, False)
            delay = server.accounts.throttle.failed(address, username, server.loop.time())
            raise self._login_refusal(problem, mechanism, delay)
        return username, None

    def _mechanisms(self) -> list[str]:
        """Return the SASL mechanisms offered to this client."""
        offered = self._server.settings.auth_mechanisms
        return [each for each in offered if each != _EXTERNAL or self._tls is not None]

    def _certified_user(self) -> tuple[str, str]:
        """Return the user name in the client certificate, and why there is none."""
        tls = self._tls
        if tls is None or not tls.is_certified:
            return "", "connection peer presented no TLS (x.509) certificate"
        name = tls.login(self._server.settings.ssl_cert_login_from)
        return ("", "no name found") if name is None else (name, "")

    def _login_refusal(self, why: str, mechanism: str, delay: float) -> Refusal:
        reason = f"{mechanism} login refused: {why}"
        if not self.capabilities.authentication_failure_close:
            return Refusal(reason, delay=delay)
        text = f"Login was refused using authentication mechanism {mechanism}. For details see the broker logfile."
        return Refusal(reason, ConnectionFault(ReplyCode.ACCESS_REFUSED, text, 0), delay)

    # -- tuning and opening -------------------------------------------------------------------------------

    def _receive_tune_ok(self, channel_max: int, frame_max: int, heartbeat: int) -> None:
        settings = self._server.settings
        if not FRAME_MIN_SIZE <= frame_max <= settings.frame_max:
            raise Refusal(f"negotiated frame_max = {frame_max} is outside {FRAME_MIN_SIZE}..{settings.frame_max}")
        if settings.channel_max and not 1 <= channel_max <= settings.channel_max:
            raise Refusal(f"negotiated channel_max = {channel_max} is outside 1..{settings.channel_max}")
        self.channel_max, self.frame_max, self.heartbeat = channel_max or 65535, frame_max, heartbeat

    def _receive_open(self, vhost_name: str, capabilities: str, insist: bool) -> None:
        """Open the virtual host, with the checks in RabbitMQ's order."""
        vhost = self._check_limits(vhost_name, self.user)
        refusal = f"access to vhost '{vhost_name}' refused for user '{self.user.name}'"
        try:
            is_allowed = self._server.accounts.enters(self.user, vhost_name)
        except Unavailable as unavailable:
            is_allowed, refusal = False, refusal + unavailable.suffix
        if not is_allowed:
            raise _not_allowed(refusal)
        self.vhost = vhost

    def _check_limits(self, vhost_name: str, user: User) -> VirtualHost:
        broker = self._server.broker
        limit = self._server.settings.connection_max
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


def _unexpected(state: ConnectionState, event: Event) -> Exception:
    """Return the answer to an event that is not the expected method."""
    if isinstance(event, WireFault):
        return event
    undecodable = isinstance(event, AmqpFault) and event.code is ReplyCode.INTERNAL_ERROR
    if undecodable or state is not ConnectionState.AWAIT_OPEN:
        is_too_large = isinstance(event, AmqpFault) and "{frame_too_large," in event.explanation
        return Refusal(
            f"{'frame above initial_frame_max' if is_too_large else 'unexpected input'} during the handshake"
        )
    if isinstance(event, AmqpFault):
        return event
    assert isinstance(event, MethodReceived), "runs are of channels, which are refused here"
    text = "unexpected method in connection state opening"
    return ConnectionFault(ReplyCode.CHANNEL_ERROR, text, event.method.index)


def _explain(header: bytes) -> str:
    """Describe an invalid protocol header for the log."""
    if header[:2] == _TLS_HANDSHAKE:
        return "the client speaks TLS, but this is a port without TLS"
    if header[:4] in _HTTP:
        return "the client speaks HTTP, but this is a port for AMQP"
    return f"bad protocol header {format_binary(header)}"


def _not_allowed(explanation: str) -> ConnectionFault:
    return ConnectionFault(ReplyCode.NOT_ALLOWED, explanation)
