"""TLS for the listening sockets, with certificates that can be replaced while the broker runs; when they expire.

Source: https://www.rabbitmq.com/docs/ssl
"""

from __future__ import annotations

import asyncio
import re
import socket
import ssl
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from leveret.broker.config.options import SslOptions

_VERSIONS: Final = {"tlsv1.2": ssl.TLSVersion.TLSv1_2, "tlsv1.3": ssl.TLSVersion.TLSv1_3}


#: Collects the TLS alerts of a failed handshake in the current context; None to drop them.
ALERTS: Final[ContextVar[list[bytes] | None]] = ContextVar("ALERTS", default=None)


class TlsError(Exception):
    """TLS cannot be set up; the text says in one line why, and what to do."""


class Tls:
    """Reloadable TLS configuration of the listening sockets.

    Args:
        options: Certificate, key, and requirements for clients.
    Raises:
        TlsError: They cannot be used.

    Attributes:
        context: SSL context for new connections.
    """

    def __init__(self, options: SslOptions) -> None:
        self.context = _make_context(options)

    def reload(self, options: SslOptions) -> None:
        """Read the files again, for new connections; existing connections are not affected.

        Raises:
            TlsError: They cannot be used; the previous configuration stays in use.
        """
        self.context = _make_context(options)


class _Connection(ssl.SSLObject):
    """SSL connection that keeps the alert of a failed handshake: event loops drop it, and the client gets no reason."""

    outgoing: ssl.MemoryBIO
    alerts: list[bytes] | None

    def do_handshake(self) -> None:
        """Continue the handshake."""
        try:
            super().do_handshake()
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise
        except ssl.SSLError:
            if self.alerts is not None:
                self.alerts.append(self.outgoing.read())
            raise


class _Context(ssl.SSLContext):
    """SSL context that creates such connections."""

    sslobject_class = _Connection

    def wrap_bio(
        self,
        incoming: ssl.MemoryBIO,
        outgoing: ssl.MemoryBIO,
        server_side: bool = False,
        server_hostname: str | bytes | None = None,
        session: ssl.SSLSession | None = None,
    ) -> ssl.SSLObject:
        """Create a connection on two buffers."""
        made = super().wrap_bio(incoming, outgoing, server_side, server_hostname, session)
        assert isinstance(made, _Connection)
        made.outgoing, made.alerts = outgoing, ALERTS.get()
        return made


def find_problems(options: SslOptions) -> Iterator[tuple[str, str]]:
    """Yield all errors of the options and of the files that they name.

    Yields:
        Dotted name of the option, and the error text, which begins with that name.
    """
    context = _Context(ssl.PROTOCOL_TLS_SERVER)
    problems: dict[str, str] = {}
    for step in _STEPS:
        try:
            step(context, options)
        except TlsError as error:
            problems.setdefault(str(error).partition(":")[0], str(error))
    yield from problems.items()


def _make_context(options: SslOptions) -> ssl.SSLContext:
    context = _Context(ssl.PROTOCOL_TLS_SERVER)
    for step in _STEPS:
        step(context, options)
    return context


def _set_versions(context: ssl.SSLContext, options: SslOptions) -> None:
    versions = [_VERSIONS[name] for name in options.versions]
    context.minimum_version, context.maximum_version = min(versions), max(versions)


def _set_ciphers(context: ssl.SSLContext, options: SslOptions) -> None:
    if options.honor_cipher_order:
        context.options |= ssl.OP_CIPHER_SERVER_PREFERENCE
    try:
        if options.ciphers:
            context.set_ciphers(":".join(options.ciphers))
    except ssl.SSLError as error:
        raise TlsError(f"ssl_options.ciphers: OpenSSL supports none of {', '.join(options.ciphers)}") from error


def _check_certificate(context: ssl.SSLContext, options: SslOptions) -> None:
    _require_file("certfile", options.certfile)


def _check_key(context: ssl.SSLContext, options: SslOptions) -> None:
    _require_file("keyfile", options.keyfile)


def _set_certificate(context: ssl.SSLContext, options: SslOptions) -> None:
    certificate, key = _require_file("certfile", options.certfile), _require_file("keyfile", options.keyfile)
    # Without a callback OpenSSL would ask for the password on the terminal.
    password = options.password or ""
    try:
        context.load_cert_chain(certificate, key, lambda: password)
    except ssl.SSLError as error:
        raise TlsError(_describe_key_error(certificate, key, error)) from error


