"""Where the LDAP servers are, and how connections to them are encrypted."""

from __future__ import annotations

import importlib
import ssl
from dataclasses import dataclass

from leveret.broker.config.config_errors import ConfigError
from leveret.broker.config.auth import AuthLdap, AuthLdapSslOptions


@dataclass(frozen=True, slots=True)
class Servers:
    """Where the directory is.

    Args:
        hosts: Names or addresses, in the order in which they are tried.
        port: Their port.
        tls: Encrypts connections; None for plain ones.
        is_starttls: Whether encryption begins after the connection.
        server_name: Name that certificates must have; "" for that of the host.
        seconds: Time limit of a job; None for none.
        idle_seconds: How long connections are kept without use; None for ever, 0 for not at all.
        size: How many jobs there are at a time, and so connections.
        group_base: DN below which groups are searched.
    """

    hosts: tuple[str, ...]
    port: int
    tls: ssl.SSLContext | None
    is_starttls: bool
    server_name: str
    seconds: float | None
    idle_seconds: float | None
    size: int
    group_base: str


def read_servers(options: AuthLdap) -> Servers:
    """Return what the options say.

    Raises:
        ConfigError: They cannot be used, or the library is missing; the text names the option.
    """
    if not options.servers:
        raise ConfigError("auth_ldap.servers: give at least one LDAP server")
    try:
        # It takes a tenth of a second, which no login should.
        importlib.import_module("ldap3")
    except ModuleNotFoundError as error:
        text = f"auth_backends: ldap needs the Python package {error.name}: pip install 'leveret[ldap]'"
        raise ConfigError(text) from None
    encrypts = options.use_ssl or options.use_starttls
    return Servers(
        hosts=options.servers,
        port=options.port,
        tls=_tls_context(options.ssl_options) if encrypts else None,
        is_starttls=not options.use_ssl,
        server_name=options.ssl_options.sni or "",
        seconds=_seconds(options.timeout),
        idle_seconds=_seconds(options.idle_timeout),
        size=options.connection_pool_size,
        group_base=options.group_lookup_base or options.dn_lookup_base or "",
    )


def _seconds(milliseconds: int | None) -> float | None:
    return None if milliseconds is None else milliseconds / 1000


def _tls_context(options: AuthLdapSslOptions) -> ssl.SSLContext:
    option = "cacertfile"
    try:
        context = ssl.create_default_context(cafile=options.cacertfile)
        if options.verify == "verify_none":
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        option = "certfile"
        if options.certfile is not None:
            # Without a callback OpenSSL would ask for the password on the terminal.
            context.load_cert_chain(options.certfile, options.keyfile, lambda: options.password or "")
    except OSError as error:
        path = getattr(options, option)
        raise ConfigError(f"auth_ldap.ssl_options.{option}: cannot use {path}: {error.strerror or error}") from None
    return context
