"""The overview of the broker, its virtual hosts and its node, with its memory, as JSON."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping, Sequence
from functools import cached_property
from types import SimpleNamespace
from typing import Any, Final

from leveret import compilation
from leveret.broker.config.options import Settings
from leveret.broker.core.broker import Broker
from leveret.broker.core.counters.counters import BrokerStatistics, NodeStatistics, VirtualHostStatistics
from leveret.broker.core.exchanges.types import EXCHANGE_TYPES
from leveret.broker.core.node import Node
from leveret.broker.core.queues.queue import Queue
from leveret.broker.core.resources.memory import used_memory
from leveret.broker.core.resources.sockets import open_files_max
from leveret.broker.core.stats.census import Census, ended_totals
from leveret.broker.management.fields import NODE, NODE_ABSENT
from leveret.broker.management.http.documents.views import document_maker
from leveret.broker.management.http.statistics import Rates, delivery_numbers, message_stats, numbers, publish_numbers
from leveret.broker.version import RABBITMQ_VERSION, VERSION

#: Retention of histories in seconds.
_RETENTION: Final[Mapping[str, list[int]]] = {
    "global": [600, 3600, 28800, 86400],
    "basic": [600, 3600],
    "detailed": [600],
}
#: Rates are per object, not per pair of objects (for example channel and queue).
_RATES_MODE: Final = "basic"
#: Figures of the node that are sampled, and numbers of what came and went; see NODE.
_NODE: Final = numbers(NodeStatistics.FIELDS, *(f.name for f in NODE if f.source.startswith("usage.")))
_CHURN: Final = numbers(BrokerStatistics.FIELDS, *(f.name for f in NODE if f.rate and f.name not in _NODE))
_READY: Final = ("messages_ready", "messages_unacknowledged")
#: As of queues, with returned messages that wait for their retry, and dead letters that no queue has accepted yet.
_ALL: Final = (*_READY, "messages_waiting")
_LENGTHS: Final = numbers(BrokerStatistics.FIELDS, *_READY, messages=_ALL)
_MESSAGES: Final = (
    publish_numbers(BrokerStatistics.FIELDS),
    delivery_numbers(BrokerStatistics.FIELDS),
    numbers(BrokerStatistics.FIELDS, "disk_reads", "disk_writes"),
    numbers(BrokerStatistics.FIELDS, "drop", "refuse"),
)
_VHOST_LENGTHS: Final = numbers(VirtualHostStatistics.FIELDS, *_READY, messages=_ALL)
_VHOST_DATA: Final = numbers(VirtualHostStatistics.FIELDS, "recv_oct", "send_oct")
_VHOST_MESSAGES: Final = (
    publish_numbers(VirtualHostStatistics.FIELDS),
    delivery_numbers(VirtualHostStatistics.FIELDS),
    numbers(VirtualHostStatistics.FIELDS, "drop", "refuse"),
)
#: Listeners by the name of their address: protocol, and description of web contexts.
_LISTENERS: Final = {
    "amqp": ("amqp", None),
    "amqps": ("amqp/ssl", None),
    "management": ("http", "RabbitMQ Management"),
    "management-tls": ("https", "RabbitMQ Management"),
    "prometheus": ("http/prometheus", "RabbitMQ Prometheus"),
}
_MECHANISMS: Final = {
    "AMQPLAIN": "QPid AMQPLAIN mechanism",
    "PLAIN": "SASL PLAIN authentication mechanism",
    "EXTERNAL": "SASL EXTERNAL mechanism, by the client's certificate",
}
_METRICS_GC: Final = {
    f"{kind}_deleted" if kind not in ("connection", "channel") else f"{kind}_closed": 0
    for kind in ("connection", "channel", "consumer", "exchange", "queue", "vhost", "node_node", "channel_consumer")
}


def overview_document(broker: Broker, node: Node) -> dict[str, Any]:
    """Return the part of the overview without statistics, which all users may see."""
    python = platform.python_version()
    marks = f"[{platform.machine()}] [{compilation.form()}]"
    return {
        "management_version": RABBITMQ_VERSION,
        "rabbitmq_version": RABBITMQ_VERSION,
        "product_name": "Leveret",
        "product_version": VERSION,
        "erlang_version": python,
        "erlang_full_version": f"{platform.python_implementation()} {python} {marks}",
        "release_series_support_status": "supported",
        "cluster_name": broker.cluster_name,
        "rates_mode": _RATES_MODE,
        "sample_retention_policies": _RETENTION,
        "exchange_types": exchange_types(),
        "default_queue_type": "classic",
        "uptime": node.uptime(),
        "is_op_policy_updating_enabled": True,
    }


def overview_stats(broker: Broker, census: Census, vhosts: Sequence[str] | None, rates: Rates) -> dict[str, Any]:
    """Return the statistics of the overview.

    Args:
        vhosts: Virtual hosts that the user may see; None for all, including deleted ones.
    """
    statistics, total = broker.statistics, census.total()
    visible = [census.vhosts[name] for name in vhosts or () if name in census.vhosts]
    totals = total if vhosts is None else _sum(visible)
    row = statistics.row(totals)
    # The only history is that of all virtual hosts together.
    followed = statistics if vhosts is None else BrokerStatistics()
    churn = statistics.row(total)
    return {
        "statistics_db_event_queue": 0,
        "message_stats": message_stats(rates, _MESSAGES, row, followed),
        "queue_totals": rates.add_to({}, _LENGTHS, row, followed, "lengths"),
        "churn_rates": rates.add_to({}, _CHURN, churn, statistics, "msg_rates"),
    }


def vhost_stats(statistics: VirtualHostStatistics, row: Sequence[int], rates: Rates) -> dict[str, Any]:
    """Return the statistics of a virtual host.

    Args:
        statistics: Its statistics, which have the history.
    """
    document = rates.add_to({}, _VHOST_LENGTHS, row, statistics, "lengths")
    rates.add_to(document, _VHOST_DATA, row, statistics, "data_rates")
    stats = message_stats(rates, _VHOST_MESSAGES, row, statistics)
    return {**document, "message_stats": stats} if stats else document


def exchange_types() -> list[dict[str, Any]]:
    """Return the exchange types."""
    return [
        {"name": name, "description": EXCHANGE_TYPES[name].description, "enabled": True}
        for name in sorted(EXCHANGE_TYPES)
    ]


def listeners(node: Node) -> list[dict[str, Any]]:
    """Return the listeners."""
    return [
        {
            "node": node.name,
            "protocol": _LISTENERS.get(name, (name, None))[0],
            "ip_address": host,
            "port": port,
            "socket_opts": {},
        }
        for name, found in node.addresses.items()
        for host, port in found
    ]


def web_contexts(node: Node, settings: Settings, with_node: bool) -> list[dict[str, Any]]:
    """Return the web contexts: what the HTTP listeners serve."""
    contexts, prefix = [], f"/{settings.management.path_prefix.strip('/')}"
    for name, host, port in ((name, *each) for name, found in node.addresses.items() for each in found):
        description = _LISTENERS.get(name, (name, None))[1]
        if description is not None:
            path = prefix if name.startswith("management") else "/"
            context = {"description": description, "path": path, "ip": host, "port": str(port)}
            contexts.append({"node": node.name, **context, "ssl_opts": []} if with_node else context)
    return contexts


class NodeView:
    """The attributes of the node that the fields of NODE are read from."""

    metrics_gc = _METRICS_GC
    applications = ({"name": "rabbit", "description": "Leveret", "version": RABBITMQ_VERSION},)

    def __init__(self, broker: Broker, node: Node, settings: Settings) -> None:
        self.broker = broker
        self.node = node
        self.statistics = broker.statistics
        self._settings = settings

    os_pid = property(lambda self: str(os.getpid()))
    processors = property(lambda self: os.cpu_count() or 1)
    files_max = property(lambda self: open_files_max())
    exchange_types = property(lambda self: exchange_types())
    contexts = property(lambda self: web_contexts(self.node, self._settings, with_node=False))

    @property
    def auth_mechanisms(self) -> list[dict[str, Any]]:
        """SASL mechanisms."""
        names = self._settings.auth_mechanisms
        return [{"name": name, "description": _MECHANISMS.get(name, name), "enabled": True} for name in names]

    @property
    def log_files(self) -> list[str]:
        """Where the log goes."""
        log = self._settings.log
        file = [] if log.file is None else [str(log.file.absolute())]
        return [*file, *(["<stderr>"] if log.console else [])]

    @cached_property
    def row(self) -> tuple[int, ...]:
        """Use of resources, by NodeStatistics.FIELDS."""
        return self.node.statistics.row(self.broker.sockets.used, self.node.disk_free())

    @cached_property
    def usage(self) -> SimpleNamespace:
        """The same by name."""
        return SimpleNamespace(**dict(zip(NodeStatistics.FIELDS, self.row, strict=True)))

    @cached_property
    def ended(self) -> VirtualHostStatistics:
        """Sums of what virtual hosts keep."""
        return ended_totals(self.broker)


_short_node: Final = document_maker(field for field in NODE if field.basic)
_node: Final = document_maker(field for field in NODE if not field.rate)


def node_document(broker: Broker, node: Node, settings: Settings, rates: Rates, churn: Sequence[int]) -> dict[str, Any]:
    """Return the node with all fields.

    Args:
        churn: Row of the broker's statistics.
    """
    view = NodeView(broker, node, settings)
    document = _node(view)
    for name in NODE_ABSENT:
        document[name] = 0.0 if name.endswith("avg_time") else 0
        document[f"{name}_details"] = {"rate": 0.0}
    rates.add_to(document, _NODE, view.row, node.statistics, "node_stats")
    return rates.add_to(document, _CHURN, churn, broker.statistics, "node_stats")


def short_node(broker: Broker, node: Node, settings: Settings) -> dict[str, Any]:
    """Return the fields that identify the node."""
    return _short_node(NodeView(broker, node, settings))


def _sum(rows: Sequence[Sequence[int]]) -> tuple[int, ...]:
    if not rows:
        return (0,) * len(VirtualHostStatistics.FIELDS)
    return tuple(map(sum, zip(*rows, strict=True)))


#: Parts in RabbitMQ's order. Those that are not computed below are 0.
_PARTS: Final = (
    "connection_readers",
    "connection_writers",
    "connection_channels",
    "connection_other",
    "queue_procs",
    "queue_slave_procs",
    "quorum_queue_procs",
    "quorum_queue_dlx_procs",
    "stream_queue_procs",
    "stream_queue_replica_reader_procs",
    "stream_queue_coordinator_procs",
    "plugins",
    "other_proc",
    "metrics",
    "mgmt_db",
    "mnesia",
    "quorum_ets",
    "other_ets",
    "metadata_store",
    "metadata_store_ets",
    "binary",
    "msg_index",
    "code",
    "atom",
    "other_system",
    "allocated_unused",
    "reserved_unallocated",
)
#: Measured memory of a connection and a channel in bytes.
_CONNECTION: Final = 12_000
_CHANNEL: Final = 3_000


class MemoryBreakdown:
    """Adds up the memory of the broker's objects."""

    def __init__(self, broker: Broker) -> None:
        connections = len(broker.connections)
        self._parts = dict.fromkeys(_PARTS, 0)
        self._parts["connection_channels"] = broker.connections.channel_count * _CHANNEL
        self._parts["connection_other"] = connections * _CONNECTION
        self._parts["connection_writers"] = sum(connection.output.pending_bytes() for connection in broker.connections)

    def add(self, queue: Queue) -> None:
        """Add the memory of a queue and of the message bodies in it."""
        figures = queue.figures()
        part = "quorum_queue_procs" if queue.queue_type == "quorum" else "queue_procs"
        self._parts[part] += 4096 + figures.messages_ram * 128
        self._parts["binary"] += figures.message_bytes_ram

    def document(self) -> dict[str, Any]:
        """Return all parts in bytes. Memory in none of them belongs to the interpreter."""
        total = used_memory()
        known = sum(self._parts.values())
        parts = {**self._parts, "other_system": max(0, total - known)}
        return {**parts, "strategy": "rss", "total": {"erlang": total, "rss": total, "allocated": total}}

    def shares(self) -> dict[str, Any]:
        """Return all parts in per cent, rounded up."""
        absolute = self.document()
        total = max(1, absolute["total"]["rss"])
        return {"total": 100, **{part: min(100, -(-absolute[part] * 100 // total)) for part in _PARTS}}
