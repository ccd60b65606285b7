"""Where a broker listens: the listeners that a configuration asks for, and the addresses of one that runs here."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from leveret.broker.config.kinds import Endpoint
from leveret.broker.config.options import Settings


@dataclass(frozen=True, slots=True)
class PlannedListener:
    """A listener that the configuration asks for.

    Attributes:
        name: Name of the service: amqp, amqps, management, management-tls or prometheus.
        endpoint: Address and port to listen on.
        option: Option to change if the endpoint cannot be used, as on the command line.
        encrypted: Whether it uses TLS.
    """

    name: str
    endpoint: Endpoint
    option: str
    encrypted: bool


#: Services in the order in which their listeners are opened, with the options of their ports and endpoints.
_SERVICES: Final = (
    ("amqp", "port", "tcp"),
    ("management", "management_port", None),
    ("prometheus", "prometheus_port", None),
    ("amqps", "amqps_port", "ssl"),
    ("management-tls", "management_tls_port", None),
)
_ENCRYPTED: Final = ("amqps", "management-tls")


def planned_listeners(settings: Settings) -> list[PlannedListener]:
    """Return all listeners: of each service the configured endpoints, or one port on all addresses of `host`."""
    found: list[PlannedListener] = []
    for name, port_option, group in _SERVICES:
        endpoints: Sequence[Endpoint] | None = None if group is None else getattr(settings.listeners, group)
        option = f"listeners.{group}"
        if endpoints is None:
            port: int | None = getattr(settings, port_option)
            endpoints = [] if port is None else [Endpoint("", port)]
            option = f"--host or --{port_option.replace('_', '-')}"
        found += [
            PlannedListener(name, Endpoint(host, endpoint.port), option, name in _ENCRYPTED)
            for endpoint in endpoints
            for host in ([endpoint.host] if endpoint.host else settings.host)
        ]
    return found


# -- a broker that runs on this machine, so that other programs can connect to it ----------------------------

_PROGRAM: Final = "leveret"
#: Address to connect to if a broker listens on all addresses.
_LOOPBACK: Final = {"0.0.0.0": "127.0.0.1", "::": "::1"}


def running_settings(processes: Path = Path("/proc")) -> Settings | None:
    """Read the configuration of the running broker with the lowest process id.

    Returns:
        The settings from its command line, environment and configuration file; None if no broker runs.

    Raises:
        ConfigError: They are no longer valid, for example because the file has changed.
    """
    # Not at the top: a broker in another program has no command line.
    from leveret.broker.config.cli import parse

    numbered = (path for path in processes.iterdir() if path.name.isdecimal())
    for directory in sorted(numbered, key=lambda path: int(path.name)):
        arguments = _arguments(directory)
        if arguments is not None:
            return parse(arguments, _environment(directory))
    return None


def amqp_address(settings: Settings) -> tuple[str, int] | None:
    """Return host and port for local AMQP connections without TLS; None if there is no such listener."""
    return next(_addresses(settings, "amqp"), None)


def management_address(settings: Settings) -> tuple[str, int]:
    """Return host and port for local connections to the HTTP API."""
    return next(_addresses(settings, "management"))


def _addresses(settings: Settings, name: str) -> Iterator[tuple[str, int]]:
    endpoints = (each.endpoint for each in planned_listeners(settings) if each.name == name)
    return ((_LOOPBACK.get(endpoint.host, endpoint.host), endpoint.port) for endpoint in endpoints)


def _arguments(process: Path) -> list[str] | None:
    """Return the broker's arguments; None if the process is not a broker, or is leveret with a subcommand."""
    words = _words(process / "cmdline")
    # The first word is the Python interpreter.
    if len(words) < 2 or Path(words[1]).name != _PROGRAM or (len(words) > 2 and not words[2].startswith("-")):
        return None
    return words[2:]


def _environment(process: Path) -> dict[str, str]:
    """Return the environment of a process; without permission that of this process, which is similar in a container."""
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
        # The process has ended.
        return []
