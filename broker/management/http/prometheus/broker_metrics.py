"""Metrics of the node and totals of the broker: of all messages by protocol and by queue type, objects, alarms."""

from __future__ import annotations

import platform
from collections import Counter
from collections.abc import Callable, Iterator
from importlib.metadata import version
from operator import attrgetter
from typing import Final

from prometheus_client.metrics_core import Metric as MetricFamily

from leveret.broker.auth.attempts import AMQP, HTTP, ProtocolAttempts
from leveret.broker.core.broker import CLUSTER_ID, Broker
from leveret.broker.core.counters.counters import ChannelCounters, QueueCounters
from leveret.broker.core.stats.census import QUEUE_TYPES, CounterTotals
from leveret.broker.management.fields import NODE, Metric, metrics_of
from leveret.broker.management.http.controller import RequestContext
from leveret.broker.management.http.documents.overview import NodeView
from leveret.broker.management.http.documents.views import values_of
from leveret.broker.management.http.prometheus.objects import add, counter, gauge, metric_family, single
from leveret.broker.operations.backups import Backups
from leveret.broker.shovels.shovels import Shovels
from leveret.broker.version import RABBITMQ_VERSION
from leveret.policies.dead_letter import DELIVERY_LIMIT, EXPIRED, MAXLEN, REJECTED

_PREFIX: Final = "rabbitmq_global_"
_PROTOCOL: Final = "amqp091"


def _messages(name: str, about: str) -> Metric:
    return counter(f"messages_{name}_total", f"Total number of messages {about}")


_OF_CHANNELS: Final[tuple[tuple[Metric, Callable[[ChannelCounters], int]], ...]] = (
    (_messages("confirmed", "confirmed to publishers"), attrgetter("confirm")),
    (_messages("received_confirm", "received from publishers expecting confirmations"), attrgetter("publish_confirm")),
    (_messages("received", "received from publishers"), attrgetter("publish")),
    (
        _messages("unroutable_dropped", "published as non-mandatory into an exchange and dropped as unroutable"),
        attrgetter("drop_unroutable"),
    ),
    (
        _messages(
            "unroutable_returned", "published as mandatory into an exchange and returned to the publisher as unroutable"
        ),
        attrgetter("return_unroutable"),
    ),
)
_ROUTED: Final = _messages("routed", "routed to queues or streams")


def _delivered(method: str, is_automatic: bool) -> Metric:
    short, mode = ("auto", "automatic") if is_automatic else ("manual", "manual")
    about = f"delivered to consumers using basic.{method} with {mode} acknowledgment"
    return _messages(f"delivered_{method}_{short}_ack", about)


_OF_QUEUES: Final[tuple[tuple[Metric, Callable[[QueueCounters], int]], ...]] = (
    (_messages("acknowledged", "acknowledged by consumers"), attrgetter("acknowledged")),
    (_delivered("consume", True), attrgetter("delivered_no_ack")),
    (_delivered("consume", False), lambda counters: counters.delivered - counters.delivered_no_ack),
    (_delivered("get", True), attrgetter("got_no_ack")),
    (_delivered("get", False), lambda counters: counters.got - counters.got_no_ack),
    (_messages("delivered", "delivered to consumers"), lambda counters: counters.delivered + counters.got),
    (
        counter("messages_get_empty_total", "Total number of times basic.get operations fetched no message"),
        attrgetter("got_empty"),
    ),
    (_messages("redelivered", "redelivered to consumers"), attrgetter("redelivered")),
)
_DEAD: Final = tuple(
    (reason, ("quorum",) if reason == DELIVERY_LIMIT else QUEUE_TYPES, _messages(f"dead_lettered_{reason}", about))
    for reason, about in (
        (DELIVERY_LIMIT, "dead-lettered due to delivery-limit exceeded"),
        (EXPIRED, "dead-lettered due to message TTL exceeded"),
        (MAXLEN, "dead-lettered due to overflow drop-head or reject-publish-dlx"),
        (REJECTED, "dead-lettered due to basic.reject or basic.nack"),
    )
)
_CONFIRMED: Final = _messages("dead_lettered_confirmed", "dead-lettered and confirmed by target queues")
_CONSUMERS: Final = gauge("consumers", "Current number of consumers")
_PUBLISHERS: Final = gauge("publishers", "Current number of publishers")


def global_families(counted: CounterTotals) -> Iterator[MetricFamily]:
    """Yield the metrics of all messages."""
    for metric, of_channels in _OF_CHANNELS:
        yield single(metric, _PREFIX, of_channels(counted.channels), protocol=_PROTOCOL)
    # All messages that queues have accepted, including dead letters.
    yield single(_ROUTED, _PREFIX, counted.all_queues.published, protocol=_PROTOCOL)
    for metric, of_queues in _OF_QUEUES:
        family = metric_family(metric, ("protocol", "queue_type"), _PREFIX)
        for queue_type, counters in counted.queues.items():
            add(family, (_PROTOCOL, _label(queue_type)), of_queues(counters))
        yield family
    yield from _dead_letters(counted)
    yield single(_CONSUMERS, _PREFIX, counted.consumers, protocol=_PROTOCOL)
    yield single(_PUBLISHERS, _PREFIX, counted.publishers, protocol=_PROTOCOL)


def _dead_letters(counted: CounterTotals) -> Iterator[MetricFamily]:
    """Yield the messages that were dead-lettered, and those that were dropped without a dead-letter exchange."""
    for reason, queue_types, metric in _DEAD:
        family = metric_family(metric, ("queue_type", "dead_letter_strategy"), _PREFIX)
        for queue_type in queue_types:
            counters = counted.queues[queue_type]
            letters = counters.dead_lettered[reason]
            add(family, (_label(queue_type), "at_most_once"), letters)
            # A dead letter that is published again, because no queue accepted it, is counted each time.
            add(family, (_label(queue_type), "disabled"), max(0, counters.dropped[reason] - letters))
        yield family
    confirmed = counted.queues["quorum"].dead_letters_confirmed
    yield single(_CONFIRMED, _PREFIX, confirmed, queue_type=_label("quorum"), dead_letter_strategy="at_least_once")


def _label(queue_type: str) -> str:
    return f"rabbit_{queue_type}_queue"


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
