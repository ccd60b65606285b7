"""TLS handshake of an accepted connection, and reasons for its failure.

asyncio's servers do the handshake too, but report no reason for a failure.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable
from typing import Final

from leveret.broker.tls import ALERTS, Tls

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
