"""Metrics of all messages by protocol and by queue type."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from operator import attrgetter
from typing import Final

from prometheus_client.metrics_core import Metric as MetricFamily

from leveret.broker.core.counters.counters import ChannelCounters, QueueCounters
from leveret.broker.core.stats.census import QUEUE_TYPES, CounterTotals
from leveret.broker.management.fields import Metric
from leveret.broker.management.http.prometheus.objects import add, counter, gauge, metric_family, single
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
