"""Metrics of virtual hosts and exchanges. Only the detailed endpoint has them."""

from __future__ import annotations

from typing import Any, Final

from leveret.broker.core.broker import Broker
from leveret.broker.core.exchanges.base import Exchange
from leveret.broker.core.vhosts.vhost import VirtualHost
from leveret.broker.management.http.prometheus.families import Family, Vhosts, gauge

_PREFIX: Final = "rabbitmq_cluster_"
_EXCHANGE_LABELS: Final = ("vhost", "exchange", "type")


def _vhosts_in(broker: Broker, vhosts: Vhosts) -> list[VirtualHost]:
    return [vhost for vhost in broker.vhosts.values() if vhosts is None or vhost.name in vhosts]


def _exchanges_in(broker: Broker, vhosts: Vhosts) -> list[Exchange]:
    return [exchange for vhost in _vhosts_in(broker, vhosts) for exchange in vhost.topology.exchanges.values()]


def _labels(exchange: Exchange) -> tuple[str, ...]:
    return exchange.vhost_name, exchange.name, exchange.type_name


#: Bindings are counted at their source.
CLUSTER_FAMILIES: Final[tuple[Family[Any], ...]] = (
    Family(
        "vhost_status",
        (gauge("vhost_status", "Whether a given vhost is running"),),
        ("vhost",),
        _vhosts_in,
        lambda vhost: (vhost.name,),
        lambda vhost: (1,),
        prefix=_PREFIX,
    ),
    Family(
        "exchange_names",
        (gauge("exchange_name", "Enumerates exchanges without any additional info. This value is cluster-wide."),),
        _EXCHANGE_LABELS,
        _exchanges_in,
        _labels,
        lambda exchange: (1,),
        prefix=_PREFIX,
    ),
    Family(
        "exchange_bindings",
        (gauge("exchange_bindings", "Number of bindings for an exchange. This value is cluster-wide."),),
        _EXCHANGE_LABELS,
        _exchanges_in,
        _labels,
        lambda exchange: (len(exchange.bindings),),
        prefix=_PREFIX,
    ),
)
