"""Which addresses and ports the configuration asks to listen on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from leveret.broker.config.kinds import Endpoint

if TYPE_CHECKING:
    from leveret.broker.config.options import Settings


@dataclass(frozen=True, slots=True)
class Planned:
    """One socket to listen on.

    Attributes:
        name: What is served there: amqp, amqps, management, management-tls or prometheus.
        endpoint: Where.
        option: What to change if it cannot be had, as on the command line.
        encrypted: Whether it speaks TLS.
    """

    name: str
    endpoint: Endpoint
    option: str
    encrypted: bool


def planned(settings: Settings) -> list[Planned]:
    """All sockets to listen on, in the order in which they are opened.

    Args:
        settings: The configuration.
    """
    tcp, tls = settings.listeners.tcp, settings.listeners.ssl
    return [
        *_planned(settings, "amqp", settings.port, "--host or --port", given=tcp, by="listeners.tcp"),
        *_planned(settings, "management", settings.management_port, "--host or --management-port"),
        *_planned(settings, "prometheus", settings.prometheus_port, "--host or --prometheus-port"),
        *_planned(settings, "amqps", settings.amqps_port, "--host or --amqps-port", given=tls, by="listeners.ssl"),
        *_planned(settings, "management-tls", settings.management_tls_port, "--host or --management-tls-port"),
    ]


def _planned(
    settings: Settings,
    name: str,
    port: int | None,
    option: str,
    given: Iterable[Endpoint] | None = None,
    by: str = "",
) -> Iterator[Planned]:
    """The sockets of one name: those that are given, or one port on all addresses."""
    if given is not None:
        endpoints, option = [*given], by
    else:
        endpoints = [] if port is None else [Endpoint("", port)]
    encrypted = name in ("amqps", "management-tls")
    for endpoint in endpoints:
        for host in [endpoint.host] if endpoint.host else settings.host:
            yield Planned(name, Endpoint(host, endpoint.port), option, encrypted)
