"""TLS for the listening sockets, with certificates that can be replaced while the broker runs.

Source: https://www.rabbitmq.com/docs/ssl
"""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from contextvars import ContextVar
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
    if options.cacertfile is not None:
        _load_authorities(context, options.cacertfile)


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


def _load_authorities(context: ssl.SSLContext, path: Path) -> None:
    _check_readable("cacertfile", path)
    try:
        context.load_verify_locations(path)
    except ssl.SSLError as error:
        raise TlsError(f"ssl_options.cacertfile: {path} holds no certificate in PEM form") from error


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
