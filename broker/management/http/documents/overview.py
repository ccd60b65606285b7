"""The overview of the broker, its virtual hosts and its node, with its memory, as JSON."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping, Sequence
from typing import Any, Final

from leveret import compilation
from leveret.broker.config.options import Log, Settings
from leveret.broker.core.broker import Broker
from leveret.broker.core.counters.totals import BrokerStatistics, VirtualHostStatistics
from leveret.broker.core.exchanges.types import EXCHANGE_TYPES
from leveret.broker.core.node import Node
from leveret.broker.core.queues.queue import Queue
from leveret.broker.core.resources.memory import used_memory
from leveret.broker.core.resources.usage import NodeStatistics, open_files_max
from leveret.broker.core.stats.census import Census
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
_CHURN: Final = numbers(
    BrokerStatistics.FIELDS,
    "connection_created",
    "connection_closed",
    "channel_created",
    "channel_closed",
    "queue_declared",
    "queue_created",
    "queue_deleted",
)
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
_NODE: Final = numbers(
    NodeStatistics.FIELDS,
    "mem_used",
    "fd_used",
    "sockets_used",
    "proc_used",
    "disk_free",
    "gc_num",
    "gc_bytes_reclaimed",
    "context_switches",
)
#: Counters of RabbitMQ that have no counterpart in Leveret or are not counted. They are 0.
_ABSENT_NODE: Final = (
    *(f"io_{work}_{figure}" for work in ("read", "write") for figure in ("count", "bytes", "avg_time")),
    *(f"io_{work}_{figure}" for work in ("sync", "seek") for figure in ("count", "avg_time")),
    "io_reopen_count",
    *(f"mnesia_{kind}_tx_count" for kind in ("ram", "disk")),
    *(f"{part}_{work}_count" for part in ("msg_store", "queue_index") for work in ("read", "write")),
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


def versions() -> dict[str, Any]:
    """Return the names and versions of the broker and its runtime."""
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
    }


def overview_document(broker: Broker, node: Node) -> dict[str, Any]:
    """Return the part of the overview without statistics, which all users may see."""
    return {
        **versions(),
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
        broker: The broker.
        census: The complete totals.
        vhosts: Virtual hosts that the user may see; None for all, including deleted ones.
        rates: Rates of the request.
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
        row: The current values.
        rates: Rates of the request.
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


def node_document(broker: Broker, node: Node, settings: Settings, rates: Rates, churn: Sequence[int]) -> dict[str, Any]:
    """Return the node with all fields.

    Args:
        broker: The broker.
        node: The node.
        settings: The configuration.
        rates: Rates of the request.
        churn: Row of the broker's statistics.
    """
    files = open_files_max()
    alarms = broker.alarms.resources
    document = {
        **short_node(node),
        "uptime": node.uptime(),
        "os_pid": str(os.getpid()),
        "processors": os.cpu_count() or 1,
        "run_queue": 0,
        "fd_total": files,
        "sockets_total": broker.sockets.total,
        "proc_total": 1_048_576,
        "mem_limit": node.memory_limit,
        "mem_alarm": "memory" in alarms,
        "mem_calculation_strategy": "rss",
        "disk_free_limit": node.disk_free_limit,
        "disk_free_alarm": "disk" in alarms,
        "rates_mode": _RATES_MODE,
        "partitions": [],
        "net_ticktime": 60,
        "being_drained": False,
        "enabled_plugins": ["rabbitmq_management", "rabbitmq_prometheus"],
        "applications": _applications(),
        "auth_mechanisms": [
            {"name": name, "description": _MECHANISMS.get(name, name), "enabled": True}
            for name in settings.auth_mechanisms
        ],
        "exchange_types": exchange_types(),
        "contexts": web_contexts(node, settings, with_node=False),
        "log_files": _log_files(settings.log),
        "config_files": list(node.config_files),
        "db_dir": str(node.data_dir.absolute()),
        "cluster_links": [],
        "ra_open_file_metrics": {"ra_log_wal": 0, "ra_log_segment_writer": 0},
        "metrics_gc_queue_length": _METRICS_GC,
    }
    for name in _ABSENT_NODE:
        document[name] = 0.0 if name.endswith("avg_time") else 0
        document[f"{name}_details"] = {"rate": 0.0}
    row = node.statistics.row(broker.sockets.used, node.disk_free())
    rates.add_to(document, _NODE, row, node.statistics, "node_stats")
    return rates.add_to(document, _CHURN, churn, broker.statistics, "node_stats")


def _log_files(log: Log) -> list[str]:
    return [*([] if log.file is None else [str(log.file.absolute())]), *(["<stderr>"] if log.console else [])]


def short_node(node: Node) -> dict[str, Any]:
    """Return the fields that identify the node."""
    return {"name": node.name, "type": "disc", "running": True}


def _applications() -> list[dict[str, str]]:
    # Newer clients read the broker's version from this application.
    return [{"name": "rabbit", "description": "Leveret", "version": RABBITMQ_VERSION}]


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
    """Adds up the memory of the broker's objects.

    Args:
        broker: The broker.
    """

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
        return {
            **parts,
            "strategy": "rss",
            "total": {"erlang": total, "rss": total, "allocated": total},
        }

    def shares(self) -> dict[str, Any]:
        """Return all parts in per cent, rounded up."""
        absolute = self.document()
        total = max(1, absolute["total"]["rss"])
        return {"total": 100, **{part: min(100, -(-absolute[part] * 100 // total)) for part in _PARTS}}
