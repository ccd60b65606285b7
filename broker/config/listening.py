"""Listeners that the configuration asks for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

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


def planned_listeners(settings: Settings) -> list[PlannedListener]:
    """Return all listeners in the order in which they are opened."""
    tcp, tls = settings.listeners.tcp, settings.listeners.ssl
    return [
        *_planned(settings, "amqp", settings.port, "--host or --port", endpoints=tcp, endpoints_option="listeners.tcp"),
        *_planned(settings, "management", settings.management_port, "--host or --management-port"),
        *_planned(settings, "prometheus", settings.prometheus_port, "--host or --prometheus-port"),
        *_planned(
            settings,
            "amqps",
            settings.amqps_port,
            "--host or --amqps-port",
            endpoints=tls,
            endpoints_option="listeners.ssl",
        ),
        *_planned(settings, "management-tls", settings.management_tls_port, "--host or --management-tls-port"),
    ]


def _planned(
    settings: Settings,
    name: str,
    port: int | None,
    option: str,
    endpoints: Iterable[Endpoint] | None = None,
    endpoints_option: str = "",
) -> Iterator[PlannedListener]:
    """Return the listeners of one name: the configured endpoints, or one port on all addresses of `host`."""
    if endpoints is not None:
        option = endpoints_option
    else:
        endpoints = [] if port is None else [Endpoint("", port)]
    encrypted = name in ("amqps", "management-tls")
    for endpoint in endpoints:
        for host in [endpoint.host] if endpoint.host else settings.host:
            yield PlannedListener(name, Endpoint(host, endpoint.port), option, encrypted)
