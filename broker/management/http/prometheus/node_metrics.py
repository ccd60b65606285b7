"""Metrics of the node and totals of the broker."""

from __future__ import annotations

import platform
from collections import Counter
from collections.abc import Iterator
from importlib.metadata import version
from typing import Final

from prometheus_client.metrics_core import Metric as MetricFamily

from leveret.broker.auth.attempts import AMQP, HTTP, ProtocolAttempts
from leveret.broker.core.broker import CLUSTER_ID, Broker
from leveret.broker.core.stats.census import CounterTotals
from leveret.broker.management.fields import NODE, Metric, metrics_of
from leveret.broker.management.http.controller import RequestContext
from leveret.broker.management.http.documents.overview import NodeView
from leveret.broker.management.http.documents.views import values_of
from leveret.broker.management.http.prometheus.objects import add, counter, gauge, metric_family, single
from leveret.broker.operations.backups import Backups
from leveret.broker.shovels.shovels import Shovels
from leveret.broker.version import RABBITMQ_VERSION

_ALARMS: Final = (
    ("alarms_file_descriptor_limit", "file descriptor limit", "file_descriptor"),
    ("alarms_free_disk_space_watermark", "free disk space watermark", "disk"),
    ("alarms_memory_used_watermark", "VM memory watermark", "memory"),
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
_BACKUPS: Final = (
    gauge("backup_age_seconds", "Seconds since the last backup was taken; since the start if none was"),
    counter("backup_failures_total", "Total number of backups that have failed"),
    counter("backup_sent_bytes_total", "Total number of bytes sent for backups"),
)
_SHOVELS: Final = (
    gauge("shovel_dynamic", "Number of dynamic shovels by state"),
    gauge("shovel_static", "Number of static shovels by state"),
)
_SHOVEL_FORWARDED: Final = counter(
    "shovel_forwarded_total", "Total number of messages that a shovel has published at its destination"
)
_SHOVEL_PENDING: Final = gauge("shovel_pending", "Number of messages that its destination has not confirmed yet")
_START: Final = gauge("process_start_time_seconds", "Start time of the process since unix epoch in seconds.")
_CLIENT_VERSION: Final = version("prometheus-client")
_BUILD: Final = Metric("build_info", "unknown", "RabbitMQ & Erlang/OTP version info")
_IDENTITY: Final = Metric("identity_info", "unknown", "RabbitMQ node & cluster identity info")


def node_families(context: RequestContext, prefix: str) -> Iterator[tuple[str, MetricFamily]]:
    """Yield the metrics of the node with the name of their family."""
    measured = [(metric, metric.source or field.source) for field, metric in metrics_of(NODE)]
    values = values_of(*(source for _, source in measured))(NodeView(context.broker, context.node, context.settings))
    for (metric, _), value in zip(measured, values, strict=True):
        yield metric.family, single(metric, prefix, value)
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
    counts = broker.stores.engine.readers.counts
    if any(counts):
        for metric, value in zip(_READERS, counts, strict=True):
            yield single(metric, "leveret_", value)


def backup_families(backups: Backups | None) -> Iterator[MetricFamily]:
    """Yield how old the last backup is; nothing if the broker takes none."""
    if backups is not None and backups.url:
        for metric, value in zip(_BACKUPS, (backups.age, backups.failures, backups.sent), strict=True):
            yield single(metric, "leveret_", value)


def shovel_families(shovels: Shovels) -> Iterator[MetricFamily]:
    """Yield the shovels by state, as RabbitMQ 3.12 does, and what each has moved; nothing if there is none."""
    listed = shovels.listed()
    if not listed:
        return
    for metric, of_kind in zip(_SHOVELS, (True, False), strict=True):
        states = Counter(each.progress.state for each in listed if (each.vhost is not None) is of_kind)
        family = metric_family(metric, ("status",), "rabbitmq_")
        for state, count in sorted(states.items()):
            add(family, (state,), count)
        yield family
    for metric, attribute in ((_SHOVEL_FORWARDED, "forwarded"), (_SHOVEL_PENDING, "pending")):
        family = metric_family(metric, ("vhost", "shovel"), "leveret_")
        for each in listed:
            add(family, (each.vhost or "", each.name), getattr(each.progress, attribute))
        yield family


def identity_families(context: RequestContext, endpoint: str) -> Iterator[MetricFamily]:
    """Yield the identity of the node. Dashboards join other metrics with it.

    Args:
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
