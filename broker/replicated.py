"""A broker that is a node of a cluster: leads, or forwards clients to the leader, in one process.

Replication has a thread and an event loop of its own, so that leases and acknowledgements do not wait for the broker.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import ssl
import threading
from collections.abc import Callable, Coroutine, Iterator, Mapping
from concurrent.futures import Future
from pathlib import Path
from socket import gethostname, socket, socketpair
from typing import Any, Final, TypeVar
from urllib.parse import unquote

import uvloop

from leveret.broker.addresses import address_of, describe_error, format_address
from leveret.broker.app import App, Embedding, StartError, memory_limit, ready_line
from leveret.broker.auth.accounts import Accounts
from leveret.broker.auth.registry import make_backends
from leveret.broker.config.config_errors import ConfigError, DefinitionsError
from leveret.broker.config.kinds import Endpoint
from leveret.broker.config.listening import PlannedListener, planned_listeners
from leveret.broker.config.options import Replication, Settings
from leveret.broker.core.node import NODE_PREFIX, Replica
from leveret.broker.ports import Ports
from leveret.broker.replication.applying import pack_changes
from leveret.broker.replication.etcd import EtcdRegister
from leveret.broker.replication.forwarding import Forwarder, relay
from leveret.broker.replication.kubernetes import ACCOUNT, KubernetesRegister
from leveret.broker.replication.link import Dial, Link, dial
from leveret.broker.replication.own_answers import OwnAnswers
from leveret.broker.replication.plan import Plan, ReplicationError
from leveret.broker.replication.register import Register
from leveret.broker.replication.report import figures, metrics, other_nodes, report
from leveret.broker.replication.roles import Member
from leveret.broker.replication.shipping import Limits, Shipping
from leveret.broker.side_programs import SideProgram, make_backup_taker, shared_place
from leveret.broker.tls import TlsError
from leveret.storage.clock import Clock
from leveret.storage.definitions_database import Changes
from leveret.storage.disk.files import DirectoryInUseError
from leveret.storage.disk.recording import Kind, Operation, Operations, RecordingFiles

log = logging.getLogger("leveret.replication")

#: Makes the register of a node: name of the node, and seconds of the lease.
RegisterMaker = Callable[[str, float], Register]
_KUBERNETES: Final = "kubernetes://"
_T = TypeVar("_T")
#: Connections of other nodes that may wait to be accepted.
_BACKLOG: Final = 128
_SCHEMES: Final = ("etcd://", "etcds://", _KUBERNETES)


class ReplicatedBroker:
    """One node, with the interface of App. Used by the broker's event loop, but for the methods of Host.

    Args:
        settings: Configuration of the broker.
        on_role: Called with the ready line when this node begins to lead, or to follow.
        on_end: Called when it cannot go on; stop() raises the reason.
        make_register: Makes its register; by default the one that is configured.
        ports: Its listening sockets, which outlive it; by default some of its own.
        dial: Opens connections to other nodes.
    Raises:
        StartError: The configuration cannot be used.
    """

    def __init__(
        self,
        settings: Settings,
        on_role: Callable[[str], object],
        on_end: Callable[[], object],
        make_register: RegisterMaker | None = None,
        ports: Ports | None = None,
        dial: Dial = dial,
    ) -> None:
        self._settings = settings
        self._on_role = on_role
        self._on_end = on_end
        options = settings.replication
        if settings.storage.sync.mode != "always":
            raise StartError(
                "storage.sync must be `always` with replication.register: confirms are promises of all nodes"
            )
        self._name = options.node or gethostname()
        self._plan: Plan | None = None
        self._clock = Clock()
        self._started = self._clock.monotonic()
        self._server_tls, self._client_tls = _tls(options)
        self._make_register = make_register or _configured(options, self._client_tls)
        self._ports = ports or Ports()
        self._owns_ports = ports is None
        self._dial = dial
        self._loop = asyncio.get_running_loop()
        self._app: App | None = None
        self._forwarder: Forwarder | None = None
        #: That of before, for clients that waited for a leader when this node became one.
        self._released: Forwarder | None = None
        self._addresses: dict[str, list[tuple[str, int]]] = {}
        self._told = ""
        self._member: Member | None = None
        self._thread_loop: asyncio.AbstractEventLoop | None = None
        self._ended: Future[None] = Future()
        self._is_stopping = False
        self._backups: SideProgram | None = None
        if settings.backup.url:
            self._backups = make_backup_taker(settings, self._tell_backup, self._tell_failed_backup)
        self._has_enough = False
        self.has_role = asyncio.Event()
        #: Port for the other nodes, once it listens.
        self.replication_port = 0

    # --- the interface of App -----------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Listen, and wait until this node leads or follows.

        Raises:
            StartError: It can do neither.
        """
        listening = self._bind_replication()
        self.replication_port = address_of(listening)[1]
        await self._stand_by("", "")
        threading.Thread(target=self._replicate, args=(listening,), name="replication", daemon=True).start()
        ended = asyncio.wrap_future(self._ended)
        ended.add_done_callback(lambda _: self.has_role.set())
        await self.has_role.wait()
        if ended.done():
            await ended
        else:
            ended.add_done_callback(self._note_end)

    def _note_end(self, ended: asyncio.Future[None]) -> None:
        if ended.exception() is not None and not self._is_stopping:
            log.critical("%s", ended.exception())
            self._on_end()

    async def stop(self) -> None:
        """Hand over if this node leads, and stop.

        Raises:
            StartError: This node could not go on before; the text says why.
        """
        self._is_stopping = True
        if self._thread_loop is not None and self._member is not None and not self._ended.done():
            self._thread_loop.call_soon_threadsafe(self._member.stop)
        try:
            if self._thread_loop is not None:
                await asyncio.wrap_future(self._ended)
        finally:
            if self._app is not None:
                await self._app.stop()
            await self._kill_backups()
            await self._stop_forwarding()
            if self._owns_ports:
                self._ports.close()
            else:
                await self._ports.shut()

    async def kill(self) -> None:
        """End as the death of the process does: nothing more is written or sent, and nobody is told. For tests."""
        self._is_stopping = True
        app, self._app = self._app, None
        if app is not None:
            await app.abandon()
        await self._stop_forwarding()
        if self._thread_loop is not None and self._member is not None and not self._ended.done():
            self._thread_loop.call_soon_threadsafe(self._member.abandon)
            await asyncio.wait([asyncio.wrap_future(self._ended)])
        await self._kill_backups()
        await self._ports.shut()

    def reload(self, settings: Settings) -> None:
        """Apply the options that can change without a restart; see App.reload()."""
        if self._app is not None:
            self._app.reload(settings)
        self._settings = settings

    @property
    def addresses(self) -> Mapping[str, list[tuple[str, int]]]:
        """Hosts and ports by listener."""
        return self._addresses if self._app is None else self._app.addresses

    @property
    def role(self) -> str:
        """`leader` while the broker is open, otherwise `observer` or `standby`."""
        return "leader" if self._app is not None else "observer" if self._settings.replication.observer else "standby"

    def ready_line(self) -> str:
        """Return the line that was printed last."""
        return self._told

    # --- roles, in the broker's event loop ----------------------------------------------------------------------------

    async def _lead(self, shipping: Shipping, operations: Operations) -> None:
        """Open the broker in the place of the forwarder."""
        self._released, self._forwarder = self._forwarder, None
        if self._released is not None:
            await self._released.release()
        self._ports.rewind()

        def record(changes: Changes) -> None:
            operations.add_sync(Operation(Kind.DEFINITIONS, "", 0, pack_changes(changes)))

        replica = Replica(
            f"{NODE_PREFIX}{self._name}",
            shipping,
            record,
            self.report,
            self._metrics,
            self._nodes,
            self.hand_over,
            self.forget,
        )
        files = RecordingFiles(str(self._settings.data_dir), operations)
        app = App(self._settings, Embedding(files, False, self._ports.bind, replica=replica))
        try:
            await app.start()
        except BaseException:
            await self._stop_forwarding()
            await app.abandon()
            raise
        self._app = app
        if self._released is not None:
            self._released.serve_here(self._take)
        app.set_enough_copies(self._has_enough)
        self._tell(ready_line(app.addresses, self._settings.data_dir, "leader"))

    async def _stop_leading(self, is_clean: bool, reason: str) -> None:
        app, self._app = self._app, None
        if app is None:
            return
        if is_clean:
            await app.stop()
        else:
            log.error("closes all clients: %s", reason)
            await app.abandon(close_politely=True)
        await self._stop_forwarding()

    async def _stop_forwarding(self) -> None:
        for each in (self._forwarder, self._released):
            if each is not None:
                await each.stop()
        self._forwarder = self._released = None

    async def _stand_by(self, leader: str, address: str) -> None:
        options = self._settings.replication
        if self._forwarder is None:
            settings = self._settings
            try:
                backends = make_backends(settings, Accounts(()), self._loop, self._clock)
            except (ConfigError, TlsError) as error:
                raise StartError(str(error)) from error
            loopback_users, client_id = tuple(settings.loopback_users), settings.management.oauth_client_id
            users = loopback_users, backends, client_id
            answers = OwnAnswers(settings.data_dir, *users, self.report, self._metrics, self.promote)
            prefix = self._settings.management.path_prefix
            self._forwarder = Forwarder(self._name, options.secret, self._client_tls, prefix, answers, self._dial)
            self._ports.rewind()
            self._addresses = {}
            for each in planned_listeners(self._settings):
                sockets = self._bind(each, self._settings.tcp_listen_options.backlog)
                self._addresses.setdefault(each.name, []).extend(map(address_of, sockets))
                for sock in sockets:
                    await self._forwarder.listen(each.name, sock)
        self._forwarder.set_leader(address)
        if leader:
            self._tell(ready_line(self._addresses, self._settings.data_dir, self.role))

    def _tell(self, line: str) -> None:
        if line != self._told:
            self._told = line
            self.has_role.set()
            self._on_role(line)

    def _take(self, sock: socket, wish: Mapping[str, Any]) -> None:
        """Serve a client that another node forwards."""
        if self._app is None:
            sock.close()
        else:
            self._app.take_forwarded(str(wish["service"]), sock, tuple(wish["peer"]), tuple(wish["local"]))

    def report(self) -> dict[str, Any]:
        """Return what is known of replication, as `/api/replication` shows it. Any thread."""
        return report(self._plan, self._member)

    def _metrics(self) -> Iterator[str]:
        return metrics(self.report())

    def _nodes(self) -> list[dict[str, Any]]:
        return [] if self._member is None else other_nodes(self._member)

    async def hand_over(self, wanted: str) -> str:
        """Let another node lead; see Member.hand_over()."""
        return await self._in_thread(lambda member: member.hand_over(wanted.removeprefix(NODE_PREFIX)))

    async def forget(self, name: str) -> None:
        """Forget a node that does not come back; see Member.forget()."""
        await self._in_thread(lambda member: member.forget(name.removeprefix(NODE_PREFIX)))

    async def promote(self, force: bool) -> dict[str, Any]:
        """Let this node lead by hand; see Member.promote()."""
        return await self._in_thread(lambda member: member.promote(force))

    async def _in_thread(self, ask: Callable[[Member], Coroutine[Any, Any, _T]]) -> _T:
        """Return what the thread of replication answers.

        Raises:
            ReplicationError: It has not begun.
        """
        if self._member is None or self._thread_loop is None:
            raise ReplicationError("this node is starting")
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(ask(self._member), self._thread_loop))

    # --- backups ------------------------------------------------------------------------------------------------------

    def _tell_backup(self, line: bytes) -> None:
        if self._member is not None and self._thread_loop is not None and not self._ended.done():
            self._thread_loop.call_soon_threadsafe(self._member.tell_backup, line)

    def _tell_failed_backup(self, error: str) -> None:
        self._tell_backup(json.dumps({"error": error}).encode())

    async def _take_backups(self, turn: str) -> None:
        await self._kill_backups()
        if self._backups is not None and turn and not self._is_stopping:
            self._backups.start(f"--turn={turn}")

    async def _kill_backups(self) -> None:
        if self._backups is not None:
            # A killed backup leaves nothing that counts, and nobody has to wait.
            await self._backups.kill()

    def _note_backup(self, node: str, line: bytes) -> None:
        if self._app is not None:
            self._app.note_backup(node, line)

    # --- the thread of replication; Host ------------------------------------------------------------------------------

    def _replicate(self, listening: socket) -> None:
        try:
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                self._thread_loop = runner.get_loop()
                runner.run(self._be_member(listening))
        except DirectoryInUseError as error:
            self._ended.set_exception(StartError(f"cannot use the data directory: {error}"))
        except ReplicationError as error:
            self._ended.set_exception(StartError(str(error)))
        except Exception as error:
            if not isinstance(error, StartError | DefinitionsError):
                log.exception("internal error in replication")
            self._ended.set_exception(error)
        else:
            self._ended.set_result(None)

    async def _be_member(self, listening: socket) -> None:
        settings, options = self._settings, self._settings.replication
        lease = options.lease / 1000
        self._plan = plan = Plan(
            self._name,
            Path(settings.data_dir),
            _advertised(options, listening),
            options.secret,
            lease,
            Limits(options.timeout / 1000, options.min_copies, options.sync_rate, options.compression),
            options.backlog,
            self._server_tls,
            self._client_tls,
            options.observer,
            self._figures,
            self._dial,
            shared_place(settings.backup),
            bool(settings.backup.url),
        )
        self._member = Member(plan, self._make_register(self._name, lease), self)
        if self._is_stopping:
            self._member.stop()
        await self._member.run(listening)

    def _figures(self) -> dict[str, Any]:
        """Return this node's use of resources, as fields of a node in the HTTP API. Any thread."""
        uptime = (self._clock.monotonic() - self._started) // 1000
        return figures(self._settings.data_dir, memory_limit(self._settings), uptime)

    async def _in_broker(self, work: Any) -> Any:
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._loop))

    async def lead(self, shipping: Shipping, operations: Operations, epoch: int) -> None:
        """Open the broker; see Host."""
        await self._in_broker(self._lead(shipping, operations))

    async def stop_leading(self, is_clean: bool, reason: str) -> None:
        """Close the broker; see Host."""
        await self._in_broker(self._stop_leading(is_clean, reason))

    async def stand_by(self, leader: str, address: str) -> None:
        """Forward clients to the leader; see Host."""
        await self._in_broker(self._stand_by(leader, address))

    def set_enough_copies(self, enough: bool) -> None:
        """Block publishers unless there are enough copies; see Host."""
        self._loop.call_soon_threadsafe(self._set_enough, enough)

    def _set_enough(self, enough: bool) -> None:
        self._has_enough = enough
        if self._app is not None:
            self._app.set_enough_copies(enough)

    async def take_backups(self, turn: str) -> None:
        """Take backups on this node, or end that; see Host."""
        await self._in_broker(self._take_backups(turn))

    def note_backup(self, node: str, line: bytes) -> None:
        """Note what the program that takes backups has said; see Host."""
        self._loop.call_soon_threadsafe(self._note_backup, node, line)

    async def forward(self, link: Link, wish: dict[str, Any]) -> None:
        """Serve a client that another node forwards; see Host."""
        ours, theirs = socketpair()
        theirs.setblocking(False)
        self._loop.call_soon_threadsafe(self._take, theirs, wish)
        reader, writer = await asyncio.open_connection(sock=ours)
        await relay(link.reader, link.writer, reader, writer)

    def _bind_replication(self) -> socket:
        endpoint = Endpoint(self._settings.host[0], self._settings.replication.port)
        planned = PlannedListener("replication", endpoint, "replication.port", encrypted=False)
        return self._bind(planned, _BACKLOG)[0]

    def _bind(self, planned: PlannedListener, backlog: int) -> list[socket]:
        host, port = planned.endpoint.host, planned.endpoint.port
        try:
            return self._ports.bind(planned, port, backlog)
        except OSError as error:
            where = format_address(host, port)
            raise StartError(
                f"cannot listen on {where}: {describe_error(error)}; choose another {planned.option}"
            ) from error


