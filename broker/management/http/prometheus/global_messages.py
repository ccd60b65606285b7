"""Metrics of all messages by protocol and by queue type."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from prometheus_client.metrics_core import Metric as MetricFamily

from leveret.broker.core.counters.counters import ChannelCounters, QueueCounters
from leveret.broker.core.stats.census import QUEUE_TYPES, CounterTotals
from leveret.broker.management.fields import Metric
from leveret.broker.management.http.prometheus.families import add, counter, gauge, metric_family, single
from leveret.policies.dead_letter import DELIVERY_LIMIT, EXPIRED, MAXLEN, REJECTED

_PREFIX: Final = "rabbitmq_global_"
_PROTOCOL: Final = "amqp091"
_OF_CHANNELS: Final[tuple[tuple[Metric, Callable[[ChannelCounters], int]], ...]] = (
    (
        counter("messages_confirmed_total", "Total number of messages confirmed to publishers"),
        lambda counters: counters.confirm,
    ),
    (
        counter(
            "messages_received_confirm_total",
            "Total number of messages received from publishers expecting confirmations",
        ),
        lambda counters: counters.publish_confirm,
    ),
    (
        counter("messages_received_total", "Total number of messages received from publishers"),
        lambda counters: counters.publish,
    ),
    (
        counter(
            "messages_unroutable_dropped_total",
            "Total number of messages published as non-mandatory into an exchange and dropped as unroutable",
        ),
        lambda counters: counters.drop_unroutable,
    ),
    (
        counter(
            "messages_unroutable_returned_total",
            "Total number of messages published as mandatory into an exchange and returned to the publisher as"
            " unroutable",
        ),
        lambda counters: counters.return_unroutable,
    ),
)
_ROUTED: Final = counter("messages_routed_total", "Total number of messages routed to queues or streams")
_OF_QUEUES: Final[tuple[tuple[Metric, Callable[[QueueCounters], int]], ...]] = (
    (
        counter("messages_acknowledged_total", "Total number of messages acknowledged by consumers"),
        lambda counters: counters.acknowledged,
    ),
    (
        counter(
            "messages_delivered_consume_auto_ack_total",
            "Total number of messages delivered to consumers using basic.consume with automatic acknowledgment",
        ),
        lambda counters: counters.delivered_no_ack,
    ),
    (
        counter(
            "messages_delivered_consume_manual_ack_total",
            "Total number of messages delivered to consumers using basic.consume with manual acknowledgment",
        ),
        lambda counters: counters.delivered - counters.delivered_no_ack,
    ),
    (
        counter(
            "messages_delivered_get_auto_ack_total",
            "Total number of messages delivered to consumers using basic.get with automatic acknowledgment",
        ),
        lambda counters: counters.got_no_ack,
    ),
    (
        counter(
            "messages_delivered_get_manual_ack_total",
            "Total number of messages delivered to consumers using basic.get with manual acknowledgment",
        ),
        lambda counters: counters.got - counters.got_no_ack,
    ),
    (
        counter("messages_delivered_total", "Total number of messages delivered to consumers"),
        lambda counters: counters.delivered + counters.got,
    ),
    (
        counter("messages_get_empty_total", "Total number of times basic.get operations fetched no message"),
        lambda counters: counters.got_empty,
    ),
    (
        counter("messages_redelivered_total", "Total number of messages redelivered to consumers"),
        lambda counters: counters.redelivered,
    ),
)
_DEAD: Final = (
    (
        DELIVERY_LIMIT,
        ("quorum",),
        counter(
            "messages_dead_lettered_delivery_limit_total",
            "Total number of messages dead-lettered due to delivery-limit exceeded",
        ),
    ),
    (
        EXPIRED,
        QUEUE_TYPES,
        counter(
            "messages_dead_lettered_expired_total",
            "Total number of messages dead-lettered due to message TTL exceeded",
        ),
    ),
    (
        MAXLEN,
        QUEUE_TYPES,
        counter(
            "messages_dead_lettered_maxlen_total",
            "Total number of messages dead-lettered due to overflow drop-head or reject-publish-dlx",
        ),
    ),
    (
        REJECTED,
        QUEUE_TYPES,
        counter(
            "messages_dead_lettered_rejected_total",
            "Total number of messages dead-lettered due to basic.reject or basic.nack",
        ),
    ),
)
_CONFIRMED: Final = counter(
    "messages_dead_lettered_confirmed_total", "Total number of messages dead-lettered and confirmed by target queues"
)
_CONSUMERS: Final = gauge("consumers", "Current number of consumers")
_PUBLISHERS: Final = gauge("publishers", "Current number of publishers")


def global_families(counted: CounterTotals) -> Iterator[MetricFamily]:
    """Yield the metrics of all messages.

    Args:
        counted: The complete sums.
    """
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
