"""The TLS handshake of an accepted connection, and what is said of one that fails.

The loop's own servers do the same, but tell nobody why a handshake has failed.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable
from typing import Final

from leveret.broker.tls import ALERTS, Tls

#: By OpenSSL's name of the reason.
_REASONS: Final = {
    "HTTP_REQUEST": "the client speaks HTTP without TLS on a port for TLS",
    "HTTPS_PROXY_REQUEST": "the client speaks HTTP without TLS on a port for TLS",
    "INAPPROPRIATE_FALLBACK": "the client has fallen back to an older version of TLS than both sides speak",
    "NO_PROTOCOLS_AVAILABLE": "the client speaks no version of TLS that ssl_options.versions allows",
    "NO_SHARED_CIPHER": "the client offers no cipher suite that the broker has",
    "NO_SUITABLE_SIGNATURE_ALGORITHM": "the client takes no signature that the key of ssl_options.keyfile can make",
    "PACKET_LENGTH_TOO_LONG": "the client does not speak TLS, but this is a port for TLS",
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": (
        "the client has sent no certificate, which ssl_options.fail_if_no_peer_cert requires"
    ),
    "RECORD_LAYER_FAILURE": "the client does not speak TLS, but this is a port for TLS",
    "UNEXPECTED_MESSAGE": "the client does not speak TLS, but this is a port for TLS",
    "UNSUPPORTED_PROTOCOL": "the client speaks no version of TLS that ssl_options.versions allows",
    "VERSION_TOO_LOW": "the client speaks no version of TLS that ssl_options.versions allows",
    "WRONG_SSL_VERSION": "the client does not speak TLS, but this is a port for TLS",
    "WRONG_VERSION_NUMBER": "the client does not speak TLS, but this is a port for TLS",
}
_UNTRUSTED: Final = "the client does not trust the authority that has issued ssl_options.certfile"
#: By what the client says when it is the one who refuses.
_ALERTS: Final = {
    "TLSV1_ALERT_UNKNOWN_CA": _UNTRUSTED,
    "SSLV3_ALERT_BAD_CERTIFICATE": "the client refuses the broker's certificate, for example because of the host name",
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": "the client refuses the broker's certificate, which has expired",
    "SSLV3_ALERT_CERTIFICATE_REVOKED": "the client refuses the broker's certificate, which has been revoked",
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": "the client refuses the broker's certificate",
    "SSLV3_ALERT_HANDSHAKE_FAILURE": "the client finds nothing that both sides could agree on",
    "TLSV1_ALERT_PROTOCOL_VERSION": "the client speaks no version of TLS that ssl_options.versions allows",
}
#: X509_V_ERR_…: the chain of the client's certificate does not end at a known authority.
_UNKNOWN_ISSUER: Final = frozenset({2, 18, 19, 20, 21})


class HandshakeFailed(Exception):
    """There is no TLS with this client; the text says why, for the log."""


async def encrypt(sock: socket.socket, make: Callable[[], asyncio.BaseProtocol], tls: Tls, seconds: float) -> None:
    """Do the handshake on an accepted socket, and give the encrypted connection to a protocol.

    Args:
        sock: The socket. It is closed in any case, at once or with the connection.
        make: Makes the protocol.
        tls: What to encrypt with.
        seconds: How long the handshake may take.

    Raises:
        HandshakeFailed: There is no TLS; the client has been told.
    """
    loop = asyncio.get_running_loop()
    alerts: list[bytes] = []
    watched = ALERTS.set(alerts)
    # Loops close the socket of a failed handshake before the client is told, see below.
    spare = sock.dup()
    try:
        await loop.connect_accepted_socket(make, sock, ssl=tls.context, ssl_handshake_timeout=seconds)
    except (OSError, EOFError) as error:
        _send_alert(spare, b"".join(alerts))
        raise HandshakeFailed(reason_of(error, seconds)) from error
    finally:
        ALERTS.reset(watched)
        spare.close()


def _send_alert(sock: socket.socket, alert: bytes) -> None:
    """Send what OpenSSL tells the client, which the loop has not sent."""
    try:
        if alert:
            sock.send(alert)
        sock.shutdown(socket.SHUT_WR)
    except OSError:
        # The client has gone, or reads nothing: nobody is there to be told.
        pass


def reason_of(error: OSError | EOFError, seconds: float) -> str:
    """Why a handshake has failed, for the log.

    Args:
        error: What was raised.
        seconds: How long it was given.
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
