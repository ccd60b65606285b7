"""Metrics of the node and totals of the broker."""

from __future__ import annotations

import gc
import platform
import threading
from collections.abc import Iterator
from importlib.metadata import version
from resource import RUSAGE_SELF, getrusage
from typing import Final

from prometheus_client.metrics_core import Metric as MetricFamily

from leveret.broker.auth.attempts import AMQP, HTTP, ProtocolAttempts
from leveret.broker.core.broker import CLUSTER_ID, Broker
from leveret.broker.core.node import Node
from leveret.broker.core.resources.memory import used_memory
from leveret.broker.core.resources.usage import open_files, open_files_max
from leveret.broker.core.stats.census import CounterTotals, ended_totals
from leveret.broker.management.fields import Metric
from leveret.broker.management.http.controller import RequestContext
from leveret.broker.management.http.prometheus.families import add, counter, gauge, metric_family, single
from leveret.broker.version import RABBITMQ_VERSION

_ALARMS: Final = (
    ("alarms_file_descriptor_limit", "file descriptor limit", "file_descriptor"),
    ("alarms_free_disk_space_watermark", "free disk space watermark", "disk"),
    ("alarms_memory_used_watermark", "VM memory watermark", "memory"),
)
_CHURN: Final = (
    counter("connections_opened_total", "Total number of connections opened"),
    counter("connections_closed_total", "Total number of connections closed or terminated"),
    counter("channels_opened_total", "Total number of channels opened"),
    counter("channels_closed_total", "Total number of channels closed"),
    counter("queues_declared_total", "Total number of queues declared"),
    counter("queues_created_total", "Total number of queues created"),
    counter("queues_deleted_total", "Total number of queues deleted"),
)
_COARSE: Final = (
    gauge("process_open_fds", "Open file descriptors"),
    gauge("process_open_tcp_sockets", "Open TCP sockets"),
    gauge("process_resident_memory_bytes", "Memory used in bytes"),
    gauge("disk_space_available_bytes", "Disk space available in bytes"),
    # The counterparts in Python, as in the HTTP API.
    gauge("erlang_processes_used", "Erlang processes used"),
    counter("erlang_gc_runs_total", "Total number of Erlang garbage collector runs"),
    counter("erlang_scheduler_context_switches_total", "Total number of Erlang scheduler context switches"),
)
_FILES: Final = (
    counter("io_read_ops_total", "Total number of I/O read operations"),
    counter("io_read_bytes_total", "Total number of I/O bytes read"),
    counter("io_read_time_seconds_total", "Total I/O read time"),
    counter("io_write_ops_total", "Total number of I/O write operations"),
    counter("io_write_bytes_total", "Total number of I/O bytes written"),
    counter("io_write_time_seconds_total", "Total I/O write time"),
    counter("io_sync_ops_total", "Total number of I/O sync operations"),
    counter("io_sync_time_seconds_total", "Total I/O sync time"),
    counter("msg_store_read_total", "Total number of Message Store read operations"),
    counter("msg_store_write_total", "Total number of Message Store write operations"),
)
_LIMITS: Final = (
    gauge("process_max_fds", "Open file descriptors limit"),
    gauge("process_max_tcp_sockets", "Open TCP sockets limit"),
    gauge("resident_memory_limit_bytes", "Memory high watermark in bytes"),
    gauge("disk_space_available_limit_bytes", "Free disk space low watermark in bytes"),
    gauge("erlang_uptime_seconds", "Node uptime"),
)
_ATTEMPTS: Final = (
    counter("auth_attempts_total", "Total number of authorization attempts"),
    counter("auth_attempts_succeeded_total", "Total number of successful authentication attempts"),
    counter("auth_attempts_failed_total", "Total number of failed authentication attempts"),
)
_OBJECTS: Final = (
    gauge("connections", "Connections currently open"),
    gauge("channels", "Channels currently open"),
    gauge("consumers", "Consumers currently connected"),
    gauge("queues", "Queues available"),
)
_READERS: Final = (
    gauge("readers", "Number of named readers"),
    gauge("reader_held_bytes", "Size in bytes of the segment files that are kept for named readers alone"),
    gauge("reader_held_files", "Number of segment files that are kept for named readers alone"),
    counter("reader_unread_files_total", "Total number of segment files removed that a named reader had not read"),
    counter("readers_dropped_total", "Total number of named readers dropped because they were not seen"),
)
_START: Final = gauge("process_start_time_seconds", "Start time of the process since unix epoch in seconds.")
_CLIENT_VERSION: Final = version("prometheus-client")
_BUILD: Final = Metric("build_info", "unknown", "RabbitMQ & Erlang/OTP version info")
_IDENTITY: Final = Metric("identity_info", "unknown", "RabbitMQ node & cluster identity info")


