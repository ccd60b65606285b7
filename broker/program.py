"""The program ``leveret``: runs the broker, or checks or describes its configuration."""

from __future__ import annotations

import os
import sys
from typing import NoReturn

import uvloop

from leveret.broker import logs
from leveret.broker.app import StartError
from leveret.broker.check import check_config, refusal_text
from leveret.broker.config.cli import BACKUP_COMMANDS, CHECK_CONFIG, CONFIG_REFERENCE, parse, read_or_exit
from leveret.broker.config.config_errors import DefinitionsError
from leveret.broker.config.rendering import reference_page
from leveret.broker.process import open_log, serve

_BACKUP_PROGRAM = "leveret.analytics.backup"


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
        # With /dev/null Python does not fail again when it flushes stdout at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):
            # The reader, for example `head`, has stopped reading.
            return 0
        sys.stderr.write(f"leveret: {error.strerror}\n")
        return 1
    return status