def _set_authorities(context: ssl.SSLContext, options: SslOptions) -> None:
    path = options.cacertfile
    if path is None:
        return
    _check_readable("cacertfile", path)
    try:
        context.load_verify_locations(path)
    except ssl.SSLError as error:
        raise TlsError(f"ssl_options.cacertfile: {path} holds no certificate in PEM form") from error


def _set_verification(context: ssl.SSLContext, options: SslOptions) -> None:
    if options.verify == "verify_peer":
        if options.cacertfile is None:
            raise TlsError("ssl_options.verify: verify_peer requires ssl_options.cacertfile")
        context.verify_mode = ssl.CERT_REQUIRED if options.fail_if_no_peer_cert else ssl.CERT_OPTIONAL
    elif options.fail_if_no_peer_cert:
        raise TlsError("ssl_options.fail_if_no_peer_cert: requires ssl_options.verify: verify_peer")


_STEPS: Final = (
    _set_versions,
    _set_ciphers,
    _check_certificate,
    _check_key,
    _set_certificate,
    _set_authorities,
    _set_verification,
)


def _describe_key_error(certificate: Path, key: Path, error: ssl.SSLError) -> str:
    if error.reason == "KEY_VALUES_MISMATCH":
        return f"ssl_options.keyfile: {key} is not the key of the certificate in {certificate}"
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_verify_locations(certificate)
    except ssl.SSLError:
        return f"ssl_options.certfile: {certificate} holds no certificate in PEM form"
    return f"ssl_options.keyfile: {key} holds no private key in PEM form, or ssl_options.password is not its password"


def _require_file(name: str, path: Path | None) -> Path:
    if path is None:
        raise TlsError(f"ssl_options.{name}: TLS requires ssl_options.certfile and ssl_options.keyfile")
    _check_readable(name, path)
    return path


def _check_readable(name: str, path: Path) -> None:
    try:
        with path.open("rb"):
            pass
    except OSError as error:
        raise TlsError(f"ssl_options.{name}: cannot read {path}: {error.strerror}") from error


# -- the handshake of an accepted connection, and reasons for its failure ------------------------------------

#: Texts by OpenSSL's reason.
_REASONS: Final = {
    "HTTP_REQUEST": "the client speaks HTTP without TLS on a port for TLS",
    "HTTPS_PROXY_REQUEST": "the client speaks HTTP without TLS on a port for TLS",
    "INAPPROPRIATE_FALLBACK": "the client has fallen back to an older version of TLS than both sides support",
    "NO_PROTOCOLS_AVAILABLE": "the client supports no version of TLS that ssl_options.versions allows",
    "NO_SHARED_CIPHER": "the client offers no cipher suite that the broker supports",
    "NO_SUITABLE_SIGNATURE_ALGORITHM": "the client supports no signature algorithm of the key in ssl_options.keyfile",
    "PACKET_LENGTH_TOO_LONG": "the client does not speak TLS, but this is a port for TLS",
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": (
        "the client has sent no certificate, which ssl_options.fail_if_no_peer_cert requires"
    ),
    "RECORD_LAYER_FAILURE": "the client does not speak TLS, but this is a port for TLS",
    "UNEXPECTED_MESSAGE": "the client does not speak TLS, but this is a port for TLS",
    "UNSUPPORTED_PROTOCOL": "the client supports no version of TLS that ssl_options.versions allows",
    "VERSION_TOO_LOW": "the client supports no version of TLS that ssl_options.versions allows",
    "WRONG_SSL_VERSION": "the client does not speak TLS, but this is a port for TLS",
    "WRONG_VERSION_NUMBER": "the client does not speak TLS, but this is a port for TLS",
}
_UNTRUSTED: Final = "the client does not trust the authority that has issued ssl_options.certfile"
#: Texts by the alert of a client that refuses the handshake.
_ALERTS: Final = {
    "TLSV1_ALERT_UNKNOWN_CA": _UNTRUSTED,
    "SSLV3_ALERT_BAD_CERTIFICATE": "the client refuses the broker's certificate, for example because of the host name",
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": "the client refuses the broker's certificate, which has expired",
    "SSLV3_ALERT_CERTIFICATE_REVOKED": "the client refuses the broker's certificate, which has been revoked",
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": "the client refuses the broker's certificate",
    "SSLV3_ALERT_HANDSHAKE_FAILURE": "the client shares no TLS parameters with the broker",
    "TLSV1_ALERT_PROTOCOL_VERSION": "the client supports no version of TLS that ssl_options.versions allows",
}
#: X509_V_ERR_…: the chain of the client's certificate does not end at a known authority.
_UNKNOWN_ISSUER: Final = frozenset({2, 18, 19, 20, 21})