def _advertised(options: Replication, listening: socket) -> str:
    """Return host and port at which other nodes reach this one."""
    host, port = address_of(listening)
    if options.advertise:
        name, colon, given = options.advertise.rpartition(":")
        return options.advertise if colon and given.isdigit() and name else f"{options.advertise}:{port}"
    return format_address(gethostname() if host in ("0.0.0.0", "::") else host, port)


def _configured(options: Replication, tls: ssl.SSLContext | None) -> RegisterMaker:
    """Return what makes the register that is configured.

    Raises:
        StartError: The option cannot be used.
    """
    url = options.register
    scheme = next((each for each in _SCHEMES if url.startswith(each)), None)
    hosts, _, name = url[len(scheme or "") :].partition("/")
    if scheme is None or not hosts or not name:
        raise StartError(
            "replication.register must be none, etcd://HOST:PORT[,HOST:PORT]/NAME or kubernetes://NAMESPACE/NAME"
        )
    if scheme == _KUBERNETES:
        return _in_kubernetes(hosts, name)
    login: tuple[str, str] | None = None
    if "@" in hosts:
        who, _, hosts = hosts.rpartition("@")
        user, _, password = who.partition(":")
        login = unquote(user), unquote(password)
    if scheme == "etcds://" and tls is None:
        raise StartError("replication.register: etcds:// needs replication.ssl_options.cacertfile")
    endpoints = [each if ":" in each else f"{each}:2379" for each in hosts.split(",")]

    def make(node: str, lease: float) -> Register:
        return EtcdRegister(endpoints, name, node, lease, login, tls if scheme == "etcds://" else None)

    return make


