"""The broker as a process: its limits, its signals, its one line on stdout."""

from __future__ import annotations

import asyncio
import logging
import os
import resource
import signal
import sys
from collections.abc import Callable
from functools import partial

from leveret.broker.app import App, StartError
from leveret.broker.config.errors import ConfigError
from leveret.broker.config.options import Settings
from leveret.broker.garbage import GarbageCollection

log = logging.getLogger("leveret")


async def serve(settings: Settings, read_settings: Callable[[], Settings]) -> None:
    """Run a broker until a signal stops it; a second signal stops it at once, SIGHUP has it read its configuration.

    Until it serves, signals are left as they are.

    Args:
        settings: Its configuration.
        read_settings: Reads the configuration again.
    Raises:
        StartError: It cannot start.
    """
    _prepare()
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    GarbageCollection(loop.call_soon).start()
    app = App(settings)
    try:
        await app.start()
    except StartError:
        await app.stop()
        raise
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, _stop, number, stopping)
    loop.add_signal_handler(signal.SIGHUP, partial(_reload, app, read_settings))
    _announce(app.ready_line())
    await stopping.wait()
    await app.stop()
    log.info("stopped")


def _announce(line: str) -> None:
    try:
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()
    except OSError as error:
        # Nobody reads it: no reason not to serve, nor for Python to fail with it again at the end.
        log.warning("cannot print that it is ready: %s", error.strerror)
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _reload(app: App, read_settings: Callable[[], Settings]) -> None:
    try:
        settings = read_settings()
    except ConfigError as error:
        log.error("the configuration stays as it was: %s", error)
    else:
        app.reload(settings)
        # The user has asked for it, so it is logged at any level.
        log.warning("configuration reloaded")


def _stop(number: int, stopping: asyncio.Event) -> None:
    if stopping.is_set():
        log.warning("second signal: stopping at once")
        # Nothing is left to be tidied in a hurry; the status is that of a process killed by the signal.
        signal.signal(number, signal.SIG_DFL)
        signal.raise_signal(number)
    log.info("received %s, stopping", signal.Signals(number).name)
    stopping.set()


def _prepare() -> None:
    """Allow as many open files as the system lets us."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
