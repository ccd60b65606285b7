"""The command `leveret check-config`: reports all errors of a configuration without starting the broker.

Its arguments are the broker's. It exits with 0 if it finds no error. Otherwise it exits as the broker would: with 2
if the command line is wrong, else with 1.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import logging
import os
import sqlite3
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, TextIO
from urllib.parse import quote

from leveret.broker.addresses import bind, describe_error
from leveret.broker.auth.accounts import Accounts
from leveret.broker.auth.user_definitions import load as load_accounts
from leveret.broker.config.cli import read_configuration
from leveret.broker.config.errors import ConfigError, DefinitionsError, UsageError
from leveret.broker.config.listening import PlannedListener, planned_listeners
from leveret.broker.config.load import LoadResult
from leveret.broker.config.options import OPTIONS, DefaultPermissions, Settings
from leveret.broker.config.rendering import effective_configuration
from leveret.broker.core.broker import Broker
from leveret.broker.core.scheduling.timers import Timers
from leveret.broker.core.scheduling.turn import Turn
from leveret.broker.management.http.certificates import valid_until
from leveret.broker.operations.broker_definitions import load_definitions
from leveret.broker.tls import find_problems
from leveret.policies.invalid_pattern import InvalidPattern
from leveret.policies.patterns import Pattern
from leveret.storage.directory.directory_format import DataDirectoryError, read_format
from leveret.storage.disk.files import DiskFiles

#: Argument that prints the effective configuration.
_PRINT: Final = "--print"


def check_config(argv: Sequence[str], environ: Mapping[str, str], out: TextIO, err: TextIO) -> int:
    """Check a configuration.

    Args:
        argv: Command line behind `check-config`: the broker's options, and `--print`.
        environ: Environment variables.
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
            problems.append(_with_origin(loaded, option, text))
    for problem in problems:
        err.write(f"leveret: {problem}\n")
    if problems:
        return max(problem.exit_status for problem in problems)
    out.write(effective_configuration(settings, loaded.origins) if _PRINT in argv else "the configuration is valid\n")
    return 0


def _with_origin(loaded: LoadResult, option: str, text: str) -> ConfigError:
    """Return an error with the origin of its option."""
    origin = loaded.origins.get(option)
    kind = UsageError if origin is not None and origin.startswith("--") else ConfigError
    return kind(f"{origin}: {text}" if origin else text)


def _problems(settings: Settings) -> Iterator[tuple[str, str]]:
    """Yield option and text of errors in combinations of options, and in what the options refer to."""
    listeners = planned_listeners(settings)
    yield from _listener_problems(listeners)
    if any(each.encrypted for each in listeners):
        yield from find_problems(settings.ssl_options)
        yield from _expired_certificates(settings)
    yield from _directory_problems(settings.data_dir)
    yield from _permission_problems(settings.default_permissions)
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


def _permission_problems(permissions: DefaultPermissions) -> Iterator[tuple[str, str]]:
    patterns = {"configure": permissions.configure, "write": permissions.write, "read": permissions.read}
    for name, pattern in patterns.items():
        option = f"default_permissions.{name}"
        try:
            Pattern(pattern)
        except InvalidPattern as error:
            yield option, f"{option}: {error}"


def _definitions_problems(settings: Settings) -> Iterator[tuple[str, str]]:
    """Import the definitions into a temporary broker in memory, and yield the errors."""
    for option in ("load_definitions", "definitions", "policies"):
        others: dict[str, Any] = {
            name: OPTIONS[name].default for name in ("load_definitions", "definitions", "policies")
        }
        del others[option]
        # Their errors have been reported.
        others["default_permissions"] = DefaultPermissions()
        try:
            asyncio.run(_try_import(dataclasses.replace(settings, **others)))
        except DefinitionsError as error:
            yield option, f"{option}: {error}" if option == "load_definitions" else str(error)


async def _try_import(settings: Settings) -> None:
    loop = asyncio.get_running_loop()
    broker, accounts = Broker(Turn(loop.call_soon), Timers(loop.call_later)), Accounts(settings.loopback_users)
    is_new = not _load_stored_definitions(settings.data_dir / "definitions.sqlite", broker, accounts)
    logging.disable()
    try:
        load_definitions(settings, broker, accounts, is_new=is_new)
    finally:
        logging.disable(logging.NOTSET)


def _load_stored_definitions(path: Path, broker: Broker, accounts: Accounts) -> bool:
    """Load vhosts and users from the data directory, as definitions may refer to them; return whether any exist."""
    try:
        if not path.exists():
            return False
    except OSError:
        # The directory cannot be used, which has been reported.
        return False
    query = "select kind, key, value from definitions where kind in ('vhost', 'accounts') order by kind desc"
    try:
        with closing(sqlite3.connect(f"file:{quote(str(path))}?mode=ro", uri=True)) as database:
            rows = database.execute(query).fetchall()
    except sqlite3.Error:
        # The broker checks the database at its start, with better error texts.
        return False
    for kind, key, value in rows:
        if kind == "vhost":
            broker.add_vhost(json.loads(key)[0])
        else:
            load_accounts(accounts, json.loads(value), broker.vhosts)
    return bool(rows)