def node_families(context: RequestContext, prefix: str) -> Iterator[tuple[str, MetricFamily]]:
    """Yield the metrics of the node with the name of their family.

    Args:
        context: The broker and its node.
        prefix: Prefix of all names.
    """
    broker, node = context.broker, context.node
    for group, metrics, values in (
        ("connection_churn_metrics", _CHURN, _churn(broker)),
        ("node_coarse_metrics", _COARSE, _use(broker, node)),
        ("node_persister_metrics", _FILES, _files(broker)),
        ("node_metrics", _LIMITS, _limits(broker, node)),
    ):
        for metric, value in zip(metrics, values, strict=True):
            yield group, single(metric, prefix, value)
    found = context.accounts.attempts.by_protocol
    protocols = {HTTP: ProtocolAttempts(), AMQP: ProtocolAttempts(), **found}
    families = [metric_family(metric, ("protocol",), prefix) for metric in _ATTEMPTS]
    for protocol, attempts in protocols.items():
        for family, value in zip(families, (attempts.total, attempts.succeeded, attempts.failed), strict=True):
            add(family, (protocol,), value)
    for family in families:
        yield "auth_attempt_metrics", family


def alarm_families(broker: Broker) -> Iterator[MetricFamily]:
    """Yield the alarms by resource."""
    for name, what, resource in _ALARMS:
        metric = Metric(name, "unknown", f"is 1 if {what} alarm is in effect")
        yield single(metric, "rabbitmq_", resource in broker.alarms.resources)


def object_families(context: RequestContext, counted: CounterTotals) -> Iterator[MetricFamily]:
    """Yield the numbers of objects and the start time of the broker."""
    broker = context.broker
    queues = sum([len(vhost.queues) for vhost in broker.vhosts.values()])
    values = (len(broker.connections), broker.connections.channel_count, counted.consumers, queues)
    for metric, value in zip(_OBJECTS, values, strict=True):
        yield single(metric, "rabbitmq_", value)
    yield single(_START, "", context.node.started_at / 1000)


def reader_families(broker: Broker) -> Iterator[MetricFamily]:
    """Yield what is kept for named readers; nothing if there has never been one since the start."""
    counts = broker.stores.reader_counts
    if any(counts):
        for metric, value in zip(_READERS, counts, strict=True):
            yield single(metric, "leveret_", value)


def identity_families(context: RequestContext, endpoint: str) -> Iterator[MetricFamily]:
    """Yield the identity of the node. Dashboards join other metrics with it.

    Args:
        context: The broker and its node.
        endpoint: aggregated, per-object or detailed.
    """
    broker = context.broker
    yield single(
        _BUILD,
        "rabbitmq_",
        1,
        rabbitmq_version=RABBITMQ_VERSION,
        prometheus_plugin_version=RABBITMQ_VERSION,
        prometheus_client_version=_CLIENT_VERSION,
        erlang_version=platform.python_version(),
    )
    yield single(
        _IDENTITY,
        "rabbitmq_",
        1,
        rabbitmq_node=context.node.name,
        rabbitmq_cluster=broker.cluster_name,
        rabbitmq_cluster_permanent_id=str(broker.global_parameters.values.get(CLUSTER_ID, "")),
        rabbitmq_endpoint=endpoint,
    )


def _churn(broker: Broker) -> tuple[float, ...]:
    statistics, ended = broker.statistics, ended_totals(broker)
    return (
        statistics.connection_created,
        statistics.connection_closed,
        statistics.channel_created,
        statistics.channel_closed,
        ended.queue_declared,
        ended.queue_created,
        ended.queue_deleted,
    )


def _use(broker: Broker, node: Node) -> tuple[float, ...]:
    usage = getrusage(RUSAGE_SELF)
    return (
        open_files(),
        broker.sockets.used,
        used_memory(),
        node.disk_free(),
        threading.active_count(),
        sum(generation["collections"] for generation in gc.get_stats()),
        usage.ru_nvcsw + usage.ru_nivcsw,
    )


def _files(broker: Broker) -> tuple[float, ...]:
    """Return the counts of file operations, and of messages that stores have read and written."""
    counts, ended = broker.stores.file_counts, ended_totals(broker)
    return (
        counts.reads,
        counts.read_bytes,
        counts.read_seconds,
        counts.writes,
        counts.written_bytes,
        counts.write_seconds,
        counts.syncs,
        counts.sync_seconds,
        ended.disk_reads,
        ended.disk_writes,
    )


def _limits(broker: Broker, node: Node) -> tuple[float, ...]:
    files = open_files_max()
    return (
        files,
        broker.sockets.total,
        node.memory_limit,
        node.disk_free_limit,
        node.uptime() / 1000,
    )
