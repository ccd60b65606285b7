"""The HTTP server: sockets, TLS, limits of connections, and the access log, as RabbitMQ has it.

Source: https://www.rabbitmq.com/docs/management#http-logging, and RabbitMQ 3.10.8 observed.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from socket import socket
from typing import IO, Any, Final

from aiohttp import hdrs, web
from aiohttp.abc import AbstractAccessLogger
from aiohttp.http_exceptions import HttpProcessingError

from leveret.broker.addresses import Address, Refused, format_address
from leveret.broker.config.options import Settings
from leveret.broker.core.resources.sockets import Clients
from leveret.broker.management.http.connection_watch import KEEP_ALIVE_SECONDS, ConnectionWatch
from leveret.broker.management.http.logins import LOGIN_NAME
from leveret.broker.printable import escape_line
from leveret.broker.tls import HandshakeFailed, Tls, encrypt
from leveret.storage.url_secrets import MASK

log = logging.getLogger("leveret.http")


#: Header Server of all responses. It names neither libraries nor versions.
SERVER_NAME: Final = "Leveret"


class HttpServer:
    """Serves one aiohttp application.

    Args:
        clients: Counts connections and limits their number.
        access_log: Gets a line for each request; None for no log.
    """

    def __init__(
        self, app: web.Application, settings: Settings, clients: Clients, access_log: AccessLog | None = None
    ) -> None:
        self._access_log = access_log
        self._settings = settings
        self._clients = clients
        self._watch = ConnectionWatch(asyncio.get_running_loop())
        clients.count(self._watch)
        # aiohttp waits forever if the timeout is 0.
        timeout = max(settings.shutdown_timeout, 1) / 1000
        app.on_response_prepare.append(set_server_header)
        self._runner = web.AppRunner(app, access_log=None, handle_signals=False, shutdown_timeout=timeout)
        self._servers: list[asyncio.Server] = []
        self._setting_up = asyncio.Lock()

    async def start(self, sock: socket) -> None:
        """Listen on a socket, without encryption. May be called again for further sockets.

        Args:
            sock: A bound socket. The server closes it.
        """
        make, backlog = await self._protocol_factory(), self._settings.tcp_listen_options.backlog
        self._servers.append(await asyncio.get_running_loop().create_server(make, sock=sock, backlog=backlog))

    async def serve(self, tls: Tls | None, sock: socket, forwarded: Address | None = None) -> None:
        """Serve an accepted connection.

        Args:
            tls: TLS of the connection; None for no encryption.
            sock: The accepted socket. The server closes it.
            forwarded: Address of a client that another node forwards; None for the socket's own.
        """
        make, peer = await self._protocol_factory(), "?"
        if tls is not None and self._clients.refuse(with_handshake=True):
            sock.close()
            return
        self._clients.handshakes += tls is not None
        try:
            peer = format_address(*(forwarded or sock.getpeername()[:2]))
            if forwarded is not None:
                make = partial(_protocol_at, make, forwarded)
            if tls is None:
                await asyncio.get_running_loop().connect_accepted_socket(make, sock)
            else:
                await encrypt(sock, make, tls, self._settings.ssl_handshake_timeout / 1000)
        except HandshakeFailed as failure:
            log.error("closing HTTPS connection from %s: TLS: %s", peer, failure)
        except OSError:
            # The client has disconnected.
            sock.close()
        finally:
            self._clients.handshakes -= tls is not None

    async def _protocol_factory(self) -> Callable[[], asyncio.Protocol]:
        """Set up the server if necessary; return the factory of its protocols."""
        async with self._setting_up:
            if self._runner.server is None:
                await self._runner.setup()
                assert self._runner.server is not None
                self._runner.server.request_handler = self._watch.handler(self._runner.server.request_handler)
        return self._protocol

    def _protocol(self) -> asyncio.Protocol:
        assert self._runner.server is not None
        if self._is_full():
            return Refused()
        made = NamedHandler(
            self._runner.server,
            loop=asyncio.get_running_loop(),
            access_log=self._access_log,  # type: ignore[arg-type]
            access_log_class=AccessLogger,
            logger=protocol_log(),
            # A small body could inflate to a thousand times its size.
            auto_decompress=False,
            keepalive_timeout=KEEP_ALIVE_SECONDS,
        )
        return self._watch.protocol(made)

    def _is_full(self) -> bool:
        """Check whether a client must be refused. First tries to close an idle connection to make room."""
        if self._clients.is_full and self._watch.make_room():
            return False
        return self._clients.refuse()

    async def stop(self) -> None:
        """Stop listening, and end open requests within the shutdown timeout."""
        for listening in self._servers:
            listening.close()
        self._watch.stop()
        await self._runner.cleanup()
        if self._access_log is not None:
            self._access_log.close()

    async def abandon(self) -> None:
        """Stop listening, and reset all connections."""
        self._watch.abort_all()
        await self.stop()


class _ForwardedTransport:
    """A transport to a client that another node forwards, whose address it tells."""

    def __init__(self, transport: asyncio.BaseTransport, peer: Address) -> None:
        self._transport = transport
        self._peer = peer

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Return what is known of the connection."""
        return self._peer if name == "peername" else self._transport.get_extra_info(name, default)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


