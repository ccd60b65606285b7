"""The program ``leveret``: runs the broker as a process, or checks or describes its configuration.

Of the process it sets the file limit, handles signals, and prints the ready line on stdout.
"""

from __future__ import annotations

import asyncio
import logging
import os
import resource
import signal
import sys
from collections.abc import Callable
from functools import partial
from typing import Final, NoReturn

import uvloop

from leveret import compilation
from leveret.broker import logs
from leveret.broker.app import App, StartError
from leveret.broker.check import check_config, refusal_text
from leveret.broker.config.cli import BACKUP_COMMANDS, CHECK_CONFIG, CONFIG_REFERENCE, parse, read_or_exit
from leveret.broker.config.config_errors import ConfigError, DefinitionsError
from leveret.broker.config.options import Settings
from leveret.broker.config.rendering import reference_page
from leveret.broker.core.resources.memory import keep_free_memory
from leveret.broker.garbage import GarbageCollection
from leveret.broker.replicated import ReplicatedBroker
from leveret.broker.version import VERSION

log = logging.getLogger("leveret")

_BACKUP_PROGRAM: Final = "leveret.analytics.backup"
#: Seconds after the first signal in which another one changes nothing.
_SAME_REQUEST_SECONDS: Final = 1.0


def run(argv: list[str]) -> None:
    """Run the broker, or check or describe its configuration.

    Args:
        argv: Command line without the program's name.

    Raises:
        SystemExit: 0 after a clean stop, 1 if it cannot start, 2 for bad usage.
    """
    if argv and argv[0] in BACKUP_COMMANDS:
        # Another process, because the broker does not know what reads its files.
        sys.stdout.flush()
        os.execv(sys.executable, [sys.executable, "-m", _BACKUP_PROGRAM, *argv])
    if argv[:1] == [CHECK_CONFIG] or argv == [CONFIG_REFERENCE]:
        sys.exit(_run_command(argv))
    loaded = read_or_exit(argv, os.environ)
    settings = loaded.settings()
    try:
        logs.configure(settings.log_level, open_log(settings))
        uvloop.run(serve(settings, lambda: parse(argv, os.environ)))
    except DefinitionsError as error:
        _refuse_to_start(refusal_text(loaded, error))
    except StartError as error:
        _refuse_to_start(str(error))


def _refuse_to_start(reason: str) -> NoReturn:
    sys.stderr.write(f"leveret: {reason}\n")
    sys.exit(1)


def _run_command(argv: list[str]) -> int:
    """Run one of the commands that do not start the broker; return the exit status."""
    try:
        if argv == [CONFIG_REFERENCE]:
            sys.stdout.write(reference_page())
            status = 0
        else:
            status = check_config(argv[1:], os.environ, sys.stdout, sys.stderr)
        sys.stdout.flush()
    except OSError as error:
        _drop_stdout()
        if isinstance(error, BrokenPipeError):
            # The reader, for example `head`, has stopped reading.
            return 0
        sys.stderr.write(f"leveret: {error.strerror}\n")
        return 1
    return status


def _drop_stdout() -> None:
    """Let stdout be /dev/null: with that Python does not fail again when it flushes stdout at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


# -- the broker's process -------------------------------------------------------------------------------------


async def serve(settings: Settings, read_settings: Callable[[], Settings]) -> None:
    """Run a broker until a signal stops it; a second signal stops it at once, SIGHUP reloads the configuration.

    The signal handlers are installed once the broker has started.

    Args:
        read_settings: Reads the configuration again.
    Raises:
        StartError: It cannot start.
    """
    _raise_file_limit()
    keep_free_memory()
    loop = asyncio.get_running_loop()
    stopping = _Stopping(loop.time)
    GarbageCollection(loop.call_soon).start()
    app: App | ReplicatedBroker
    if settings.replication.register == "none":
        app = App(settings)
    else:
        app = ReplicatedBroker(settings, _print_ready_line, stopping.requested.set)
    try:
        await app.start()
    except StartError:
        await app.stop()
        raise
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.receive, number)
    loop.add_signal_handler(signal.SIGHUP, partial(_reload, app, read_settings))
    # Not earlier: a broker that cannot start says only why.
    log.info("version %s, %s", VERSION, compilation.describe())
    if isinstance(app, App):
        _print_ready_line(app.ready_line())
    await stopping.requested.wait()
    await app.stop()
    log.info("stopped")


def _print_ready_line(line: str) -> None:
    try:
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()
    except OSError as error:
        # The broker runs without stdout too.
        log.warning("cannot print the ready line: %s", error.strerror)
        _drop_stdout()


def _reload(app: App | ReplicatedBroker, read_settings: Callable[[], Settings]) -> None:
    """Read the configuration again, and put it in force; if any of it cannot be used, none of it is."""
    handlers: list[logging.Handler] = []
    try:
        settings = read_settings()
        handlers = open_log(settings)
        app.reload(settings)
    except (ConfigError, StartError) as error:
        for each in handlers:
            each.close()
        log.error("the configuration is not reloaded: %s", error)
    else:
        logs.configure(settings.log_level, handlers)
        # A warning, so that it is logged at the usual levels: the user has asked for the reload.
        log.warning("configuration reloaded")


def open_log(settings: Settings) -> list[logging.Handler]:
    """Return the handlers of the log that a configuration asks for; see logs.configure().

    Raises:
        StartError: The file cannot be written to.
    """
    options = settings.log
    try:
        return logs.open_handlers(options.formatter, options.file, options.console)
    except OSError as error:
        raise StartError(f"log.file: cannot write to {options.file}: {error.strerror}") from error


class _Stopping:
    """Reacts to signals: the first one stops the broker, a later one stops it at once.

    A signal that follows within a second is the same request: `timeout`, and shells whose Ctrl-C reaches both a wrapper
    and the broker, send it twice.

    Args:
        time: Monotonic time in seconds.

    Attributes:
        requested: Set by the first signal.
    """

    def __init__(self, time: Callable[[], float]) -> None:
        self._time = time
        self._requested_at = 0.0
        self.requested = asyncio.Event()

    def receive(self, number: int) -> None:
        """Handle a signal."""
        if not self.requested.is_set():
            log.info("received %s, stopping", signal.Signals(number).name)
            self._requested_at = self._time()
            self.requested.set()
        elif self._time() - self._requested_at >= _SAME_REQUEST_SECONDS:
            log.warning("second signal: stopping at once")
            # No cleanup is needed; the exit status is that of a process killed by the signal.
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)


def _raise_file_limit() -> None:
    """Raise the limit of open files to the hard limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
