"""TLS for the listening sockets, with certificates that can be replaced while the broker runs.

Source: https://www.rabbitmq.com/docs/ssl
"""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Final

from broker.config.options import SslOptions

_VERSIONS: Final = {"tlsv1.2": ssl.TLSVersion.TLSv1_2, "tlsv1.3": ssl.TLSVersion.TLSv1_3}


class TlsError(Exception):
    """TLS cannot be had; the text says why and what to do, in one line."""


class Tls:
    """What listening sockets encrypt with.

    Args:
        options: Certificate, key, and what is asked of clients.
    Raises:
        TlsError: They cannot be used.

    Attributes:
        context: For listening sockets. It stays when the certificate is replaced.
    """

    def __init__(self, options: SslOptions) -> None:
        self._current = _make_context(options)
        self.context = _make_context(options)
        self.context.sni_callback = self._choose

    def reload(self, options: SslOptions) -> None:
        """Use what the files hold now for new connections; those that are open stay as they are.

        Raises:
            TlsError: They cannot be used; nothing has changed.
        """
        self._current = _make_context(options)

    def _choose(self, connection: ssl.SSLObject, name: str | None, context: ssl.SSLContext) -> None:
        """A handshake begins, whether or not the client names a server: let it use the newest certificate."""
        connection.context = self._current


def _make_context(options: SslOptions) -> ssl.SSLContext:
    if options.certfile is None or options.keyfile is None:
        raise TlsError("TLS needs ssl_options.certfile and ssl_options.keyfile")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    versions = [_VERSIONS[name] for name in options.versions]
    context.minimum_version, context.maximum_version = min(versions), max(versions)
    if options.honor_cipher_order:
        context.options |= ssl.OP_CIPHER_SERVER_PREFERENCE
    try:
        if options.ciphers:
            context.set_ciphers(":".join(options.ciphers))
    except ssl.SSLError as error:
        raise TlsError(f"ssl_options.ciphers: OpenSSL has none of {', '.join(options.ciphers)}") from error
    # Without a function OpenSSL would ask for the password on the terminal.
    _load(context, options.certfile, options.keyfile, options.password or "")
    if options.cacertfile is not None:
        _load_authorities(context, options.cacertfile)
    if options.verify == "verify_peer":
        if options.cacertfile is None:
            raise TlsError("ssl_options.verify: verify_peer needs ssl_options.cacertfile")
        context.verify_mode = ssl.CERT_REQUIRED if options.fail_if_no_peer_cert else ssl.CERT_OPTIONAL
    elif options.fail_if_no_peer_cert:
        raise TlsError("ssl_options.fail_if_no_peer_cert needs ssl_options.verify: verify_peer")
    return context


def _load(context: ssl.SSLContext, certificate: Path, key: Path, password: str) -> None:
    for name, path in (("certfile", certificate), ("keyfile", key)):
        _check_readable(name, path)
    try:
        context.load_cert_chain(certificate, key, lambda: password)
    except ssl.SSLError as error:
        reason = error.reason or "wrong password, or no PEM file"
        raise TlsError(f"ssl_options: cannot use {certificate} with {key}: {reason}") from error


def _load_authorities(context: ssl.SSLContext, path: Path) -> None:
    _check_readable("cacertfile", path)
    try:
        context.load_verify_locations(path)
    except ssl.SSLError as error:
        raise TlsError(f"ssl_options.cacertfile: {path} holds no certificate in PEM form: {error.reason}") from error


def _check_readable(name: str, path: Path) -> None:
    try:
        with path.open("rb"):
            pass
    except OSError as error:
        raise TlsError(f"ssl_options.{name}: cannot read {path}: {error.strerror}") from error