def _protocol_at(make: Callable[[], asyncio.Protocol], peer: Address) -> asyncio.Protocol:
    """Return a protocol that sees the address of a forwarded client."""
    protocol = make()
    made = protocol.connection_made
    protocol.connection_made = lambda transport: made(_ForwardedTransport(transport, peer))  # type: ignore[arg-type, method-assign]
    return protocol


async def set_server_header(request: web.BaseRequest, response: web.StreamResponse) -> None:
    """Set the header Server. A handler of the signal ``on_response_prepare`` of an application."""
    response.headers[hdrs.SERVER] = SERVER_NAME


class NamedHandler(web.RequestHandler):
    """A connection that sets the header Server in responses to malformed requests, too. No application sees those."""

    __slots__ = ()

    def handle_error(self, *args: Any, **options: Any) -> web.StreamResponse:
        """Return the response to a malformed request."""
        response = super().handle_error(*args, **options)
        response.headers[hdrs.SERVER] = SERVER_NAME
        return response


class _ClientFaults(logging.Filter):
    """Filter that drops errors of clients, which get status 400. Otherwise they could fill the log with tracebacks."""

    def filter(self, record: logging.LogRecord) -> bool:
        fault = record.exc_info[1] if record.exc_info else None
        return not isinstance(fault, HttpProcessingError | web.RequestPayloadError)


def protocol_log() -> logging.Logger:
    """Return the logger for connections of HTTP clients."""
    log = logging.getLogger("leveret.http.protocol")
    if not log.filters:
        log.addFilter(_ClientFaults())
    return log


# -- access log -------------------------------------------------------------------------------------------

_HASHED: Final = re.compile("(?<=/auth/hash_password/).*")
_MONTHS: Final = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


class AccessLog:
    """Writes a line for each request in the common log format, referrer and agent behind it; a file for each hour.

    Args:
        directory: Where the files are; it is made if it is missing.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._hour = ""
        self._file: IO[str] | None = None
        self._has_failed = False

    def note(self, request: web.BaseRequest, response: web.StreamResponse) -> None:
        """Write the line of a request."""
        now = datetime.now(UTC)
        try:
            self._open(now).write(line_of(request, response, now))
        except OSError as error:
            if not self._has_failed:
                log.error("the access log cannot be written to %s: %s", self._directory, error)
            self._has_failed = True
            self.close()

    def _open(self, now: datetime) -> IO[str]:
        hour = now.strftime("%Y_%m_%d_%H")
        if self._file is None or hour != self._hour:
            self.close()
            self._directory.mkdir(parents=True, exist_ok=True)
            self._file = open(self._directory / f"access.log.{hour}", "a", encoding="utf-8", buffering=1)  # noqa: SIM115
            self._hour, self._has_failed = hour, False
        return self._file

    def close(self) -> None:
        """Close the file; the next request opens one."""
        if self._file is not None:
            file, self._file = self._file, None
            try:
                file.close()
            except OSError:
                # A line that cannot be written was told of.
                pass


def line_of(request: web.BaseRequest, response: web.StreamResponse, now: datetime) -> str:
    """Return the line of a request. What clients send cannot begin another one, or end a quotation."""
    # Queries are left out, as in RabbitMQ; and a password that is to be hashed.
    path = request.raw_path.partition("?")[0]
    path = _HASHED.sub(MASK, path)
    size = 0 if request.method == hdrs.METH_HEAD else response.content_length or 0
    version = f"HTTP/{request.version.major}.{request.version.minor}"
    parts = (
        f"{request.remote or '-'} - {_quoted(request.get(LOGIN_NAME) or '-').replace(' ', '%20')}",
        f"[{now.day:02}/{_MONTHS[now.month - 1]}/{now:%Y:%H:%M:%S} +0000]",
        f'"{request.method} {_quoted(path)} {version}"',
        f"{response.status} {size}",
        f'"{_quoted(request.headers.get(hdrs.REFERER, ""))}" "{_quoted(request.headers.get(hdrs.USER_AGENT, ""))}"',
    )
    return " ".join(parts) + "\n"


def _quoted(text: str) -> str:
    shown = escape_line(text).replace("\\", "\\\\").replace('"', '\\"')
    return shown.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


class AccessLogger(AbstractAccessLogger):
    """Passes what aiohttp tells to an AccessLog, which is in the place of aiohttp's logger."""

    def log(self, request: web.BaseRequest, response: web.StreamResponse, time: float) -> None:
        """Write the line of a request."""
        access_log: Any = self.logger
        access_log.note(request, response)
