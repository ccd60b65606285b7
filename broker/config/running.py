"""The configuration of a broker that runs here, for programs beside it: they need not be told its ports and users."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from leveret.broker.config.cli import parse
from leveret.broker.config.listening import planned
from leveret.broker.config.options import Settings

_PROGRAM: Final = "leveret"
#: What to connect to where a broker listens on all addresses.
_LOOPBACK: Final = {"0.0.0.0": "127.0.0.1", "::": "::1"}


def running_settings(processes: Path = Path("/proc")) -> Settings | None:
    """Read what the broker with the lowest process id was started with: its command line, environment and file.

    Args:
        processes: Where the system shows its processes, as Linux does.

    Returns:
        The settings that it would have if it started now; None where no broker runs.

    Raises:
        ConfigError: What it was started with cannot be used any more: its file has changed, say.
    """
    for directory in sorted(_numbered(processes), key=lambda path: int(path.name)):
        arguments = _arguments(directory)
        if arguments is not None:
            return parse(arguments, _environment(directory))
    return None


def amqp_address(settings: Settings) -> tuple[str, int] | None:
    """Return host and port at which a broker with these settings takes plain AMQP from its own machine, if it does."""
    return next(_addresses(settings, "amqp"), None)


def management_address(settings: Settings) -> tuple[str, int]:
    """Return host and port of its HTTP API, likewise."""
    return next(_addresses(settings, "management"))


def _addresses(settings: Settings, name: str) -> Iterator[tuple[str, int]]:
    endpoints = (each.endpoint for each in planned(settings) if each.name == name)
    return ((_LOOPBACK.get(endpoint.host, endpoint.host), endpoint.port) for endpoint in endpoints)


def _numbered(processes: Path) -> Iterator[Path]:
    return (path for path in processes.iterdir() if path.name.isdecimal())


def _arguments(process: Path) -> list[str] | None:
    """The broker's arguments; None if it is another process, or leveret with a subcommand."""
    words = _words(process / "cmdline")
    # The interpreter comes first.
    if len(words) < 2 or Path(words[1]).name != _PROGRAM or (len(words) > 2 and not words[2].startswith("-")):
        return None
    return words[2:]


def _environment(process: Path) -> dict[str, str]:
    """Its environment; this process's where it may not be seen, which in a container is nearly the same."""
    try:
        words = _words(process / "environ", strict=True)
    except PermissionError:
        return dict(os.environ)
    return {name: value for name, _, value in (word.partition("=") for word in words)}


def _words(file: Path, strict: bool = False) -> list[str]:
    try:
        return os.fsdecode(file.read_bytes()).removesuffix("\0").split("\0")
    except PermissionError:
        if strict:
            raise
        return []
    except OSError:
        # It ended meanwhile.
        return []
