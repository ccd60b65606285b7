"""Connections to LDAP servers, and the threads that wait for them.

The library blocks, so each login or check is a job of one of a few threads, with one connection. It has a deadline,
after which its connection is shut down, whatever the server does.
"""

from __future__ import annotations

import asyncio
import importlib
import logging
import re
import socket
import ssl
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from threading import Lock
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, TypeVar

from leveret.broker.auth.ldap.queries import QueryFailed
from leveret.broker.config.auth import AuthLdap, AuthLdapSslOptions
from leveret.broker.config.config_errors import ConfigError

if TYPE_CHECKING:
    import ldap3

T = TypeVar("T")
_Entry: TypeAlias = dict[str, Any]
_Scope: TypeAlias = Literal["BASE", "LEVEL", "SUBTREE"]

log = logging.getLogger("leveret.ldap")

#: Result codes of LDAP (RFC 4511, 4.1.9).
_SUCCESS: Final = 0
_REFERRAL: Final = 10
_INVALID_CREDENTIALS: Final = 49
#: RabbitMQ's words for what can fail.
CONNECT_ERROR: Final = "ldap_connect_error"
BIND_ERROR: Final = "ldap_bind_error"
TIMEOUT: Final = "timeout"
#: Seconds for which a server that took no connection is asked after the others.
_AWAY_SECONDS: Final = 30.0
#: Spaces around a comma that separates.
_SPACES: Final = re.compile(r"\s*(?<!\\),\s*")
#: Attribute without a value, for searches that want none (RFC 4511, 4.5.1.8).
_NO_ATTRIBUTES: Final = "1.1"


class InvalidCredentials(Exception):
    """The server does not accept a DN and password."""


class DirectoryError(Exception):
    """The servers cannot be asked.

    Args:
        reason: RabbitMQ's word for it.
        detail: What happened, for the log.
    """

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason


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


@dataclass(frozen=True, slots=True)
class Bind:
    """As whom a connection is used.

    Args:
        dn: The entry, or a name that the server knows as one.
        password: Its password; an empty one is refused, as it would prove nothing (RFC 4513, 5.1.2).
        is_configured: Whether it is an entry of the options, and not of a user.
    """

    dn: str
    password: bytes = field(repr=False)
    is_configured: bool = False


class BoundDirectory:
    """A connection to a server as someone; see Directory.

    Args:
        connection: As ldap3 has it.
        group_base: DN below which groups are searched.
    """

    def __init__(self, connection: ldap3.Connection, group_base: str) -> None:
        self._connection = connection
        self._group_base = group_base

    def exists(self, dn: str) -> bool:
        """Return whether there is an entry."""
        return bool(self._search(dn, "(objectClass=*)", "BASE"))

    def has_value(self, dn: str, attribute: str, value: str) -> bool:
        """Return whether an attribute of an entry has a value."""
        return bool(self._search(dn, f"({attribute}={_escaped(value)})", "BASE"))

    def values(self, dn: str, attribute: str) -> list[str]:
        """Return the values of an attribute of an entry."""
        for entry in self._search(dn, "(objectClass=*)", "BASE", attribute):
            for name, values in entry["raw_attributes"].items():
                if name.casefold() == attribute.casefold():
                    return [value.decode("utf-8", "surrogateescape") for value in values]
        return []

    def find(self, base: str, attribute: str, value: str, is_subtree: bool = True) -> list[str]:
        """Return the DNs of the entries below another that have a value."""
        found = self._search(base, f"({attribute}={_escaped(value)})", "SUBTREE" if is_subtree else "LEVEL")
        return [entry["dn"] for entry in found]

    def is_in_nested(self, dn: str, group: str, attribute: str, is_subtree: bool) -> bool:
        """Return whether an entry is in a group, or in a group that is in it, to any depth."""
        wanted, known, names = _comparable(group), set[str](), [dn]
        while names:
            name = names.pop()
            for found in self.find(self._group_base, attribute, name, is_subtree):
                key = _comparable(found)
                if key == wanted:
                    return True
                if key not in known:
                    known.add(key)
                    names.append(found)
        return False

    def _search(self, base: str, condition: str, scope: _Scope, attribute: str = _NO_ATTRIBUTES) -> list[_Entry]:
        try:
            base.encode()
            condition.encode()
        except UnicodeEncodeError:
            raise QueryFailed("a name is not UTF-8") from None
        _, result, entries, _ = self._connection.search(base, condition, scope, attributes=[attribute])
        if result["result"] == _REFERRAL:
            raise QueryFailed(f"{base}: referrals are not followed")
        if result["result"] != _SUCCESS:
            raise QueryFailed(f"{base}: {result['description']}")
        return [entry for entry in entries or () if entry["type"] == "searchResEntry"]


