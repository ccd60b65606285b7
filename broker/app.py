"""The composition root: starts the parts in order, stops them in reverse."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from functools import cached_property
from pathlib import Path
from socket import socket
from typing import TYPE_CHECKING, Final

from leveret.broker.addresses import address_of, bind, reason_of, written
from leveret.broker.auth.accounts import Accounts
from leveret.broker.config.declaration import values
from leveret.broker.config.listening import Planned, planned
from leveret.broker.config.options import OPTIONS, Settings
from leveret.broker.core.broker import Broker
from leveret.broker.core.disk import Disk, DiskError, disk_free_limit, unusable_text
from leveret.broker.core.memory import MemoryMonitor, available_memory
from leveret.broker.core.node import Node
from leveret.broker.core.paging import Pager
from leveret.broker.core.stats.loss_record import LossRecord
from leveret.broker.core.stats.sampler import Sampler
from leveret.broker.core.timers import Timers
from leveret.broker.core.turn import Turn
from leveret.broker.definitions import DefinitionsKeeper, load_definitions
from leveret.broker.garbage import collect_everything
from leveret.broker.management.listener import HttpListener
from leveret.broker.session.listener import Listener
from leveret.broker.session.server import Server
from leveret.broker.tls import Tls, TlsError
from leveret.broker.version import VERSION
from leveret.storage.definitions import DefinitionsDamagedError, DefinitionsDatabase, DefinitionsVersionError

if TYPE_CHECKING:
    from leveret.broker.management.http.context import RequestContext
    from leveret.broker.management.http.server import HttpServer

log = logging.getLogger("leveret")

#: How often the memory in use is compared with the watermark, in seconds.
_MEMORY_LOOK_SECONDS: Final = 1.0
#: And after this many received bytes: a part of what is left up to the watermark, within bounds.
_LOOKS: Final = 4
_LOOK_BYTES_MIN: Final = 2 * 1024 * 1024
_LOOK_BYTES_MAX: Final = 64 * 1024 * 1024


class StartError(Exception):
    """The broker cannot start; the text says why and what to do, in one line."""


class App:
    """One broker in one event loop.

    Args:
        settings: Its configuration.
        http_at_once: Make what serves HTTP at the start, not when somebody asks it.
    """

    def __init__(self, settings: Settings, http_at_once: bool = True) -> None:
        self.settings = settings
        loop = asyncio.get_running_loop()
        timers = Timers(loop.call_later)
        self.broker = Broker(
            Turn(loop.call_soon, self._make_durable, timers.monotonic), timers, settings.trust_publisher_x_death
        )
        self.broker.sockets.store_files = settings.storage.append_files + settings.storage.read_files
        self.accounts = Accounts(settings.loopback_users)
        self.server = Server(settings, self.broker, self.accounts, loop)
        self._listener = Listener(self.server)
        self.node = Node(
            data_dir=settings.data_dir,
            memory_limit=_memory_limit(settings),
            disk_free_limit=disk_free_limit(settings),
        )
        self.addresses = self.node.addresses
        self._management = HttpListener(self._make_management, http_at_once)
        self._sampler = Sampler(self.broker, self.node)
        self._prometheus = HttpListener(self._make_prometheus, http_at_once)
        self._memory = MemoryMonitor(self.broker.alarms, self.node.memory_limit, collect_everything)
        self._pager = Pager(self.broker, int(self.node.memory_limit * settings.vm_memory_high_watermark_paging_ratio))
        self._disk: Disk | None = None
        self._losses: LossRecord | None = None
        self._tls: Tls | None = None
        self._watch: asyncio.TimerHandle | None = None
        self._definitions: DefinitionsKeeper | None = None

    async def start(self) -> None:
        """Start everything.

        Raises:
            StartError: Something cannot be had: an address, a definition.
        """
        try:
            self._disk = Disk(self.broker, self.settings, self.server.loop.call_soon_threadsafe)
        except DiskError as error:
            raise StartError(str(error)) from error
        # The store may need more than is configured.
        self.node.disk_free_limit = self._disk.engine.disk.limit
        self._definitions = DefinitionsKeeper(
            _open_database(self.settings.data_dir),
            self.broker,
            self.accounts,
            self.server.loop.call_soon_threadsafe,
        )
        found = self._definitions.restore()
        self.broker.storage.delete_unclaimed()
        keeper = self._definitions
        keeper.note_import(load_definitions(self.settings, self.broker, self.accounts, not found, keeper.imported))
        try:
            keeper.save_now()
        except sqlite3.Error as error:
            raise StartError(unusable_text(self.settings.data_dir, str(error))) from error
        self._losses = LossRecord(self.broker, self._disk.engine, self._disk.write, self.settings.data_dir)
        self._losses.restore()
        self._losses.start()
        self.server.check_memory = self._check_memory
        self._watch_memory()
        if not self.settings.management_agent.disable_metrics_collector:
            self._sampler.start()
        await self._listen()

    # Imported when they are wanted; see HttpListener.

    def _make_management(self) -> HttpServer:
        from leveret.broker.management.http.server import HttpServer, management_app

        return HttpServer(management_app(self._context), self.settings, self.broker.sockets.http)

    def _make_prometheus(self) -> HttpServer:
        from leveret.broker.management.http.server import HttpServer, prometheus_app

        return HttpServer(prometheus_app(self._context), self.settings, self.broker.sockets.http)

    @cached_property
    def _context(self) -> RequestContext:
        from leveret.broker.management.http.access import Access
        from leveret.broker.management.http.context import RequestContext

        access = Access(self.accounts, self.broker, self.settings.management.allowed_hosts)
        return RequestContext(self.broker, self.accounts, self.node, self.settings, access, self._save_definitions)

    async def _listen(self) -> None:
        servers = {"management": self._management, "prometheus": self._prometheus, "management-tls": self._management}
        sockets = planned(self.settings)
        if any(each.encrypted for each in sockets):
            self._tls = _make_tls(self.settings)
        for each in sockets:
            addresses = self.addresses.setdefault(each.name, [])
            for sock in _bind(each, self._free_port(each), self.settings.tcp_listen_options.backlog):
                await servers.get(each.name, self._listener).start(sock, self._tls if each.encrypted else None)
                addresses.append(address_of(sock))

    def _free_port(self, wanted: Planned) -> int:
        """The port to take: where any will do, the one that the same has on another address."""
        found = self.addresses[wanted.name]
        is_other_address = found and wanted.endpoint.host not in [host for host, _ in found]
        return wanted.endpoint.port or (found[0][1] if is_other_address else 0)

    async def stop(self) -> None:
        """Stop everything within the shutdown timeout."""
        self._sampler.stop()
        if self._watch is not None:
            self._watch.cancel()
        # All have the same time: clients of the one do not wait for those of the other.
        seconds = self.settings.shutdown_timeout / 1000
        await asyncio.gather(self._prometheus.stop(), self._management.stop(), self._listener.stop(seconds))
        definitions, self._definitions = self._definitions, None
        if definitions is not None:
            # What is to be deleted with them goes before the disk is closed.
            try:
                definitions.close()
            except sqlite3.Error as error:
                log.error("not all definitions could be saved; nobody has been told that they are: %s", error)
        if self._disk is not None:
            if self._losses is not None:
                self._losses.close()
            self._disk.close()
            self._disk = None

    def reload(self, settings: Settings) -> None:
        """Put in force what can be changed while it runs: log level, limits of memory and disk, certificates.

        Args:
            settings: The new configuration.
        """
        self._report_what_needs_a_restart(settings)
        logging.getLogger().setLevel(settings.log_level.upper())
        self.node.memory_limit = self._memory.limit = _memory_limit(settings)
        self._pager.threshold = int(self._memory.limit * settings.vm_memory_high_watermark_paging_ratio)
        if self._disk is not None:
            self._disk.engine.disk.limit = disk_free_limit(settings)
            self.node.disk_free_limit = self._disk.engine.disk.limit
        if self._tls is not None:
            try:
                self._tls.reload(settings.ssl_options)
            except TlsError as error:
                log.error("the certificates stay as they were: %s", error)

    def _report_what_needs_a_restart(self, settings: Settings) -> None:
        before, after = values(self.settings), values(settings)
        changed = [name for name in OPTIONS if not OPTIONS[name].reloadable and before[name] != after[name]]
        if changed:
            log.warning("changed in the configuration, but not in force before a restart: %s", ", ".join(changed))

    def ready_line(self) -> str:
        """What the program prints when it serves."""
        where = " ".join(
            f"{name}={','.join(written(*each) for each in found)}" for name, found in self.addresses.items()
        )
        return f"leveret {VERSION} ready {where} data={self.settings.data_dir}"

    def _make_durable(self) -> None:
        """Have written what this turn has changed."""
        try:
            self._save_definitions()
        finally:
            if self._disk is not None:
                self._disk.write()

    def _save_definitions(self) -> None:
        if self._definitions is not None:
            self._definitions.save()

    def _watch_memory(self) -> None:
        self._check_memory()
        self._pager.page_out_excess(self._memory.used)
        self._watch = self.server.loop.call_later(_MEMORY_LOOK_SECONDS, self._watch_memory)

    def _check_memory(self) -> None:
        self._memory.check()
        # A message takes more memory than its bytes on the wire, so that looks get denser towards the limit.
        room = (self._memory.limit - self._memory.used) / _LOOKS
        self.server.check_memory_after(min(max(room, _LOOK_BYTES_MIN), _LOOK_BYTES_MAX))


def _open_database(data_dir: Path) -> DefinitionsDatabase:
    try:
        data_dir.mkdir(parents=True, exist_ok=True)
        return DefinitionsDatabase(data_dir / "definitions.sqlite")
    except (DefinitionsDamagedError, DefinitionsVersionError) as error:
        raise StartError(str(error)) from error
    except (OSError, sqlite3.Error) as error:
        raise StartError(unusable_text(data_dir, str(error))) from error


def _make_tls(settings: Settings) -> Tls:
    """What ports for TLS encrypt with."""
    try:
        return Tls(settings.ssl_options)
    except TlsError as error:
        raise StartError(str(error)) from error


def _bind(wanted: Planned, port: int, backlog: int) -> list[socket]:
    host = wanted.endpoint.host
    try:
        return bind(host, port, backlog)
    except OSError as error:
        where = written(host, port)
        raise StartError(f"cannot listen on {where}: {reason_of(error)}; choose another {wanted.option}") from error


def _memory_limit(settings: Settings) -> int:
    watermark = settings.vm_memory_high_watermark
    if watermark.absolute is not None:
        return watermark.absolute
    return int(available_memory() * watermark.relative)