class HandshakeFailed(Exception):
    """The TLS handshake has failed; the text says why, for the log."""


async def encrypt(sock: socket.socket, make: Callable[[], asyncio.BaseProtocol], tls: Tls, seconds: float) -> None:
    """Do the handshake on an accepted socket, and connect the encrypted connection to a protocol.

    Args:
        sock: The socket. It is closed on failure, otherwise with the connection.
        seconds: Time limit of the handshake in seconds.

    Raises:
        HandshakeFailed: The handshake has failed; the client has been sent an alert.
    """
    loop = asyncio.get_running_loop()
    alerts: list[bytes] = []
    token = ALERTS.set(alerts)
    # Event loops close the socket of a failed handshake before they send the alert.
    spare = sock.dup()
    try:
        await loop.connect_accepted_socket(make, sock, ssl=tls.context, ssl_handshake_timeout=seconds)
    except (OSError, EOFError) as error:
        _send_alert(spare, b"".join(alerts))
        raise HandshakeFailed(describe_failure(error, seconds)) from error
    finally:
        ALERTS.reset(token)
        spare.close()


def _send_alert(sock: socket.socket, alert: bytes) -> None:
    """Send OpenSSL's alert to the client, which the event loop has not sent."""
    try:
        if alert:
            sock.send(alert)
        sock.shutdown(socket.SHUT_WR)
    except OSError:
        # The client has disconnected, or does not read.
        pass


def describe_failure(error: OSError | EOFError, seconds: float) -> str:
    """Return why a handshake has failed, for the log.

    Args:
        error: The exception of the handshake.
        seconds: Time limit of the handshake in seconds.
    """
    if isinstance(error, ssl.SSLCertVerificationError):
        text = f"the client's certificate is refused: {error.verify_message}"
        if error.verify_code in _UNKNOWN_ISSUER:
            text += "; no authority in ssl_options.cacertfile has issued it"
        return text
    if isinstance(error, ssl.SSLError):
        reason = error.reason or str(error)
        return _REASONS.get(reason) or _ALERTS.get(reason) or reason.lower().replace("_", " ")
    if isinstance(error, ConnectionAbortedError | TimeoutError):
        return f"no handshake within {seconds:g} s"
    return "the client closed the connection"


# -- expiry ------------------------------------------------------------------------------------------------

# The ssl module reads the expiry time of a peer's certificate only, so the field is parsed here.
# Source: RFC 5280 section 4.1 (certificates), ITU-T X.690 (DER)

_PEM: Final = re.compile(r"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", re.DOTALL)
_VERSION: Final = 0xA0
_UTC_TIME: Final = 0x17
#: Fields of TBSCertificate before the validity: serial number, signature, issuer.
_BEFORE_VALIDITY: Final = 3


def valid_until(path: Path) -> list[datetime]:
    """Return the expiry times of the certificates in a file, in file order.

    Args:
        path: A PEM file; keys in it are skipped.
    Raises:
        OSError: The file cannot be read.
        ValueError: A certificate in it is malformed.
    """
    return [_not_after(ssl.PEM_cert_to_DER_cert(pem)) for pem in _PEM.findall(path.read_text("ascii", "replace"))]


def _not_after(certificate: bytes) -> datetime:
    [(_, outer)] = _elements(certificate)
    _, signed = next(_elements(outer))
    fields = _elements(signed)
    tag, _ = first = next(fields)
    rest = [*([] if tag == _VERSION else [first]), *fields]
    (_, _), (tag, end) = _elements(rest[_BEFORE_VALIDITY][1])
    text = end.decode("ascii")
    # Two-digit years are 1950 to 2049.
    if tag == _UTC_TIME:
        text = ("20" if text < "5" else "19") + text
    return datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC)


def _elements(octets: bytes) -> Iterator[tuple[int, bytes]]:
    """Iterate over the DER elements of a sequence: tag and content."""
    at = 0
    while at < len(octets):
        if at + 2 > len(octets):
            raise ValueError("the certificate ends in the middle of an element")
        tag, size = octets[at], octets[at + 1]
        at += 2
        if size & 0x80:
            digits = size & 0x7F
            size = int.from_bytes(octets[at : at + digits])
            at += digits
        if at + size > len(octets):
            raise ValueError("the certificate ends in the middle of an element")
        yield tag, octets[at : at + size]
        at += size
