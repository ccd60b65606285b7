"""Composition root: creates the parts of the broker, starts them in order and stops them."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from socket import socket
from typing import TYPE_CHECKING, Final

from leveret.broker.addresses import Address, address_of, bind, describe_error, format_address
from leveret.broker.auth.accounts import Accounts
from leveret.broker.auth.registry import make_backends, open_sign_on
from leveret.broker.config.config_errors import ConfigError
from leveret.broker.config.declaration import option_values
from leveret.broker.config.kinds import SyncRule
from leveret.broker.config.listening import PlannedListener, planned_listeners
from leveret.broker.config.options import OPTIONS, Archive, Backup, Settings
from leveret.broker.core.broker import Broker
from leveret.broker.core.definitions_gate import DefinitionsGate
from leveret.broker.core.message_stores import (
    DataDirectoryUnusableError,
    disk_free_limit,
    open_stores,
    unusable_text,
)
from leveret.broker.core.node import Node, Replica
from leveret.broker.core.resources.alarms import Alarms
from leveret.broker.core.resources.memory import MemoryMonitor, available_memory
from leveret.broker.core.resources.memory_checks import MemoryChecks, Pager
from leveret.broker.core.scheduling.slices import share_slices
from leveret.broker.core.scheduling.timers import Timers
from leveret.broker.core.scheduling.turn import Turn
from leveret.broker.core.stats.census import Sampler
from leveret.broker.core.stats.loss_record import LossLog, LossRecord
from leveret.broker.garbage import collect_all
from leveret.broker.management.listener import HttpListener
from leveret.broker.operations.audit import Audit
from leveret.broker.operations.backups import Backups
from leveret.broker.operations.body_rules import BodyRules
from leveret.broker.operations.broker_definitions import DefinitionsKeeper, Refuse, load_definitions, raise_refusal
from leveret.broker.operations.jobs.runner import KIND, Jobs
from leveret.broker.session.amqp_listener import Listener
from leveret.broker.session.shared_state import Interceptor, Server
from leveret.broker.shovels.shovels import Shovels
from leveret.broker.side_programs import BackupReader, make_archiver, make_backup_taker
from leveret.broker.tls import Tls, TlsError
from leveret.broker.version import VERSION
from leveret.protocol.proxy_header import ProxiedAddresses
from leveret.storage.definitions_database import (
    DefinitionsDamagedError,
    DefinitionsDatabase,
    DefinitionsVersionError,
)
from leveret.storage.directory.directory_format import lock_for_backup
from leveret.storage.disk.files import DiskFiles, UnreadableFileError
from leveret.storage.readers.reader_file import BACKUP_READER
from leveret.storage.url_secrets import mask_url

if TYPE_CHECKING:
    from leveret.broker.management.http.controller import RequestContext
    from leveret.broker.management.http.server import HttpServer

log = logging.getLogger("leveret")

#: Errors of a port. Others are of the host.
_ABOUT_THE_PORT: Final = (errno.EADDRINUSE, errno.EACCES)
#: How the options of listeners begin that have the addresses of `--host`.
_HOST_OR: Final = "--host or "
#: Seconds without enough copies after which publishes that wait for them are nacked.
_COPIES_SECONDS: Final = 30
#: Name of the database of definitions in the data directory.
DEFINITIONS: Final = "definitions.sqlite"


class StartError(Exception):
    """The broker cannot start; the text says in one line why, and what to do."""


@contextmanager
def _start_errors(*classes: type[Exception]) -> Iterator[None]:
    """Raise errors of classes, whose text says it all, as StartError."""
    try:
        yield
    except classes as error:
        raise StartError(str(error)) from error


@dataclass(frozen=True, slots=True)
class Embedding:
    """What a broker inside another program has of its own.

    Attributes:
        files: The file system interface.
        is_temporary: Whether the data directory is removed with the broker.
        bind: Returns the listening sockets of a planned listener; its arguments are the listener, a port and a backlog.
        interceptor: Gets the events of all AMQP connections; None for none.
        clock_offset: Microseconds by which its clock is ahead of the system's.
        replica: What it has of a cluster; None for a broker alone.
    """

    files: DiskFiles
    is_temporary: bool
    bind: Callable[[PlannedListener, int, int], list[socket]]
    interceptor: Interceptor | None = None
    clock_offset: int = 0
    replica: Replica | None = None


class App:
    """A broker in the running event loop.

    Args:
        embedding: What it has of its own inside another program, where the HTTP servers are created at the first
            request; None for a program of its own.
    Raises:
        StartError: The data directory cannot be used.
    """

    def __init__(self, settings: Settings, embedding: Embedding | None = None) -> None:
        self.settings = settings
        self._embedding = embedding
        files = DiskFiles() if embedding is None else embedding.files
        loop = asyncio.get_running_loop()
        timers = Timers(loop.call_later, 0 if embedding is None else embedding.clock_offset)
        alarms = Alarms()
        turn = Turn(loop.call_soon, timers.monotonic)
        share_slices(loop, turn.slices)
        gate = DefinitionsGate(timers.real_call_later, alarms, turn.slice)
        self._replica = None if embedding is None else embedding.replica
        if self._replica is not None:
            gate.copies = self._replica.copies
        with _start_errors(DataDirectoryUnusableError):
            self._stores = open_stores(settings, turn, timers, alarms, gate, loop.call_soon_threadsafe, files)
        turn.before_writing += [gate.write, self._stores.write]
        self.broker = Broker(
            turn,
            timers,
            self._stores,
            trust_publishers=settings.trust_publisher_x_death,
            alarms=alarms,
            gate=gate,
            cluster_name=settings.cluster_name,
            store_files=settings.storage.append_files + settings.storage.read_files,
            event_vhost=_event_vhost(settings),
            quorum_release=settings.compat.quorum_queues,
        )
        self.accounts = Accounts(settings.loopback_users)
        with _start_errors(ConfigError, TlsError):
            self._auth_backends = make_backends(settings, self.accounts, loop, timers)
            self._sign_on = open_sign_on(settings, self._auth_backends.backend("oauth2"), timers)
        self.accounts.tell = lambda kind, fields: self.broker.events.tell(kind, dict, fields)
        open_backup = partial(BackupReader, settings.backup) if settings.backup.url else None
        self.jobs = Jobs(self.broker, self.accounts, open_backup)
        self.shovels = Shovels(self.broker, self._auth_backends, settings.max_message_size, settings.shovels)
        limit = memory_limit(settings)
        # The store may need more free space than is configured.
        disk_limit = self._stores.engine.disk.limit
        self.node = Node(timers, data_dir=settings.data_dir, memory_limit=limit, disk_free_limit=disk_limit)
        if self._replica is not None:
            self.node.name = self._replica.node
        self.broker.events.node = self.node.name
        self._memory_checks = MemoryChecks(
            MemoryMonitor(self.broker.alarms, limit, loop.time, collect_all),
            Pager(self.broker.backings, _paging_threshold(settings, limit)),
            loop,
        )
        interceptor = None if embedding is None else embedding.interceptor
        self.server = Server(settings, self.broker, self._auth_backends, self._memory_checks, loop, interceptor)
        self._listener = Listener(self.server)
        self.addresses = self.node.addresses
        self._management = HttpListener(self._make_management, embedding is None)
        self._sampler = Sampler(self.broker, self.node)
        self._prometheus = HttpListener(self._make_prometheus, embedding is None)
        self._backups = Backups(mask_url(settings.backup.url), settings.backup.interval, timers.now)
        self._side_programs = [make_archiver(settings)] if settings.archive.url else []
        if settings.backup.url and self._replica is None:
            taker = make_backup_taker(settings, self._backups.note_report, self._backups.note_failure)
            self._side_programs.append(taker)
        self._files = files
        self._is_closed = False
        self._losses: LossRecord | None = None
        self._loss_log = LossLog(self.broker)
        self._tls: Tls | None = None
        self._taking: set[asyncio.Task[None]] = set()
        #: Nacks publishes that wait for copies.
        self._refusing: asyncio.TimerHandle | None = None
        self._definitions: DefinitionsKeeper | None = None
        self._audit: Audit | None = None

    async def start(self) -> None:
        """Restore the data directory and start to listen.

        Raises:
            StartError: An address or the definitions cannot be used.
            DefinitionsError: A definition is invalid.
        """
        self.load()
        await self._listen()
        self.node.is_serving = True
        self.shovels.start()
        for program in self._side_programs:
            program.start()

    def load(self, refuse: Refuse = raise_refusal) -> None:
        """Restore the data directory, and load the definitions that the configuration names.

        Args:
            refuse: Is called with each error of these definitions.
        Raises:
            StartError: The definitions in the data directory cannot be used.
            DefinitionsError: A definition is invalid.
        """
        database = _open_database(self.settings.data_dir, self._embedding is not None and self._embedding.is_temporary)
        if self._replica is not None:
            database.on_written = self._replica.record
        self._definitions = keeper = DefinitionsKeeper(
            database,
            self.broker,
            self.accounts,
            self.server.loop.call_soon_threadsafe,
        )
        try:
            has_definitions = keeper.restore()
        except UnreadableFileError as error:
            raise StartError(f"cannot use the data directory {self.settings.data_dir}: {error}") from error
        self._stores.delete_unclaimed()
        if not self.settings.backup.url:
            self._forget_backups()
        keeper.record_import(
            load_definitions(self.settings, self.broker, self.accounts, not has_definitions, keeper.imported, refuse)
        )
        try:
            keeper.save_now()
        except sqlite3.Error as error:
            raise StartError(unusable_text(self.settings.data_dir, str(error))) from error
        engine, write = self._stores.engine, self._stores.write
        soon = self.server.loop.call_soon
        BodyRules(self.broker, self.settings.bodies, self.settings.data_dir, self._files, soon).start()
        self._losses = LossRecord(self.broker, engine, write, self.settings.data_dir, self._files)
        self._losses.restore()
        self._losses.start()
        self._loss_log.start()
        self.jobs.restore(keeper.stored(KIND))
        self._memory_checks.start()
        self._audit = self._open_audit()
        self.broker.start_events()
        if self._audit is not None:
            self.broker.turn.before_writing.append(self._audit.log.write)
            self.broker.events.takers.append(self._audit)
        if not self.settings.management_agent.disable_metrics_collector:
            self._sampler.start()

    def _open_audit(self) -> Audit | None:
        """Open the audit log.

        Raises:
            StartError: It cannot be used.
        """
        options, engine = self.settings.audit, self._stores.engine
        if not options.enabled:
            return None
        try:
            log = engine.open_audit_log(options.retention, options.max_bytes)
        except OSError as error:
            raise StartError(unusable_text(self.settings.data_dir, f"the audit log: {error}")) from error
        return Audit(log, self.broker.turn, self.broker.timers, options.connections)

    def _forget_backups(self) -> None:
        """Keep nothing for backups that were taken before `backup.url` was removed."""
        try:
            lock = lock_for_backup(str(self.settings.data_dir))
            if lock is not None:
                os.close(lock)
                self._stores.engine.readers.drop(BACKUP_READER)
        except OSError as error:
            log.warning("the reader %s cannot be dropped: %s", BACKUP_READER, error)

    # Imported on first use; see HttpListener.

    def _make_management(self) -> HttpServer:
        from leveret.broker.management.http.applications import management_app
        from leveret.broker.management.http.server import AccessLog, HttpServer

        directory = self.settings.management.http_log_dir
        access_log = None if directory is None else AccessLog(directory)
        return HttpServer(management_app(self._context), self.settings, self.broker.sockets.http, access_log)

    def _make_prometheus(self) -> HttpServer:
        from leveret.broker.management.http.applications import prometheus_app
        from leveret.broker.management.http.server import HttpServer

        return HttpServer(prometheus_app(self._context), self.settings, self.broker.sockets.http)

    @cached_property
    def _context(self) -> RequestContext:
        from leveret.broker.management.http.access import Access
        from leveret.broker.management.http.controller import RequestContext

        access = Access(self._auth_backends, self.broker, self.settings.management)
        save = self._save_definitions
        of_broker = self.broker, self.accounts, self.node, self.settings, access, save
        others = self.jobs, self.shovels, self._replica, self._backups, self._audit, self._sign_on
        return RequestContext(*of_broker, *others)

    async def _listen(self) -> None:
        servers = {"management": self._management, "prometheus": self._prometheus, "management-tls": self._management}
        listeners = planned_listeners(self.settings)
        if any(each.encrypted for each in listeners):
            with _start_errors(TlsError):
                self._tls = Tls(self.settings.ssl_options)
        for each, sock in self._bind(listeners):
            await servers.get(each.name, self._listener).start(sock, self._tls if each.encrypted else None)

    def _bind(self, listeners: list[PlannedListener]) -> list[tuple[PlannedListener, socket]]:
        """Return the listening sockets of all listeners.

        Raises:
            StartError: Addresses cannot be used; the text names all of them, and says what to change.
        """
        bound: list[tuple[PlannedListener, socket]] = []
        refused: list[tuple[PlannedListener, OSError]] = []
        bind_to = bind_planned if self._embedding is None else self._embedding.bind
        for each in listeners:
            addresses = self.addresses.setdefault(each.name, [])
            try:
                sockets = bind_to(each, self._choose_port(each), self.settings.tcp_listen_options.backlog)
            except OSError as error:
                refused.append((each, error))
                if error.errno not in _ABOUT_THE_PORT:
                    # The host cannot be used, and will be the reason for the others, too.
                    break
                continue
            addresses += map(address_of, sockets)
            bound += [(each, sock) for sock in sockets]
        if refused:
            for _, sock in bound:
                sock.close()
            raise StartError(_refusal_text(refused))
        return bound

    def _choose_port(self, wanted: PlannedListener) -> int:
        """Return the port to listen on; for port 0, the port that the same listener has on another address."""
        bound = self.addresses[wanted.name]
        is_other_address = bound and wanted.endpoint.host not in [host for host, _ in bound]
        return wanted.endpoint.port or (bound[0][1] if is_other_address else 0)

    async def stop(self) -> None:
        """Stop everything within the shutdown timeout."""
        self._stop_refusing()
        self.node.is_serving = False
        self._sampler.stop()
        self._loss_log.stop()
        self._memory_checks.stop()
        # In parallel, so that each has the whole timeout.
        seconds = self.settings.shutdown_timeout / 1000
        await asyncio.gather(
            self.jobs.stop(seconds),
            self.shovels.stop(),
            self._prometheus.stop(),
            self._management.stop(),
            self._listener.stop(seconds),
            *(program.stop(seconds) for program in self._side_programs),
        )
        await self._auth_backends.close()
        definitions, self._definitions = self._definitions, None
        if definitions is not None:
            # Before the stores are closed: saving definitions may delete files of queues.
            try:
                definitions.close()
            except sqlite3.Error as error:
                log.error("not all definitions could be saved; clients have got no confirmation of them: %s", error)
        if not self._is_closed:
            self._is_closed = True
            self.broker.turn.before_writing.clear()
            if self._losses is not None:
                self._losses.close()
            self.broker.events.takers.clear()
            if self._audit is not None:
                try:
                    self._audit.close()
                except OSError as error:
                    log.error("the end of the audit log could not be written: %s", error)
            if not self._stores.close():
                log.error("not all messages could be written to %s", self.settings.data_dir)
            # Nothing may read or write the files any more: they can be another broker's, in this process.
            self.broker.turn.stop()
            self.broker.timers.stop()

    @property
    def is_settled(self) -> bool:
        """Whether nothing that has begun is left to do; what waits for a disk that refuses writes does not count."""
        broker, engine = self.broker, self._stores.engine
        waits_for_disk = broker.gate.is_open or broker.gate.is_retrying
        if broker.turn.is_pending or not (waits_for_disk and (engine.disk.refused or not engine.is_moving())):
            return False
        return all(vhost.due_work.is_idle for vhost in broker.vhosts.values())

    def take_forwarded(self, service: str, sock: socket, peer: Address, local: Address) -> None:
        """Serve a client that another node forwards.

        Args:
            service: Name of the listener that it has connected to there.
            sock: What forwards its bytes.
            peer: The client's address.
            local: The address that it has connected to.
        """
        tls = self._tls if service in ("amqps", "management-tls") else None
        if service.startswith("management"):
            work = self._management.take_forwarded(tls, sock, peer)
        else:
            work = self._listener.take_forwarded(tls, sock, ProxiedAddresses(peer, local))
        task = self.server.loop.create_task(work)
        self._taking.add(task)
        task.add_done_callback(self._taking.discard)

    def set_enough_copies(self, enough: bool) -> None:
        """Block publishers unless there are enough copies."""
        alarms = self.broker.alarms
        self._stop_refusing()
        if enough:
            alarms.clear("copies")
            return
        log.warning("too few copies: publishers are blocked; what waits for %d s is nacked", _COPIES_SECONDS)
        alarms.set("copies")
        self._refusing = self.server.loop.call_later(_COPIES_SECONDS, self._refuse_held)

    def _stop_refusing(self) -> None:
        if self._refusing is not None:
            self._refusing.cancel()
            self._refusing = None

    def _refuse_held(self) -> None:
        """Nack what waits for copies, again and again until there are enough."""
        for channel in self._listener.connections.channels():
            channel.refuse_held()
        self._refusing = self.server.loop.call_later(1, self._refuse_held)

    def drop_connections(self) -> int:
        """Reset the sockets of all AMQP connections; return how many there were."""
        return self._listener.drop_connections()

    def note_backup(self, node: str, line: bytes) -> None:
        """Note what the program has said that takes the backups of the cluster.

        Args:
            node: Name of the node that it runs on.
            line: A line of its report.
        """
        self._backups.note_report(line, node)

    def check_disk(self) -> None:
        """Compare the free disk space with the limit now."""
        self._stores.engine.watch_disk()

    async def abandon(self, close_politely: bool = False) -> None:
        """Stop at once and leave the data directory as it is, as the death of the process does.

        What is not written yet is lost; so are confirms and other replies that have not been sent.

        Args:
            close_politely: Tell AMQP clients with connection.close that the broker shuts down; otherwise their
                sockets are reset.
        """
        self._is_closed = True
        self._stop_refusing()
        self.shovels.abort()
        self.broker.turn.before_writing.clear()
        for program in self._side_programs:
            await program.kill()
        await self._listener.abandon(close_politely)
        self._sampler.stop()
        self._loss_log.stop()
        self._memory_checks.stop()
        self.broker.turn.stop()
        self.broker.timers.stop()
        await asyncio.gather(self._prometheus.abandon(), self._management.abandon())
        definitions, self._definitions = self._definitions, None
        if definitions is not None:
            definitions.abandon()
        if self._losses is not None:
            self._losses.abandon()
        if self._audit is not None:
            self._audit.log.abandon()
        self._stores.abandon()

    def reload(self, settings: Settings) -> None:
        """Apply the options that can change without a restart: memory and disk limits, certificates.

        Args:
            settings: The new configuration.
        Raises:
            StartError: The certificates cannot be used; nothing has changed.
        """
        if self._tls is not None:
            with _start_errors(TlsError):
                self._tls.reload(settings.ssl_options)
        self._warn_about_restart(settings)
        limit = self.node.memory_limit = memory_limit(settings)
        self._memory_checks.set_limits(limit, _paging_threshold(settings, limit))
        self._stores.engine.disk.limit = disk_free_limit(settings)
        self.node.disk_free_limit = self._stores.engine.disk.limit

    def _warn_about_restart(self, settings: Settings) -> None:
        before, after = option_values(self.settings), option_values(settings)
        changed = [name for name in OPTIONS if not OPTIONS[name].reloadable and before[name] != after[name]]
        if changed:
            log.warning("changed in the configuration, but only applied after a restart: %s", ", ".join(changed))

    def ready_line(self) -> str:
        """Return the line that the program prints when it accepts connections."""
        return ready_line(self.addresses, self.settings.data_dir)

    def _save_definitions(self) -> None:
        if self._audit is not None:
            # The answer to a request tells what is in the audit log.
            self._audit.log.write()
        if self._definitions is not None:
            self._definitions.save()


@asynccontextmanager
async def trial_broker(settings: Settings, refuse: Refuse = raise_refusal) -> AsyncIterator[App]:
    """Have a broker that has loaded its definitions, to find out what it refuses. It neither listens nor logs.

    Args:
        settings: Settings with a data directory that is thrown away.
        refuse: See App.load().
    Raises:
        StartError: The data directory, or an option, cannot be used.
        DefinitionsError: A definition is invalid.
    """
    storage = replace(settings.storage, sync=SyncRule("off"))
    disabled = logging.root.manager.disable
    logging.disable()
    try:
        app = App(replace(settings, storage=storage, archive=Archive(), backup=Backup()))
        try:
            app.load(refuse)
            yield app
        finally:
            await app.abandon()
    finally:
        logging.disable(disabled)


def ready_line(addresses: Mapping[str, list[Address]], data_dir: Path, role: str = "") -> str:
    """Return the line that the program prints when it accepts connections.

    Args:
        addresses: Where it listens, by listener.
        data_dir: The data directory.
        role: The node's role in its cluster; "" for a broker alone.
    """
    where = " ".join(f"{name}={','.join(format_address(*each) for each in bound)}" for name, bound in addresses.items())
    return f"leveret {VERSION} ready {where} data={data_dir}{f' role={role}' if role else ''}"


def _event_vhost(settings: Settings) -> str | None:
    """Return the virtual host that has the exchange of events; None if there is none."""
    return (settings.event_exchange.vhost or settings.default_vhost) if settings.event_exchange.enabled else None


def _open_database(data_dir: Path, is_temporary: bool) -> DefinitionsDatabase:
    try:
        with _start_errors(DefinitionsDamagedError, DefinitionsVersionError):
            data_dir.mkdir(parents=True, exist_ok=True)
            return DefinitionsDatabase(data_dir / DEFINITIONS, is_temporary)
    except (OSError, sqlite3.Error) as error:
        raise StartError(unusable_text(data_dir, str(error))) from error


def bind_planned(wanted: PlannedListener, port: int, backlog: int) -> list[socket]:
    """Return the listening sockets of a listener.

    Raises:
        OSError: The address cannot be used.
    """
    return bind(wanted.endpoint.host, port, backlog)


def _refusal_text(refused: list[tuple[PlannedListener, OSError]]) -> str:
    """Return which addresses cannot be used, by reason, and the options that help."""
    by_reason: dict[str, list[str]] = {}
    for each, error in refused:
        endpoint = each.endpoint
        by_reason.setdefault(describe_error(error), []).append(format_address(endpoint.host, endpoint.port))
    reasons = "; ".join(f"cannot listen on {_listed(where)}: {why}" for why, where in by_reason.items())
    # One of its own for each listener, and --host, which most have in common.
    options = list(dict.fromkeys(each.option for each, _ in refused))
    if len(options) > 1:
        own = [option.removeprefix(_HOST_OR) for option in options]
        options = [f"{'--host, or another ' if own != options else ''}{_listed(own)}"]
    return f"{reasons}; choose another {options[0]}"


def _listed(words: list[str]) -> str:
    return " and ".join(filter(None, (", ".join(words[:-1]), words[-1])))


def memory_limit(settings: Settings) -> int:
    """Return the bytes of memory from which on publishers are blocked."""
    watermark = settings.vm_memory_high_watermark
    if watermark.absolute is not None:
        return watermark.absolute
    return int(available_memory() * watermark.relative)


def _paging_threshold(settings: Settings, memory_limit: int) -> int:
    return int(memory_limit * settings.vm_memory_high_watermark_paging_ratio)
