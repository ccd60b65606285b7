"""The composition root: starts the parts in order, stops them in reverse."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import resource
import signal
import sqlite3
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

from broker.auth.accounts import Accounts
from broker.config.options import Settings
from broker.core.broker import Broker
from broker.core.disk import Disk, DiskError
from broker.core.memory import MemoryMonitor, available_memory
from broker.core.node import Node
from broker.core.paging import Pager
from broker.core.stats.sampler import Sampler
from broker.core.timers import Timers
from broker.core.turn import Turn
from broker.definitions import DefinitionsKeeper, load_definitions
from broker.management.http.access import Access
from broker.management.http.context import Context
from broker.management.http.server import HttpServer, management_app, prometheus_app
from broker.session.listener import Listener
from broker.session.server import Server
from broker.version import VERSION
from storage.definitions import DefinitionsDamagedError, DefinitionsDatabase

log = logging.getLogger("leveret")

#: How often the memory in use is compared with the watermark, in seconds.
_MEMORY_LOOK_SECONDS: Final = 1.0

#: Objects between two runs of the cyclic garbage collector. Messages are no garbage and form no cycles, but
#: every collection would walk all that wait in queues.
_GC_THRESHOLD: Final = (200_000, 50, 1_000)


class StartError(Exception):
    """The broker cannot start; the text says why and what to do, in one line."""


class App:
    """One broker in one event loop.

    Args:
        settings: Its configuration.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        loop = asyncio.get_running_loop()
        self.broker = Broker(
            Turn(loop.call_soon, self._make_durable), Timers(loop.call_later), settings.trust_publisher_x_death
        )
        self.accounts = Accounts(settings.loopback_users)
        self.server = Server(settings, self.broker, self.accounts, loop)
        self._listener = Listener(self.server)
        self.node = Node(data_dir=settings.data_dir, memory_limit=_memory_limit(settings))
        self.addresses = self.node.addresses
        access = Access(self.accounts, self.broker)
        context = Context(self.broker, self.accounts, self.node, settings, access, self._save_definitions)
        self._management = HttpServer(management_app(context))
        self._sampler = Sampler(self.broker, self.node)
        self._prometheus = HttpServer(prometheus_app(self.broker))
        self._memory = MemoryMonitor(self.broker.alarms, self.node.memory_limit)
        self._pager = Pager(
            self.broker, int(self.node.memory_limit * settings.vm_memory_high_watermark_paging_ratio)
        )
        self._disk: Disk | None = None
        #: Definitions have changed that could not be saved.
        self._unsaved = False
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
        self._definitions = DefinitionsKeeper(_open_database(self.settings.data_dir), self.broker, self.accounts)
        found = self._definitions.restore()
        self.broker.storage.forget_unknown()
        load_definitions(self.settings, self.broker, self.accounts, is_new=not found)
        self._definitions.save()
        self._watch_memory()
        self._sampler.start()
        settings = self.settings
        self.addresses["amqp"] = await _listen(self._listener.start, settings.host, settings.port, "--port")
        for name, server, port in (
            ("management", self._management, settings.management_port),
            ("prometheus", self._prometheus, settings.prometheus_port),
        ):
            self.addresses[name] = await _listen(server.start, settings.host, port, f"--{name}-port")

    async def stop(self) -> None:
        """Stop everything within the shutdown timeout."""
        self._sampler.stop()
        if self._watch is not None:
            self._watch.cancel()
        await self._prometheus.stop()
        await self._management.stop()
        await self._listener.stop(self.settings.shutdown_timeout / 1000)
        if self._disk is not None:
            self._save_definitions()
            self._disk.close()
            self._disk = None
        if self._definitions is not None:
            self._definitions.close()
            self._definitions = None

    def ready_line(self) -> str:
        """What the program prints when it serves."""
        where = " ".join(f"{name}={host}:{port}" for name, (host, port) in self.addresses.items())
        return f"leveret {VERSION} ready {where} data={self.settings.data_dir}"

    def _make_durable(self) -> None:
        """Write what this turn has changed: what clients are told next has to hold."""
        self._save_definitions()
        if self._disk is not None:
            self._disk.write()

    def _save_definitions(self) -> None:
        if self._definitions is None:
            return
        try:
            self._definitions.save()
        except sqlite3.Error as error:
            # The disk is full, as a rule: what is not written is kept and tried again in each turn.
            if not self._unsaved:
                log.error("cannot save definitions: %s; trying again", error)
            self._unsaved = True
        else:
            if self._unsaved:
                log.warning("definitions are saved again")
            self._unsaved = False

    def _watch_memory(self) -> None:
        if self._memory.look():
            state = "set" if self.broker.alarms.any else "cleared"
            log.warning("memory alarm %s (limit %d bytes)", state, self._memory.limit)
        self._pager.relieve(self._memory.used)
        self._watch = self.server.loop.call_later(_MEMORY_LOOK_SECONDS, self._watch_memory)


def _open_database(data_dir: Path) -> DefinitionsDatabase:
    try:
        data_dir.mkdir(parents=True, exist_ok=True)
        return DefinitionsDatabase(data_dir / "definitions.sqlite")
    except DefinitionsDamagedError as error:
        raise StartError(str(error)) from error
    except (OSError, sqlite3.Error) as error:
        raise StartError(f"cannot use the data directory {data_dir}: {error}; choose another --data-dir") from error


async def _listen(
    start: Callable[[str, int], Awaitable[tuple[str, int]]], host: str, port: int, option: str
) -> tuple[str, int]:
    try:
        return await start(host, port)
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise StartError(f"cannot listen on {host}:{port}: {reason}; choose another --host or {option}") from error


async def serve(settings: Settings) -> None:
    """Run a broker until a signal stops it; a second signal stops it at once.

    Raises:
        StartError: It cannot start.
    """
    _prepare_process()
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, _on_signal, number, stopping)
    app = App(settings)
    try:
        await app.start()
    except StartError:
        await app.stop()
        raise
    sys.stdout.write(app.ready_line() + "\n")
    sys.stdout.flush()
    await stopping.wait()
    await app.stop()
    log.info("stopped")


def _on_signal(number: int, stopping: asyncio.Event) -> None:
    if stopping.is_set():
        log.warning("second signal: stopping at once")
        # Nothing is left to be tidied in a hurry; the status is that of a process killed by the signal.
        signal.signal(number, signal.SIG_DFL)
        signal.raise_signal(number)
    log.info("received %s, stopping", signal.Signals(number).name)
    stopping.set()


def _prepare_process() -> None:
    """Allow as many open files as the system lets us, and keep the garbage collector off the messages."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_GC_THRESHOLD)


def _memory_limit(settings: Settings) -> int:
    watermark = settings.vm_memory_high_watermark
    if watermark.absolute is not None:
        return watermark.absolute
    return int(available_memory() * watermark.relative)
