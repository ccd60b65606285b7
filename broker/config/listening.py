"""Listeners that the configuration asks for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
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