def _in_kubernetes(namespace: str, name: str) -> RegisterMaker:
    """Return what makes a register in the cluster of the pod that this process is in.

    Raises:
        StartError: It is in none.
    """
    host, port = (os.environ.get(f"KUBERNETES_SERVICE_{each}", "") for each in ("HOST", "PORT"))
    if not host or not (ACCOUNT / "token").exists():
        raise StartError("replication.register: kubernetes:// works in a pod with a service account only")
    tls = ssl.create_default_context(cafile=str(ACCOUNT / "ca.crt"))
    server = f"https://{format_address(host, int(port or 443))}"
    return lambda node, lease: KubernetesRegister(server, namespace, name, node, lease, tls=tls)


def _tls(options: Replication) -> tuple[ssl.SSLContext | None, ssl.SSLContext | None]:
    """Return the TLS contexts of a node: for links that it accepts, and for those that it opens.

    Raises:
        StartError: The files cannot be used.
    """
    files = options.ssl_options
    given = files.certfile, files.keyfile, files.cacertfile
    if not any(given):
        return None, None
    if not all(given):
        raise StartError("replication.ssl_options needs certfile, keyfile and cacertfile")
    try:
        server, client = (ssl.SSLContext(kind) for kind in (ssl.PROTOCOL_TLS_SERVER, ssl.PROTOCOL_TLS_CLIENT))
        for context in (server, client):
            context.load_cert_chain(str(files.certfile), None if files.keyfile is None else str(files.keyfile))
            context.load_verify_locations(str(files.cacertfile))
            context.verify_mode = ssl.CERT_REQUIRED
            context.minimum_version = ssl.TLSVersion.TLSv1_2
    except OSError as error:
        raise StartError(f"replication.ssl_options cannot be used: {error}") from error
    return server, client
