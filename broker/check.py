"""The command `leveret check-config`: reports all errors of a configuration without starting the broker.

Its arguments are the broker's. It exits with 0 if it finds no error. Otherwise it exits as the broker would: with 2
if the command line is wrong, else with 1. Definitions are loaded by the code that loads them at the start.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import sqlite3
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, TextIO
from urllib.parse import quote

from leveret.broker.addresses import bind, describe_error
from leveret.broker.app import DEFINITIONS, StartError, trial_broker
from leveret.broker.config.cli import read_configuration
from leveret.broker.config.config_errors import ConfigError, DefinitionsError, UsageError
from leveret.broker.config.listening import PlannedListener, planned_listeners
from leveret.broker.config.load import LoadResult
from leveret.broker.config.options import OPTIONS, Settings
from leveret.broker.config.rendering import effective_configuration
from leveret.broker.operations.broker_definitions import Refuse
from leveret.broker.tls import find_problems, valid_until
from leveret.storage.directory.directory_format import DataDirectoryError, read_format
from leveret.storage.disk.files import DiskFiles

#: Argument that prints the effective configuration.
_PRINT: Final = "--print"


def check_config(argv: Sequence[str], environ: Mapping[str, str], out: TextIO, err: TextIO) -> int:
    """Check a configuration.

    Args:
        argv: Command line behind `check-config`: the broker's options, and `--print`.
        out: Stream for the effective configuration with `--print`, otherwise for a line that reports success.
        err: Stream for the errors, one per line.

    Returns:
        Exit status.
    """
    try:
        loaded = read_configuration([each for each in argv if each != _PRINT], environ)
    except UsageError as error:
        err.write(f"leveret: {error}\n")
        return error.exit_status
    problems: list[ConfigError] = list(loaded.problems)
    settings = loaded.settings()
    # An option that could not be read has its default here; errors that follow from that are not reported.
    has_unread = bool(problems)
    for option, text in _problems(settings):
        if not (has_unread and option not in loaded.origins):
            problems.append(ConfigError(_with_origin(loaded, option, text)))
    for option, text in _expired_certificates(settings):
        err.write(f"leveret: warning: {_with_origin(loaded, option, text)}\n")
    for problem in problems:
        err.write(f"leveret: {problem}\n")
    if problems:
        return max(problem.exit_status for problem in problems)
    out.write(effective_configuration(settings, loaded.origins) if _PRINT in argv else "the configuration is valid\n")
    return 0


def _with_origin(loaded: LoadResult, option: str, text: str) -> str:
    """Return an error text with the file and line, environment variable or flag that its option comes from."""
    origin = loaded.origins.get(option)
    return f"{origin}: {text}" if origin else text


def _problems(settings: Settings) -> Iterator[tuple[str, str]]:
    """Yield option and text of errors in combinations of options, and in what the options refer to."""
    listeners = planned_listeners(settings)
    yield from _listener_problems(listeners)
    if any(each.encrypted for each in listeners):
        yield from find_problems(settings.ssl_options)
    yield from _log_problems(settings.log.file)
    yield from _directory_problems(settings.data_dir)
    yield from _definitions_problems(settings)


def _listener_problems(listeners: list[PlannedListener]) -> Iterator[tuple[str, str]]:
    ports = Counter((each.endpoint.host, each.endpoint.port) for each in listeners if each.endpoint.port)
    for (host, port), count in ports.items():
        if count > 1:
            users = [each for each in listeners if (each.endpoint.host, each.endpoint.port) == (host, port)]
            names = " and ".join(each.name for each in users)
            yield _option_of(users[-1]), f"{names} cannot both have port {port} on {host}"
    for host, wanted in {each.endpoint.host: each for each in listeners}.items():
        try:
            for sock in bind(host, 0, 1):
                sock.close()
        except OSError as error:
            option = _option_of(wanted) if wanted.option.startswith("listeners") else "host"
            yield option, f"{option}: cannot listen on {host}: {describe_error(error)}"


def _option_of(listener: PlannedListener) -> str:
    return listener.option.split("--")[-1].replace("-", "_")


def _expired_certificates(settings: Settings) -> Iterator[tuple[str, str]]:
    """Yield option and text of certificates that no client takes, with which the broker starts nevertheless."""
    if not any(each.encrypted for each in planned_listeners(settings)):
        return
    now = datetime.now(UTC)
    files = {"certfile": settings.ssl_options.certfile, "cacertfile": settings.ssl_options.cacertfile}
    for name, path in files.items():
        option = f"ssl_options.{name}"
        try:
            ends = [] if path is None else valid_until(path)
        except (OSError, ValueError, StopIteration):
            # Reported already by find_problems().
            continue
        if ends and min(ends) < now:
            yield option, f"{option}: {path} has expired on {min(ends):%Y-%m-%d}"


def _log_problems(file: Path | None) -> Iterator[tuple[str, str]]:
    if file is None:
        return
    parent = file.absolute().parent
    if file.is_dir() or not parent.is_dir():
        yield "log.file", f"log.file: {file} cannot be a file"
    elif not os.access(file if file.exists() else parent, os.W_OK):
        yield "log.file", f"log.file: {file} cannot be written to"


def _directory_problems(path: Path) -> Iterator[tuple[str, str]]:
    try:
        existing = next(each for each in (path.absolute(), *path.absolute().parents) if each.exists())
    except OSError as error:
        # For example, the name is too long.
        yield "data_dir", f"data_dir: {path}: {error.strerror}"
        return
    if not existing.is_dir():
        yield "data_dir", f"data_dir: {existing} is not a directory"
    elif not os.access(existing, os.W_OK | os.X_OK):
        yield "data_dir", f"data_dir: {existing} cannot be written to"
    else:
        try:
            found = read_format(DiskFiles(), str(path))
        except DataDirectoryError as error:
            yield "data_dir", f"data_dir: {error}"
            return
        except OSError:
            return
        if found is not None and found.is_too_new:
            yield "data_dir", f"data_dir: {path} was written by a newer version (format {found.format})"


def _definitions_problems(settings: Settings) -> list[tuple[str, str]]:
    """Start a broker with the definitions of the data directory in a temporary one; return what it refuses."""
    problems: list[DefinitionsError] = []
    try:
        with TemporaryDirectory(prefix="leveret-check-") as folder:
            _copy_definitions(settings.data_dir / DEFINITIONS, Path(folder) / DEFINITIONS)
            try:
                asyncio.run(_load(replace(settings, data_dir=Path(folder)), problems.append))
            except StartError as error:
                option = str(error).partition(":")[0]
                text = str(error).replace(folder, str(settings.data_dir))
                return [(option if option in OPTIONS else "data_dir", text)]
    except OSError as error:
        return [("load_definitions", f"definitions cannot be checked without a temporary directory: {error.strerror}")]
    return [(each.option, _refusal(each)) for each in problems]


def refusal_text(loaded: LoadResult, error: DefinitionsError) -> str:
    """Return why definitions are refused, with the origin of their option."""
    return _with_origin(loaded, error.option, _refusal(error))


def _refusal(error: DefinitionsError) -> str:
    # The other texts begin with the option, or with what is in it.
    return f"{error.option}: {error}" if error.option == "load_definitions" else str(error)


async def _load(settings: Settings, refuse: Refuse) -> None:
    async with trial_broker(settings, refuse):
        pass


def _copy_definitions(source: Path, target: Path) -> None:
    """Copy the database of definitions, as definitions may refer to what is in it."""
    try:
        if not source.exists():
            return
        try:
            # As a broker may be running.
            with (
                closing(sqlite3.connect(f"file:{quote(str(source))}?mode=ro", uri=True)) as database,
                closing(sqlite3.connect(target)) as copy,
            ):
                database.backup(copy)
        except sqlite3.Error:
            # Damaged, which the broker says better.
            shutil.copyfile(source, target)
    except OSError:
        # The directory cannot be used, which has been reported.
        return
