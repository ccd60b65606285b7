"""Clients that fail to get TLS, each in one way."""

from __future__ import annotations

import datetime
import socket
import ssl
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import trustme

from tests.integration.certificates import Authority, Issued

HOST: Final = "127.0.0.1"
PROTOCOL: Final = b"AMQP\x00\x00\x09\x01"


@dataclass(frozen=True)
class Certificates:
    """What the clients of the tests have."""

    authority: Authority
    client: Issued
    expired: Issued
    foreign: Issued


def make_certificates(folder: Path) -> Certificates:
    """Make them."""
    authority, other = folder / "authority", folder / "other"
    authority.mkdir()
    other.mkdir()
    ours = Authority(authority)
    yesterday = datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=1)
    return Certificates(
        ours,
        ours.issue(common_name="client"),
        ours.issue(common_name="client", expires=yesterday),
        Authority(other).issue(common_name="client"),
    )


def _context(certificates: Certificates, issued: Issued | None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(certificates.authority.file))
    if issued is not None:
        context.load_cert_chain(issued.certificate, issued.key)
    return context


def _good(certificates: Certificates) -> ssl.SSLContext:
    return _context(certificates, certificates.client)


def _other_authority(certificates: Certificates) -> ssl.SSLContext:
    context = ssl.create_default_context()
    trustme.CA().configure_trust(context)
    return context


def _old_version(certificates: Certificates) -> ssl.SSLContext:
    context = _good(certificates)
    # Without this OpenSSL does not even try.
    context.set_ciphers("DEFAULT@SECLEVEL=0")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        context.minimum_version = ssl.TLSVersion.TLSv1
        context.maximum_version = ssl.TLSVersion.TLSv1_1
    return context


@dataclass(frozen=True)
class Failure:
    """One way to fail."""

    title: str
    port: str
    context: Callable[[Certificates], ssl.SSLContext] | None
    log: str
    seen: str
    greeting: bytes = PROTOCOL
    server_name: str = HOST


FAILURES: Final = (
    Failure(
        "the client does not know the authority of the broker's certificate (wrong CA)",
        "amqps",
        _other_authority,
        "TLS: the client does not trust the authority that has issued ssl_options.certfile",
        "certificate verify failed",
    ),
    Failure(
        "the broker's certificate is for another host",
        "amqps",
        _good,
        "TLS: the client refuses the broker's certificate, for example because of the host name",
        "certificate verify failed: Hostname mismatch",
        server_name="broker.example.org",
    ),
    Failure(
        "the client has no certificate",
        "amqps",
        lambda certificates: _context(certificates, None),
        "TLS: the client has sent no certificate, which ssl_options.fail_if_no_peer_cert requires",
        "certificate required",
    ),
    Failure(
        "the client's certificate has expired",
        "amqps",
        lambda certificates: _context(certificates, certificates.expired),
        "TLS: the client's certificate is refused: certificate has expired",
        "certificate expired",
    ),
    Failure(
        "the client's certificate is of an authority that the broker does not know",
        "amqps",
        lambda certificates: _context(certificates, certificates.foreign),
        "TLS: the client's certificate is refused: unable to get local issuer certificate; no authority in"
        " ssl_options.cacertfile has issued it",
        "unknown ca",
    ),
    Failure(
        "the client speaks TLS 1.1 at best",
        "amqps",
        _old_version,
        "TLS: the client supports no version of TLS that ssl_options.versions allows",
        "protocol version",
    ),
    Failure(
        "a client without TLS on the port for TLS",
        "amqps",
        None,
        "TLS: the client does not speak TLS, but this is a port for TLS",
        "",
    ),
    Failure(
        "HTTP on the port for TLS",
        "amqps",
        None,
        "TLS: the client speaks HTTP without TLS on a port for TLS",
        "",
        greeting=b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n",
    ),
    Failure(
        "a client with TLS on the port without",
        "amqp",
        _good,
        "the client speaks TLS, but this is a port without TLS",
        "wrong version number",
    ),
    Failure(
        "the client connects and says nothing",
        "amqps",
        None,
        "TLS: no handshake within 5 s",
        "",
        greeting=b"",
    ),
)


def fail(failure: Failure, certificates: Certificates, address: str) -> tuple[str, str]:
    """Connect, and fail."""
    host, port = address.rsplit(":", 1)
    with socket.create_connection((host, int(port)), timeout=120) as plain:
        own = "{}:{}".format(*plain.getsockname())
        try:
            if failure.context is None:
                plain.sendall(failure.greeting)
                return own, _read_all(plain)
            context = failure.context(certificates)
            with context.wrap_socket(plain, server_hostname=failure.server_name) as encrypted:
                encrypted.sendall(failure.greeting)
                return own, _read_all(encrypted)
        except OSError as error:
            return own, f"{type(error).__name__}: {error}"


def _read_all(sock: socket.socket) -> str:
    octets = b""
    while more := sock.recv(4096):
        octets += more
    return f"read {octets!r}, then the end"
