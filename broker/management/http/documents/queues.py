"""Queues as JSON."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final, cast

from leveret.broker.core.clients import ClientConsumer, ClientIdentity
from leveret.broker.core.counters.counters import QueueCounters
from leveret.broker.core.deduplication.header_values import VALUE_BYTES
from leveret.broker.core.json_values import table_to_json
from leveret.broker.core.policy_effects import describe_fill, fill_percent
from leveret.broker.core.queues.browsing import oldest_ready_age, oldest_unacked_age
from leveret.broker.core.queues.queue import Queue
from leveret.broker.core.queues.returns import delivery_limit
from leveret.broker.core.queues.stream_queue import StreamQueue
from leveret.broker.core.queues.traits import UNBOUNDED
from leveret.broker.core.vhosts.vhost import effective_definition
from leveret.broker.management.fields import DROP_REASONS, QUEUE, REASONS, Field
from leveret.broker.management.http.documents.clients import connection_details, consumer_document
from leveret.broker.management.http.documents.views import document_maker, iso_time, sort_keys
from leveret.broker.management.http.statistics import Rates, delivery_numbers, loss_stats, message_stats, numbers
from leveret.policies.policy_keys import KEYS
from leveret.policies.queue_settings import read_retry, resolve_setting
from leveret.protocol.field_table import find, plain_values
from leveret.protocol.properties import Properties
from leveret.storage.backings import StoreFigures
from leveret.storage.stores.priority_store import PriorityStore, ReturnsStore

_FIELDS: Final = QueueCounters.FIELDS
_LENGTHS: Final = numbers(_FIELDS, **{field.name: field.rate for field in QUEUE if field.rate})
_MESSAGES: Final = (numbers(_FIELDS, "publish"), delivery_numbers(_FIELDS), numbers(_FIELDS, "drop", "refuse"))
_PUBLISH: Final = (_FIELDS.index("publish"),)
_DELIVER: Final = delivery_numbers(_FIELDS)["deliver_get"]
_ACK: Final = (_FIELDS.index("ack"),)

_NO_DROPS: Final = dict.fromkeys(DROP_REASONS, 0)
_NO_LETTERS: Final = dict.fromkeys(REASONS, 0)
#: The field delta of a queue with nothing on disk.
_NO_DELTA: Final = ["delta", "undefined", 0, 0, "undefined"]


class QueueView:
    """The attributes of a queue that the fields of QUEUE are read from.

    Args:
        rates: Rates of the request, for a document.
        consumer_timeout: Timeout of consumers without one of their own, in milliseconds; None for no timeout.
    """

    __slots__ = ("_figures", "_row", "_timeout", "counters", "node", "queue", "rates")

    def __init__(
        self, queue: Queue, node: str = "", rates: Rates | None = None, consumer_timeout: int | None = None
    ) -> None:
        self.queue = queue
        self.node = node
        self.counters = queue.counters
        self.rates = cast("Rates", rates)
        self._timeout = consumer_timeout
        self._figures: StoreFigures | None = None
        self._row: tuple[int, ...] | None = None

    @property
    def figures(self) -> StoreFigures:
        """Message and byte counts by location."""
        if self._figures is None:
            self._figures = self.queue.figures()
        return self._figures

    @property
    def row(self) -> tuple[int, ...]:
        """Numbers of messages, by QueueCounters.FIELDS."""
        if self._row is None:
            self._row = self.counters.row(self.queue.store.ready_count, self.queue.unacked_count)
        return self._row

    arguments = property(lambda self: table_to_json(self.queue.arguments))
    effective_policy_definition = property(
        lambda self: (
            {}
            if self.queue.policy is self.queue.operator_policy is None
            else effective_definition(self.queue.policy, self.queue.operator_policy)
        )
    )
    effective_arguments = property(lambda self: effective_arguments(self.queue))
    consumer_capacity = property(lambda self: self.counters.capacity if len(self.queue.consumers) else 0)
    dropped = property(lambda self: {**_NO_DROPS, **self.counters.dropped})
    dead_lettered = property(lambda self: {**_NO_LETTERS, **self.counters.dead_lettered})
    dead_letters_lost = property(lambda self: {**_NO_LETTERS, **self.counters.dead_letters_lost})
    fill_percent = property(lambda self: fill_percent(self.queue))
    exact_ready_age = property(lambda self: oldest_ready_age(self.queue))
    exact_unacked_age = property(lambda self: oldest_unacked_age(self.queue))
    oldest_ready_age = property(lambda self: _rounded(oldest_ready_age(self.queue)))
    oldest_unacked_age = property(lambda self: _rounded(oldest_unacked_age(self.queue)))
    loss_stats = property(lambda self: loss_stats(self.counters, self.rates, self.queue.retained_count) or None)
    message_stats = property(lambda self: message_stats(self.rates, _MESSAGES, self.row, self.counters) or None)

    @property
    def active_tag(self) -> str | None:
        """Tag of the single active consumer."""
        active = self.queue.consumers.active
        return None if active is None else active.tag

    @property
    def exclusive_tag(self) -> str | None:
        """Tag of the exclusive consumer."""
        consumers = self.queue.consumers
        return next(iter(consumers)).tag if consumers.exclusive else None

    @property
    def owner(self) -> dict[str, Any] | None:
        """The connection of an exclusive queue."""
        owner = self.queue.owner
        return None if owner is None else connection_details(cast("ClientIdentity", owner))

    @property
    def delayed_retry(self) -> str:
        """The delays of returned messages, as RabbitMQ 4.3 shows them."""
        retry = read_retry(self.queue.settings)
        return "disabled" if retry is None else str(retry)

    @property
    def delayed_count(self) -> int | None:
        """Number of returned messages that wait; None of a queue that does not delay them."""
        return None if self.queue.waiting is None else self.queue.delayed_count

    @property
    def delayed_bytes(self) -> int | None:
        """Body bytes of these."""
        return None if self.queue.waiting is None else self.queue.delayed_bytes

    next_delayed_at = property(lambda self: self._due(0))
    last_delayed_at = property(lambda self: self._due(1))

    def _due(self, which: int) -> int | None:
        waiting = self.queue.waiting
        due = None if waiting is None else waiting.due_times()
        # A message is never early, so times are rounded up.
        return None if due is None else -(-due[which] // 1000)

    @property
    def deduplicated(self) -> int | None:
        """Duplicates that were dropped; None of a queue that drops none."""
        dropped = self.counters.deduplicated
        return dropped if dropped or self.queue.values is not None else None

    @property
    def fill(self) -> dict[str, Any] | None:
        """How full it is; None without limits."""
        settings = self.queue.settings
        is_limited = settings.max_length is not None or settings.max_length_bytes is not None
        return describe_fill(self.queue) if is_limited else None

    @property
    def fill_ratio(self) -> float | None:
        """Used share of the nearest limit."""
        percent = fill_percent(self.queue)
        return None if percent is None else percent / 100

    @property
    def storage(self) -> dict[str, Any]:
        """The ready messages that are only on disk, the segments, and the time of the oldest segment."""
        queue, figures = self.queue, self.figures
        ready_bytes_ram = figures.message_bytes_ram - queue.unacked_bytes
        return {
            "messages_disk": max(0, queue.store.ready_count - figures.messages_ready_ram),
            "message_bytes_disk": max(0, queue.store.ready_bytes - ready_bytes_ram),
            "segments": figures.segments,
            "segment_bytes": figures.disk_bytes,
            "oldest_segment": figures.oldest // 1000 or None,
        }

    stream = property(lambda self: _stream(self.queue, self.figures))

    @property
    def delivery_limit(self) -> int | str:
        """The delivery limit in force on a quorum queue, as RabbitMQ 4 shows it."""
        limit = delivery_limit(self.queue.settings)
        return "unlimited" if limit == UNBOUNDED else limit

    @property
    def head_timestamp(self) -> int | None:
        """Timestamp of the first ready message."""
        head = self.queue.store.peek() if self.queue.store.ready_count else None
        return None if head is None else Properties(head.envelope.header).timestamp()

    @property
    def head_timestamp_or_nan(self) -> float:
        """The same for Prometheus."""
        found = self.head_timestamp
        return math.nan if found is None else found

    backing_queue_status = property(lambda self: _backing_queue_status(self.queue, self.figures, self.rates, self.node))
    idle_since = property(lambda self: iso_time(self.counters.idle_since) if self.counters.idle_since else None)

    @property
    def consumer_details(self) -> list[dict[str, Any]]:
        """Its consumers."""
        consumers = cast("list[ClientConsumer]", list(self.queue.consumers))
        return [consumer_document(consumer, self.node, self._timeout) for consumer in consumers]


Make = Callable[[object], dict[str, Any]]


def _makers(queue_type: str) -> tuple[Make, Make, Make, Make]:
    """Return what makes parts of a document: without statistics, before and after the lengths, of a single queue."""

    def maker(wanted: Callable[[Field], bool]) -> Make:
        return document_maker(field for field in QUEUE if queue_type in (field.of or (queue_type,)) and wanted(field))

    lengths = [place for place, field in enumerate(QUEUE) if field.rate]
    before = QUEUE[: lengths[0]]
    return (
        maker(lambda field: field.basic),
        maker(lambda field: field in before),
        maker(lambda field: field not in before and not field.rate and not field.single),
        maker(lambda field: field.single),
    )


_MAKERS: Final = {queue_type: _makers(queue_type) for queue_type in ("classic", "quorum", "stream")}
#: Values that lists are sorted by, by field. Sorting by others makes all documents.
SORT_KEYS: Final = sort_keys(QUEUE, QueueView, lambda queue: queue.queue_type)


def queue_without_stats(queue: Queue, node: str, with_totals: bool) -> dict[str, Any]:
    """Return a queue without statistics, optionally with its message counts."""
    document = _MAKERS[queue.queue_type][0](QueueView(queue, node))
    document["state"] = "running" if with_totals else "live"
    if queue.policy is not None:
        document["policy"] = queue.policy.name
    if with_totals:
        ready, unacknowledged = queue.store.ready_count, queue.unacked_count
        document["messages"] = ready + unacknowledged + queue.withheld_count()
        document["messages_ready"] = ready
        document["messages_unacknowledged"] = unacknowledged
    return document


def queue_document(queue: Queue, node: str, rates: Rates) -> dict[str, Any]:
    """Return a queue with all fields except its consumers."""
    return _document(QueueView(queue, node, rates), rates)


def single_queue_document(queue: Queue, node: str, rates: Rates, consumer_timeout: int | None) -> dict[str, Any]:
    """Return a queue with all fields."""
    view = QueueView(queue, node, rates, consumer_timeout)
    return _document(view, rates) | _MAKERS[queue.queue_type][3](view)


def _document(view: QueueView, rates: Rates) -> dict[str, Any]:
    queue = view.queue
    _, before, after, _ = _MAKERS[queue.queue_type]
    document = rates.add_to(before(view), _LENGTHS, view.row, view.counters, "lengths")
    document["messages"] += queue.withheld_count()
    return document | after(view)


def effective_arguments(queue: Queue) -> dict[str, Any]:
    """Return the effective settings of a queue as arguments: its arguments, policy and operator policy combined."""
    if queue.policy is None and queue.operator_policy is None and not queue.arguments:
        return {}
    definition = effective_definition(queue.policy, queue.operator_policy)
    arguments = plain_values(queue.arguments)
    in_force = {}
    for name, key in KEYS.items():
        if queue.queue_type in key.queue_types:
            value = resolve_setting(name, queue.queue_type, arguments.get(key.argument), definition.get(name))
            if value is not None:
                in_force[key.argument] = value
    return in_force


def _stream(queue: StreamQueue, figures: StoreFigures) -> dict[str, Any]:
    """Return what only streams have: offsets, limits, and what these have removed since the start of the broker."""
    first, end = queue.stream.offsets
    settings = queue.settings
    return {
        "first_offset": first if end > first else None,
        "last_offset": end - 1 if end > first else None,
        "next_offset": end,
        "oldest": figures.oldest // 1000 or None,
        "segment_bytes": queue.backing.stream_segment_bytes,
        "max_length_bytes": settings.max_length_bytes,
        "max_age": settings.max_age,
        "removed_by_retention": queue.counters.outlived,
    }


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 3)


def _backing_queue_status(queue: Queue, figures: StoreFigures, rates: Rates, node: str) -> dict[str, Any]:
    """Return the parts of a RabbitMQ queue: q3 and q4 are in memory, delta is on disk."""
    counters, ready, in_memory = queue.counters, queue.store.ready_count, figures.messages_ready_ram
    taken = max(0, counters.published - ready)
    on_disk = ready - in_memory
    is_lazy = queue.settings.queue_mode == "lazy"
    arguments = plain_values(queue.arguments)
    status = {
        "mode": queue.settings.queue_mode,
        "version": arguments.get("x-queue-version", 1),
        "len": ready,
        "q1": 0,
        "q2": 0,
        "q3": in_memory if is_lazy else 0,
        "q4": 0 if is_lazy else in_memory,
        "delta": ["delta", taken + in_memory, on_disk, 0, taken + ready] if on_disk else _NO_DELTA,
        "target_ram_count": "infinity",
        "next_seq_id": taken + ready,
        "next_deliver_seq_id": taken,
        "avg_ingress_rate": rates.rate(counters, _PUBLISH),
        "avg_egress_rate": rates.rate(counters, _DELIVER),
        "avg_ack_ingress_rate": rates.rate(counters, _DELIVER),
        "avg_ack_egress_rate": rates.rate(counters, _ACK),
    }
    values = queue.values
    if values is not None:
        entries = len(values)
        info = {"bytes": entries * VALUE_BYTES, "entries": entries, "nodes": [node]}
        status["message_deduplication_cache_info"] = info
    priorities = find(queue.arguments, "x-max-priority")
    if priorities is not None and priorities.value:
        status["priority_lengths"] = {
            str(priority): _priority_length(queue, priority) for priority in range(priorities.value + 1)
        }
    return status


def _priority_length(queue: Queue, priority: int) -> int:
    """Return the number of ready messages of a priority, those included that have returned."""
    store = queue.store
    if not isinstance(store, PriorityStore):
        return 0
    levels = [priority, store.first_returned + priority] if isinstance(store, ReturnsStore) else [priority]
    return sum(store.levels[level].ready_count for level in levels if level in store.levels)