class _Connection:
    """One connection.

    Args:
        host: Name or address of the server.
        seconds: Time limit of connecting; None for none.
    """

    def __init__(self, servers: Servers, host: str, seconds: float | None) -> None:
        import ldap3

        self.idle_since = 0.0
        tls = None if servers.tls is None else _tls(servers.tls, servers.server_name or host)
        uses_ssl = tls is not None and not servers.is_starttls
        server = ldap3.Server(
            host, servers.port, use_ssl=uses_ssl, tls=tls, get_info=ldap3.NONE, connect_timeout=seconds
        )
        self._connection = ldap3.Connection(
            server, client_strategy=ldap3.SAFE_SYNC, auto_referrals=False, check_names=False, read_only=True
        )
        self._seconds = servers.seconds
        self._starts_tls = tls is not None and servers.is_starttls
        self.directory = BoundDirectory(self._connection, servers.group_base)

    def open(self) -> None:
        self._connection.open(read_server_info=False)
        if self._starts_tls:
            self._connection.start_tls(read_server_info=False)
        # The library leaves the time limit of connecting.
        self._connection.socket.settimeout(self._seconds)

    def bind(self, bind: Bind) -> None:
        import ldap3

        if not bind.password or not bind.dn:
            raise InvalidCredentials
        connection = self._connection
        # The library has types for texts only, and normalizes these.
        password: Any = bind.password
        connection.user, connection.password, connection.authentication = bind.dn, password, ldap3.SIMPLE
        try:
            _, result, _, _ = connection.bind(read_server_info=False)
        finally:
            connection.user = connection.password = None
        if result["result"] == _INVALID_CREDENTIALS:
            if bind.is_configured:
                raise DirectoryError(BIND_ERROR, f"the server does not accept the configured password of {bind.dn}")
            raise InvalidCredentials
        if result["result"] != _SUCCESS:
            raise DirectoryError(BIND_ERROR, f"bind: {result['description']}")

    def shut_down(self) -> None:
        """End what a thread waits for."""
        opened = self._connection.socket
        if opened is not None:
            with suppress(OSError):
                socket.socket.shutdown(opened, socket.SHUT_RDWR)

    def close(self) -> None:
        with suppress(Exception):
            self._connection.unbind()
        # The library keeps one that it could not open.
        opened = self._connection.socket
        if opened is not None:
            with suppress(OSError):
                opened.close()


class _Job:
    """What a thread does; the loop may end it."""

    def __init__(self) -> None:
        self.is_over = False
        self._connection: _Connection | None = None

    @contextmanager
    def using(self, connection: _Connection) -> Iterator[None]:
        self._connection = connection
        try:
            yield
        finally:
            self._connection = None

    def end(self) -> None:
        self.is_over = True
        connection = self._connection
        if connection is not None:
            connection.shut_down()


class Connections:
    """Runs jobs in threads, with connections that are used again.

    Args:
        servers: Where they lead.
    """

    def __init__(self, servers: Servers) -> None:
        self._servers = servers
        self._threads = ThreadPoolExecutor(servers.size, "leveret-ldap")
        self._clock = asyncio.get_running_loop().time
        self._lock = Lock()
        #: Those nobody has logged in on, and the others: as in RabbitMQ, anonymous means that nobody has.
        self._idle: dict[bool, list[_Connection]] = {True: [], False: []}
        self._away: dict[str, float] = {}
        self._sweep: asyncio.TimerHandle | None = None

    async def run(self, bind: Bind | None, ask: Callable[[BoundDirectory], T]) -> T:
        """Ask the directory something.

        Args:
            bind: As whom; None for anonymously.
            ask: Runs in a thread.
        Returns:
            What `ask` returns.
        Raises:
            InvalidCredentials: The servers do not know this password.
            QueryFailed: As `ask` does.
            DirectoryError: No server can be asked, or not in time.
        """
        job = _Job()
        future = asyncio.get_running_loop().run_in_executor(self._threads, self._work, job, bind, ask)
        try:
            async with asyncio.timeout(self._servers.seconds):
                return await future
        except TimeoutError:
            raise DirectoryError(TIMEOUT, f"no answer within {self._servers.seconds} s") from None
        finally:
            job.end()
            self._schedule_sweep()

    def _work(self, job: _Job, bind: Bind | None, ask: Callable[[BoundDirectory], T]) -> T:
        while True:
            connection, is_new = self._take(job, bind is None)
            try:
                with job.using(connection):
                    if bind is not None:
                        connection.bind(bind)
                    result = ask(connection.directory)
            except (InvalidCredentials, QueryFailed, DirectoryError):
                self._give_back(connection, bind is None)
                raise
            except Exception as error:  # noqa: BLE001 - the library raises many, also of what decodes nonsense
                connection.close()
                if is_new or job.is_over:
                    raise DirectoryError(CONNECT_ERROR, _told(error)) from None
                # The server has closed it meanwhile.
                continue
            self._give_back(connection, bind is None)
            return result

    def _take(self, job: _Job, is_anonymous: bool) -> tuple[_Connection, bool]:
        """Return a connection, and whether it is a new one."""
        found: _Connection | None = None
        with self._lock:
            idle = self._idle[is_anonymous]
            if idle:
                found = idle.pop()
        if found is not None and self._is_old(found):
            found.close()
            found = None
        return (self._open(job), True) if found is None else (found, False)

    def _open(self, job: _Job) -> _Connection:
        servers, now = self._servers, self._clock()
        # Each has its share of the time.
        seconds = None if servers.seconds is None else servers.seconds / (len(servers.hosts) + 1)
        failures = []
        for host in sorted(servers.hosts, key=lambda each: self._away.get(each, 0.0) > now):
            if job.is_over:
                break
            connection = _Connection(servers, host, seconds)
            try:
                with job.using(connection):
                    connection.open()
            except Exception as error:  # noqa: BLE001 - as above
                connection.close()
                self._away[host] = now + _AWAY_SECONDS
                failures.append(f"{host}: {_told(error)}")
            else:
                self._away.pop(host, None)
                return connection
        raise DirectoryError(CONNECT_ERROR, "; ".join(failures) or "too late")

    def _is_old(self, connection: _Connection) -> bool:
        limit = self._servers.idle_seconds
        return limit is not None and self._clock() - connection.idle_since > limit

    def _give_back(self, connection: _Connection, is_anonymous: bool) -> None:
        connection.idle_since = self._clock()
        if self._servers.idle_seconds == 0:
            connection.close()
            return
        with self._lock:
            self._idle[is_anonymous].append(connection)

    def _schedule_sweep(self) -> None:
        seconds = self._servers.idle_seconds
        if seconds and self._sweep is None and any(self._idle.values()):
            self._sweep = asyncio.get_running_loop().call_later(seconds, self._close_old)

    def _close_old(self) -> None:
        self._sweep = None
        with self._lock:
            old = [each for idle in self._idle.values() for each in idle if self._is_old(each)]
            for kind, idle in self._idle.items():
                self._idle[kind] = [each for each in idle if each not in old]
        for each in old:
            self._threads.submit(each.close)
        self._schedule_sweep()

    async def close(self) -> None:
        """Close all connections."""
        if self._sweep is not None:
            self._sweep.cancel()
        with self._lock:
            idle = [each for kind in self._idle.values() for each in kind]
            self._idle = {True: [], False: []}
        for each in idle:
            each.shut_down()
            self._threads.submit(each.close)
        self._threads.shutdown(wait=False, cancel_futures=False)


def _tls(context: ssl.SSLContext, name: str) -> ldap3.Tls:
    """Return what ldap3 encrypts with: a context of ours, which checks certificates and names as Python does now."""
    import ldap3

    class Tls(ldap3.Tls):
        def wrap_socket(self, connection: ldap3.Connection, do_handshake: bool = False) -> None:
            # There before the handshake, so that the handshake can be ended.
            connection.socket = context.wrap_socket(
                connection.socket, server_hostname=name, do_handshake_on_connect=False
            )
            connection.socket.do_handshake()

    return Tls()


def _escaped(value: str) -> str:
    from ldap3.utils.conv import escape_filter_chars

    return str(escape_filter_chars(value))


def _comparable(dn: str) -> str:
    """Return a DN as it is compared: without regard to case and to spaces around its parts."""
    return _SPACES.sub(",", dn.strip()).casefold()


def _told(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
