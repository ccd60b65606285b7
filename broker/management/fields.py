"""The fields of each kind of object, once: for the documents of the HTTP API, metrics, leveretctl and openapi.yaml.

A table, for example QUEUE, is a tuple of Field in the order of the document. A Field says its name in the API, the
attribute that it is read from, its type, unit and meaning, its column in leveretctl and its metric for Prometheus:

* The HTTP API computes `source` from the object's view in http/documents and makes the document.
* leveretctl makes a column for each field with a `column`: `Column.name` is the column's name, `Column.path` the dotted
  path in the API's object, `Column.form` the form in which it is shown, `Column.needs` what to request from the API.
  columns_of(QUEUE) fills in the defaults. The FORMS are leveretctl's functions.
* Prometheus has a metric for each field with a `metric`.
* The web pages show fields in the columns of http/page_columns.py, and openapi.yaml has a schema for each table.
* A name with a dot is a field of an object in the document, and there for its column or metric only.

What RabbitMQ has and Leveret cannot have (process identifiers, mirrors) is an entry without a source. A new column of
list_queues with its metric is one row here, if the queue has the attribute.

This module imports nothing of the broker, because leveretctl reads it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, Literal, NamedTuple

#: Reasons of dead-lettering in the order in which they are shown.
REASONS: Final = ("maxlen", "expired", "rejected", "delivery_limit")
#: Reasons why messages leave a queue without being acknowledged.
DROP_REASONS: Final = (*REASONS, "purged")

#: Prefixes of the metrics of RabbitMQ, and of those that only Leveret has.
RABBITMQ: Final = "rabbitmq_"
LEVERET: Final = "leveret_"
#: Metrics of RabbitMQ that only its detailed endpoint has.
CLUSTER: Final = "rabbitmq_cluster_"
#: Totals of a metric; see Metric.total.
SUM: Final = "sum"
NO_TOTAL: Final = "no total"
PER_OBJECT: Final = "per object"
DETAILED: Final = "detailed"


#: Forms of columns: AMQP arguments, JSON, JSON of an object (RabbitMQ's empty ones are lists), a number or 0,
#: the sum of an object's numbers, nothing, tags as a list, a time from ms since 1970, text on one line, the identifier
#: of a queue, connection or channel from its name, the channel of a queue's exclusive consumer, a protocol's version,
#: the word exchange.
FORMS: Final = (
    "arguments", "json", "object", "count", "sum", "empty", "tags", "time", "line", "queue", "connection", "channel",
    "exclusive_consumer", "protocol", "exchange_kind",
)  # fmt: skip


class Column(NamedTuple):
    """A column of leveretctl.

    Args:
        name: Its name; by default that of the field.
        path: Dotted path of the value in the API's object; by default the name of the field.
        form: How the value is shown: one of FORMS; "" as it is.
        needs: Fields to request from the API; by default the path.
    """

    name: str = ""
    path: str = ""
    form: str = ""
    needs: tuple[str, ...] = ()


class Metric(NamedTuple):
    """A metric for Prometheus.

    Args:
        name: Name without prefix. Names of counters end in ``_total``.
        kind: Its type. ``unknown`` is called untyped in the text format.
        help: Help text.
        family: Value of ``family=`` in the query; several metrics may share it.
        total: What the aggregated endpoint shows: SUM, NO_TOTAL (a name without value), PER_OBJECT or DETAILED
            (nothing), or an attribute of the sums of all counters, deleted objects included.
        source: Attribute that it is read from; by default that of the field.
        by: A label and its values, if the attribute is a mapping from these to numbers.
        prefix: Prefix of the name.
    """

    name: str
    kind: Literal["counter", "gauge", "unknown"]
    help: str
    family: str = ""
    total: str = SUM
    source: str = ""
    by: tuple[str, tuple[str, ...]] | None = None
    prefix: str = RABBITMQ


class Field(NamedTuple):
    """A field of a kind of object.

    Args:
        name: Its name in the API, which is RabbitMQ's if RabbitMQ has it.
        source: Expression of attributes of the object's view, most often the dotted path of one; it may call len, list,
            max and str. "" if the API does not have it. Of kinds of which definitions or files have the same
            document (users, policies, jobs …), which is made once, its key there.
        type: Its type in JSON, or the name of a schema of openapi.yaml; several are separated by ``|``.
        text: What it means, with its unit.
        column: Its column in leveretctl, if any.
        metric: Its metric, if any.
        of: Types of queues that have it; () for all.
        basic: Whether it is shown without statistics, too.
        single: Whether only the document of a single object has it.
        optional: Whether it is left out if it is null.
        rate: If it is shown with its rate: the columns of the counters whose sum it is.
        sort: Attribute to sort lists by, if it is another one; objects without it are then first, and last backwards.
    """

    name: str
    source: str
    type: str
    text: str
    column: Column | None = None
    metric: Metric | None = None
    of: tuple[str, ...] = ()
    basic: bool = False
    single: bool = False
    optional: bool = False
    rate: tuple[str, ...] = ()
    sort: str = ""


Table = tuple[Field, ...]

#: The column has the name and the value of the field.
SAME: Final = Column()
_ARGUMENTS: Final = Column(form="arguments")
_JSON: Final = Column(form="json")
_OBJECT: Final = Column(form="object")
_CLASSIC: Final = ("classic",)
_QUORUM: Final = ("quorum",)
_STREAM: Final = ("stream",)
#: Of messages that are taken away.
_TAKEN: Final = ("classic", "quorum")
_REPLICATED: Final = ("quorum", "stream")


def columns_of(table: Table) -> Iterator[Column]:
    """Yield the columns of a table, with their defaults filled in."""
    for field in table:
        if field.column is not None:
            name, path, form, needs = field.column
            path = path or field.name
            yield Column(name or field.name, path, form, needs or ((path,) if form != "empty" else ()))


def metrics_of(table: Table) -> Iterator[tuple[Field, Metric]]:
    """Yield the metrics of a table with their fields."""
    return ((field, field.metric) for field in table if field.metric is not None)


def _gauge(name: str, text: str, family: str, **more: Any) -> Metric:
    return Metric(name, "gauge", text, family, **more)


def _counter(name: str, text: str, family: str, **more: Any) -> Metric:
    return Metric(name, "counter", text, family, **more)


def _own(make: Any, name: str, text: str, family: str, **more: Any) -> Metric:
    """Return a metric that RabbitMQ does not have. It is per queue: sums of limits or ages would be meaningless."""
    made: Metric = make(name, text, family, **{"total": PER_OBJECT, "prefix": LEVERET, **more})
    return made


_COLLECTION: Final = str(
    dict.fromkeys(("fullsweep_after", "max_heap_size", "min_bin_vheap_size", "min_heap_size", "minor_gcs"), 0)
)
#: Figures of Erlang processes, which tools of RabbitMQ expect.
_PROCESS: Final = (
    Field("garbage_collection", _COLLECTION, "object", "Erlang's; all numbers are 0"),
    Field("reductions", "0", "integer", "Erlang's; always 0"),
    Field("reductions_details", "{'rate': 0.0}", "object", "Erlang's; always 0"),
)

# A row is a line or two.
# fmt: off
_COARSE: Final = "queue_coarse_metrics"
_METRICS: Final = "queue_metrics"
_BY_REASON: Final = ("reason", REASONS)
QUEUE: Final[Table] = (
    Field("name", "queue.name", "string", "Name", SAME, basic=True),
    Field("vhost", "queue.vhost_name", "string", "Virtual host", basic=True),
    Field("type", "queue.queue_type", "string", "classic, quorum or stream", SAME, basic=True),
    Field("durable", "queue.durable", "boolean", "Whether it survives a restart", SAME, basic=True),
    Field("auto_delete", "queue.auto_delete", "boolean", "Whether it goes with its last consumer", SAME, basic=True),
    Field("exclusive", "queue.owner is not None", "boolean", "Whether it belongs to a connection", SAME, basic=True),
    Field("arguments", "arguments", "object", "As declared", _ARGUMENTS, basic=True),
    Field("node", "node", "string", "Name of the node", basic=True),
    Field("leader", "node", "string", "Name of the node", SAME, of=_REPLICATED, basic=True),
    Field("members", "[node]", "array", "Names of nodes: one", SAME, of=_REPLICATED, basic=True),
    Field("online", "[node]", "array", "Names of nodes: one", SAME, of=_REPLICATED, basic=True),
    # Process identifiers of Erlang: leveretctl shows what identifies the queue and clients.
    Field("pid", "", "string", "The queue", Column(path="name", form="queue", needs=("name", "vhost", "node"))),
    Field("exclusive_consumer_pid", "", "string", "The channel of the exclusive consumer",
          Column(path="consumer_details", form="exclusive_consumer")),
    # Of mirrors, which do not exist.
    Field("slave_pids", "", "array", "Always empty", Column(form="empty")),
    Field("synchronised_slave_pids", "", "array", "Always empty", Column(form="empty")),
    Field("state", "'running'", "string", "running", SAME),
    Field("policy", "queue.policy and queue.policy.name", "string|null", "Name of the policy in force", SAME),
    Field("operator_policy", "queue.operator_policy and queue.operator_policy.name", "string|null",
          "Name of the operator policy in force", SAME),
    Field("effective_policy_definition", "effective_policy_definition", "object", "Both combined", _OBJECT),
    Field("effective_arguments", "effective_arguments", "object", "Arguments and policies combined, as arguments"),
    Field("consumers", "len(queue.consumers)", "integer", "Number of consumers", SAME,
          _gauge("queue_consumers", "Consumers on a queue", _METRICS)),
    Field("readers", "{node: len(queue.consumers)}", "object", "Number of consumers by node", of=_STREAM),
    Field("consumer_capacity", "consumer_capacity", "number", "Share of time in which it could deliver", SAME,
          _gauge("queue_consumer_capacity", "Consumer capacity", _METRICS), _TAKEN),
    Field("consumer_utilisation", "consumer_capacity", "number", "The same", SAME,
          _gauge("queue_consumer_utilisation", "Same as consumer capacity", _METRICS), _TAKEN),
    # RabbitMQ shortens one of them.
    Field("single_active_consumer_tag", "active_tag", "string|null", "Tag of the single active consumer", of=_CLASSIC),
    Field("single_active_consumer_ctag", "active_tag", "string|null", "Tag of the single active consumer", of=_QUORUM),
    Field("exclusive_consumer_tag", "exclusive_tag", "string|null", "Tag of the exclusive consumer", SAME, of=_CLASSIC),
    Field("message_bytes", "queue.store.ready_bytes + queue.unacked_bytes + queue.withheld_bytes()", "integer",
          "Body bytes of all messages", SAME,
          _gauge("queue_messages_bytes", "Size in bytes of ready and unacknowledged messages", _METRICS,
                 source="queue.store.ready_bytes + queue.unacked_bytes"), _TAKEN),
    Field("message_bytes_ready", "queue.store.ready_bytes", "integer", "Body bytes of ready messages", SAME,
          _gauge("queue_messages_ready_bytes", "Size in bytes of ready messages", _METRICS), _TAKEN),
    Field("message_bytes_unacknowledged", "queue.unacked_bytes", "integer",
          "Body bytes of unacknowledged messages", SAME,
          _gauge("queue_messages_unacked_bytes", "Size in bytes of all unacknowledged messages", _METRICS), _TAKEN),
    Field("message_bytes_ram", "figures.message_bytes_ram", "integer", "Body bytes in memory", SAME,
          _gauge("queue_messages_ram_bytes", "Size of ready and unacknowledged messages stored in memory", _METRICS),
          _TAKEN),
    Field("message_bytes_persistent", "figures.message_bytes_persistent", "integer",
          "Body bytes of persistent messages",
          SAME, _gauge("queue_messages_persistent_bytes", "Size in bytes of persistent messages", _METRICS), _TAKEN),
    Field("messages_ram", "figures.messages_ram", "integer", "Messages in memory", SAME,
          _gauge("queue_messages_ram", "Ready and unacknowledged messages stored in memory", _METRICS), _TAKEN),
    Field("messages_persistent", "figures.messages_persistent", "integer", "Persistent messages", SAME,
          _gauge("queue_messages_persistent", "Persistent messages", _METRICS), _TAKEN),
    # In RabbitMQ 4.3, for quorum queues.
    Field("delayed_retry", "delayed_retry", "string", "Delays of returned messages, or disabled", SAME, of=_TAKEN),
    Field("messages_delayed", "queue.delayed_count", "integer", "Returned messages that wait", SAME,
          _own(_gauge, "queue_messages_delayed",
               "Returned messages that wait before they are redelivered, for queues that delay them", "queue_delayed",
               source="delayed_count"), _TAKEN),
    Field("message_bytes_delayed", "queue.delayed_bytes", "integer", "Body bytes of these", None,
          _own(_gauge, "queue_messages_delayed_bytes", "Size in bytes of these", "queue_delayed",
               source="delayed_bytes"), _TAKEN),
    Field("next_delayed_at", "next_delayed_at", "integer|null", "When the first of these is due, in ms since 1970",
          SAME,
          of=_TAKEN),
    Field("last_delayed_at", "last_delayed_at", "integer|null", "When the last of these is due, in ms since 1970", SAME,
          of=_TAKEN),
    *_PROCESS,
    Field("memory", "figures.memory", "integer", "Memory in bytes, estimated", SAME,
          _gauge("queue_process_memory_bytes", "Memory in bytes used by the queue, estimated", _METRICS)),
    Field("dropped", "dropped", "object", "Messages that left without being acknowledged, by reason", None,
          _own(_counter, "queue_dropped_total",
               "Total number of messages that left a queue without being acknowledged, by reason", "queue_losses",
               total="all_queues.dropped", source="counters.dropped", by=("reason", DROP_REASONS)), _TAKEN),
    Field("dead_lettered", "dead_lettered", "object", "Messages that were dead-lettered, by reason", None,
          _own(_counter, "queue_dead_lettered_total",
               "Total number of messages published to the dead-letter exchange of a queue, by reason", "queue_losses",
               total="all_queues.dead_lettered", source="counters.dead_lettered", by=_BY_REASON), _TAKEN),
    Field("dead_letters_lost", "dead_letters_lost", "object", "Dead letters that no queue accepted, by reason", None,
          _own(_counter, "queue_dead_letters_lost_total",
               "Total number of dead letters of a queue that no queue accepted, by reason", "queue_losses",
               total="all_queues.dead_letters_lost", source="counters.dead_letters_lost", by=_BY_REASON), _TAKEN),
    Field("refused", "counters.refused", "integer", "Messages that it refused because it was full", None,
          _own(_counter, "queue_refused_total", "Total number of messages refused by a full queue", "queue_losses",
               total="all_queues.refused"), _TAKEN),
    Field("refused_told", "counters.refused_told", "integer", "Those of which the publishers were told", None,
          _own(_counter, "queue_refused_told_total",
               "Refused messages that are not lost, because their publishers were told", "queue_losses",
               total="all_queues.refused_told"), _TAKEN),
    Field("deduplicated", "counters.deduplicated", "integer", "Duplicates that it dropped", None,
          _own(_counter, "queue_deduplicated_total",
               "Duplicates that a queue has dropped, for queues that drop duplicates",
               "queue_deduplication",
               source="deduplicated"), _TAKEN),
    Field("fill", "fill", "Fill|null", "How full it is; null without limits",
          Column("length_counts", "fill.length_counts"), of=_TAKEN, sort="fill_percent"),
    Field("fill.percent", "fill_percent", "number|null", "Fill level in per cent", None,
          _own(_gauge, "queue_fill_ratio",
               "Used share of the limit that is nearest to being reached, for queues with a limit", "queue_limits",
               source="fill_ratio"), _TAKEN, sort="fill_percent"),
    Field("fill.max_length", "queue.settings.max_length", "integer|null", "Maximum number of messages", None,
          _own(_gauge, "queue_max_length", "Maximum number of messages in a queue, for queues with this limit",
               "queue_limits"), _TAKEN),
    Field("fill.max_length_bytes", "queue.settings.max_length_bytes", "integer|null", "Maximum body bytes", None,
          _own(_gauge, "queue_max_length_bytes",
               "Maximum size in bytes of messages in a queue, for queues with this limit", "queue_limits"), _TAKEN),
    Field("storage", "storage", "object", "What is on disk: ready messages that are not in memory, and files"),
    Field("stream", "stream", "object", "Offsets and limits, and what these have removed", of=_STREAM),
    Field("stream.first_offset", "queue.stream.offsets[0]", "integer|null", "Offset of the first message", None,
          _own(_gauge, "stream_first_offset", "Offset of the first message of a stream; of the next one if it is empty",
               "stream_metrics"), _STREAM),
    Field("stream.next_offset", "queue.stream.offsets[1]", "integer", "Offset that the next message gets", None,
          _own(_gauge, "stream_next_offset", "Offset that the next message of a stream gets", "stream_metrics"),
               _STREAM),
    Field("storage.segment_bytes", "figures.disk_bytes", "integer", "Size of its files in bytes", None,
          _own(_gauge, "stream_bytes", "Size in bytes of the files of a stream", "stream_metrics"), _STREAM),
    Field("storage.segments", "figures.segments", "integer", "Number of its files", None,
          _own(_gauge, "stream_files", "Number of files of a stream", "stream_metrics"), _STREAM),
    Field("stream.removed_by_retention", "counters.outlived", "integer", "Messages that its limits have removed", None,
          _own(_counter, "stream_retention_removed_total",
               "Total number of messages that the limits of a stream have removed", "stream_metrics"), _STREAM),
    Field("oldest_ready_age", "oldest_ready_age", "number|null", "Seconds since the oldest ready message arrived", SAME,
          _own(_gauge, "queue_oldest_ready_age_seconds",
               "Time since the arrival of the oldest ready message, for queues with one", "queue_ages",
               source="exact_ready_age"), _TAKEN, sort="exact_ready_age"),
    Field("oldest_unacked_age", "oldest_unacked_age", "number|null", "The same of the oldest unacknowledged one", SAME,
          _own(_gauge, "queue_oldest_unacked_age_seconds",
               "Time since the arrival of the oldest unacked message, for queues with one", "queue_ages",
               source="exact_unacked_age"), _TAKEN, sort="exact_unacked_age"),
    Field("messages_ready", "queue.store.ready_count", "integer", "Messages ready for delivery", SAME,
          _gauge("queue_messages_ready", "Messages ready to be delivered to consumers", _COARSE),
          rate=("messages_ready",)),
    Field("messages_unacknowledged", "queue.unacked_count", "integer", "Messages delivered and not yet acknowledged",
          SAME,
          _gauge("queue_messages_unacked", "Messages delivered to consumers but not yet acknowledged", _COARSE),
          rate=("messages_unacknowledged",)),
    Field("messages", "queue.store.ready_count + queue.unacked_count + queue.withheld_count()", "integer",
          "Ready and unacknowledged messages", SAME,
          _gauge("queue_messages", "Sum of ready and unacknowledged messages - total queue depth", _COARSE),
          rate=("messages_ready", "messages_unacknowledged")),
    Field("message_stats", "message_stats", "object", "Numbers of messages with their rates, once there are any",
          optional=True),
    Field("message_stats.publish", "counters.published", "integer", "Messages that it got", None,
          _counter("queue_messages_published_total", "Total number of messages published to queues",
                   "channel_queue_exchange_metrics", total="all_queues.published")),
    Field("message_stats.disk_reads", "figures.disk_reads", "integer", "Messages read from disk",
          Column("disk_reads", form="count"),
          _counter("queue_disk_reads_total", "Total number of times queue read messages from disk", _METRICS,
                   total="disk_reads")),
    Field("message_stats.disk_writes", "figures.disk_writes", "integer", "Messages written to disk",
          Column("disk_writes", form="count"),
          _counter("queue_disk_writes_total", "Total number of times queue wrote messages to disk", _METRICS,
                   total="disk_writes")),
    Field("loss_stats", "loss_stats", "object", "Lost messages with their rates, once there are any", of=_TAKEN,
          optional=True),
    Field("owner_pid_details", "owner", "object", "The connection of an exclusive queue",
          Column("owner_pid", "owner_pid_details.name", "connection"), of=_TAKEN, optional=True),
    Field("open_files", "{node: figures.segments}", "object", "Segment files by node", of=_QUORUM),
    Field("messages_dlx", "queue.retained_count", "integer", "Dead letters that no queue has accepted yet", of=_QUORUM),
    Field("message_bytes_dlx", "queue.retained_bytes", "integer", "Body bytes of these", of=_QUORUM),
    Field("delivery_limit", "delivery_limit", "integer|string", "As in RabbitMQ 4: a number, or unlimited", of=_QUORUM),
    Field("release", "queue.traits.release", "string", "Release of RabbitMQ whose rules it follows", of=_QUORUM),
    Field("messages_ready_ram", "figures.messages_ready_ram", "integer", "Ready messages in memory", SAME,
          _gauge("queue_messages_ready_ram", "Ready messages stored in memory", _METRICS), _CLASSIC),
    Field("messages_unacknowledged_ram", "figures.messages_unacknowledged_ram", "integer",
          "Unacknowledged messages in memory", SAME,
          _gauge("queue_messages_unacked_ram", "Unacknowledged messages stored in memory", _METRICS), _CLASSIC),
    Field("messages_paged_out", "figures.messages_paged_out", "integer", "Messages that are only on disk", None,
          _gauge("queue_messages_paged_out", "Messages paged out to disk", _METRICS), _CLASSIC),
    Field("message_bytes_paged_out", "figures.message_bytes_paged_out", "integer", "Body bytes of these", None,
          _gauge("queue_messages_paged_out_bytes", "Size in bytes of messages paged out to disk", _METRICS), _CLASSIC),
    Field("head_message_timestamp", "head_timestamp", "integer|null", "Timestamp of the first ready message, if any",
          SAME,
          # A sum of timestamps would be meaningless, and a message without one is NaN.
          _gauge("queue_head_message_timestamp", "Timestamp of the first message in the queue, if any", _METRICS,
                 total=NO_TOTAL, source="head_timestamp_or_nan"), _CLASSIC),
    Field("recoverable_slaves", "None", "array|null", "Of mirrors; always null", of=_CLASSIC),
    Field("backing_queue_status", "backing_queue_status", "object", "The parts of a queue of RabbitMQ", of=_CLASSIC),
    Field("idle_since", "idle_since", "string", "Time of its last message or consumer, without messages and consumers",
          of=_CLASSIC, optional=True),
    Field("consumer_details", "consumer_details", "array", "Its consumers", single=True),
    Field("deliveries", "()", "array", "Always empty", single=True),
    Field("incoming", "()", "array", "Always empty", single=True),
)

_OCTETS: Final = "connection_coarse_metrics"
_PACKETS: Final = "connection_metrics"
CONNECTION: Final[Table] = (
    Field("name", "client.name", "string", "Addresses of client and broker", SAME, basic=True),
    Field("pid", "", "string", "The connection", Column(path="name", form="connection")),
    Field("vhost", "client.vhost_name", "string", "Virtual host", SAME, basic=True),
    Field("user", "client.username", "string", "Name of the user", SAME, basic=True),
    Field("node", "node", "string", "Name of the node", basic=True),
    Field("user_who_performed_action", "client.username", "string", "Name of the user"),
    Field("client_properties", "client_properties", "object", "What the client says of itself",
          _ARGUMENTS),
    Field("host", "client.local[0]", "string", "Address of the broker", SAME),
    Field("port", "client.local[1]", "integer", "Port of the broker", SAME),
    Field("peer_host", "client.peer[0]", "string", "Address of the client", SAME),
    Field("peer_port", "client.peer[1]", "integer", "Port of the client", SAME),
    Field("protocol", "'AMQP 0-9-1'", "string", "AMQP 0-9-1", Column(form="protocol")),
    Field("type", "'network'", "string", "network"),
    Field("auth_mechanism", "client.auth_mechanism", "string", "SASL mechanism of the login", SAME),
    Field("state", "state", "string", "running, or if an alarm is set blocking, and blocked once it publishes", SAME),
    Field("connected_at", "client.connected_at", "integer", "When it was opened, in ms since 1970", SAME),
    Field("timeout", "client.heartbeat", "integer", "Heartbeat interval in s", SAME),
    Field("channels", "len(client.channels)", "integer", "Number of open channels", SAME,
          _gauge("connection_channels", "Channels on a connection", _PACKETS)),
    Field("channel_max", "client.channel_max", "integer", "Maximum number of channels", SAME),
    Field("frame_max", "client.frame_max", "integer", "Maximum size of a frame in bytes", SAME),
    Field("recv_cnt", "counters.recv_cnt", "integer", "Packets received", SAME,
          _counter("connection_incoming_packets_total", "Total number of packets received on a connection", _PACKETS,
                   total="connections.recv_cnt")),
    Field("send_cnt", "counters.send_cnt", "integer", "Packets sent", SAME,
          _counter("connection_outgoing_packets_total", "Total number of packets sent on a connection", _PACKETS,
                   total="connections.send_cnt")),
    Field("send_pend", "client.output.pending_bytes()", "integer", "Bytes that wait to be sent", SAME,
          _gauge("connection_pending_packets", "Number of packets waiting to be sent on a connection", _PACKETS)),
    Field("ssl", "client.tls is not None", "boolean", "Whether it is encrypted", SAME),
    Field("ssl_protocol", "tls.protocol", "string|null", "Version of TLS", SAME),
    Field("ssl_cipher", "tls.cipher", "string|null", "Cipher suite", SAME),
    # Part of the cipher's name, or with TLS 1.3 not part of the cipher suite.
    Field("ssl_key_exchange", "None", "string|null", "Always null", SAME),
    Field("ssl_hash", "None", "string|null", "Always null", SAME),
    Field("peer_cert_subject", "tls.subject", "string|null", "Subject of the client's certificate", SAME),
    Field("peer_cert_issuer", "tls.issuer", "string|null", "Its issuer", SAME),
    Field("peer_cert_validity", "tls.validity", "string|null", "Its validity", SAME),
    *_PROCESS,
    Field("user_provided_name", "user_provided_name", "string", "Client-provided connection name", optional=True),
    Field("recv_oct", "counters.recv_oct", "integer", "Bytes received", SAME,
          _counter("connection_incoming_bytes_total", "Total number of bytes received on a connection", _OCTETS,
                   total="connections.recv_oct"), rate=("recv_oct",)),
    Field("send_oct", "counters.send_oct", "integer", "Bytes sent", SAME,
          _counter("connection_outgoing_bytes_total", "Total number of bytes sent on a connection", _OCTETS,
                   total="connections.send_oct"), rate=("send_oct",)),
)

_CHANNEL: Final = "channel_metrics"


def _counted(
    name: str, text: str, metric: str, attribute: str, about: str, family: str = "channel_queue_metrics"
) -> Field:
    """Return a number of messages on channels. They are counted per channel, not also per exchange and queue."""
    total = f"Total number of {about}"
    return Field(f"message_stats.{name}", f"channel.counters.{attribute}", "integer", text, None,
                 _counter(metric, total, family, total=f"channels.{attribute}"))


CHANNEL: Final[Table] = (
    Field("name", "name", "string", "Name of the connection, and the number in brackets", SAME),
    Field("pid", "", "string", "The channel", Column(path="name", form="channel")),
    Field("number", "channel.number", "integer", "Number in the connection", SAME),
    Field("node", "node", "string", "Name of the node"),
    Field("user", "client.username", "string", "Name of the user", SAME),
    Field("user_who_performed_action", "client.username", "string", "Name of the user"),
    Field("vhost", "client.vhost_name", "string", "Virtual host", SAME),
    Field("connection_details", "connection_details", "object", "The connection",
          Column("connection", "connection_details.name", "connection")),
    Field("state", "'running'", "string", "running"),
    Field("confirm", "channel.confirming", "boolean", "Whether it confirms messages to the publisher", SAME),
    Field("transactional", "channel.transactional", "boolean", "Whether it is in transaction mode", SAME),
    Field("consumer_count", "len(channel.consumers)", "integer", "Number of consumers", SAME,
          _gauge("channel_consumers", "Consumers on a channel", _CHANNEL)),
    Field("prefetch_count", "channel.default_prefetch", "integer", "Maximum of unacknowledged messages per consumer",
          SAME,
          _gauge("consumer_prefetch", "Limit of unacknowledged messages for each consumer", _CHANNEL)),
    Field("global_prefetch_count", "channel.prefetch", "integer", "Maximum of unacknowledged messages of all", SAME,
          _gauge("channel_prefetch", "Total limit of unacknowledged messages for all consumers on a channel",
                 _CHANNEL)),
    Field("messages_unacknowledged", "channel.unacked_count", "integer", "Messages delivered, not yet acknowledged",
          SAME,
          _gauge("channel_messages_unacked", "Delivered but not yet acknowledged messages", _CHANNEL)),
    Field("messages_unconfirmed", "channel.unconfirmed_count", "integer", "Messages published, not yet confirmed", SAME,
          _gauge("channel_messages_unconfirmed", "Published but not yet confirmed messages", _CHANNEL)),
    Field("messages_uncommitted", "channel.uncommitted[0]", "integer", "Messages published in the open transaction",
          SAME,
          _gauge("channel_messages_uncommitted", "Messages received in a transaction but not yet committed", _CHANNEL)),
    Field("acks_uncommitted", "channel.uncommitted[1]", "integer", "Acknowledgements in the open transaction", SAME,
          _gauge("channel_acks_uncommitted", "Message acknowledgements in a transaction not yet committed", _CHANNEL)),
    Field("pending_raft_commands", "0", "integer", "Erlang's; always 0"),
    *_PROCESS,
    Field("user_provided_name", "user_provided_name", "string", "Client-provided connection name", optional=True),
    Field("idle_since", "idle_since", "string", "Time since which nothing has happened", optional=True),
    Field("message_stats", "message_stats", "object", "Numbers of messages with their rates", optional=True),
    _counted("publish", "Messages published", "channel_messages_published_total", "publish",
             "messages published into an exchange on a channel", "channel_exchange_metrics"),
    _counted("confirm", "Messages confirmed", "channel_messages_confirmed_total", "confirm",
             "messages published into an exchange and confirmed on the channel", "channel_exchange_metrics"),
    _counted("return_unroutable", "Messages returned", "channel_messages_unroutable_returned_total",
             "return_unroutable",
             "messages published as mandatory into an exchange and returned to the publisher as unroutable",
             "channel_exchange_metrics"),
    _counted("drop_unroutable", "Messages dropped", "channel_messages_unroutable_dropped_total", "drop_unroutable",
             "messages published as non-mandatory into an exchange and dropped as unroutable",
             "channel_exchange_metrics"),
    _counted("get", "Messages fetched", "channel_get_ack_total", "get",
             "messages fetched with basic.get in manual acknowledgement mode"),
    _counted("get_no_ack", "Those without acknowledgement", "channel_get_total", "get_no_ack",
             "messages fetched with basic.get in automatic acknowledgement mode"),
    _counted("deliver", "Messages delivered", "channel_messages_delivered_ack_total", "deliver",
             "messages delivered to consumers in manual acknowledgement mode"),
    _counted("deliver_no_ack", "Those without acknowledgement", "channel_messages_delivered_total", "deliver_no_ack",
             "messages delivered to consumers in automatic acknowledgement mode"),
    _counted("redeliver", "Messages redelivered", "channel_messages_redelivered_total", "redeliver",
             "messages redelivered to consumers"),
    _counted("ack", "Messages acknowledged", "channel_messages_acked_total", "ack",
             "messages acknowledged by consumers"),
    _counted("get_empty", "Fetches without a message", "channel_get_empty_total", "get_empty",
             "times basic.get operations fetched no message"),
)

CONSUMER: Final[Table] = (
    Field("queue", "queue_details", "object", "Name and virtual host of the queue", Column("queue_name", "queue.name")),
    Field("channel_details", "channel_details", "object", "The channel",
          Column("channel_pid", "channel_details.name", "channel")),
    Field("consumer_tag", "consumer.tag", "string", "Tag, unique on the channel", SAME),
    Field("ack_required", "not consumer.no_ack", "boolean", "Whether it acknowledges messages", SAME),
    Field("exclusive", "consumer.exclusive", "boolean", "Whether it is the only one of the queue"),
    Field("prefetch_count", "consumer.prefetch", "integer", "Maximum of unacknowledged messages", SAME),
    Field("active", "active", "boolean", "Whether it gets messages", SAME),
    Field("activity_status", "activity_status", "string", "up, single_active or waiting", SAME),
    Field("arguments", "arguments", "object", "As given", _ARGUMENTS),
    # Newer clients fail if it is missing.
    Field("consumer_timeout", "timeout", "integer", "Time for acknowledgements in ms; 0 for no limit"),
    Field("next_offset", "next_offset", "integer", "Offset of the next message of a stream", of=_STREAM),
    Field("lag", "lag", "integer", "Messages of the stream that it has not got yet", None,
          _own(_gauge, "stream_consumer_lag", "Number of messages that a consumer of a stream has not got yet",
               "stream_consumer_metrics"), _STREAM),
)

CONSUMER_NAME: Final[Table] = (
    Field("name", "entry.name", "string", "The name", SAME),
    Field("next_offset", "next_offset", "integer", "Offset of the first message that has not been acknowledged", SAME,
          _own(_gauge, "stream_name_next_offset",
               "Offset of the first message that a consumer name has not acknowledged",
               "stream_name_metrics")),
    Field("lag", "lag", "integer", "Number of offsets from there to the end of the stream", SAME,
          _own(_gauge, "stream_name_lag", "Number of messages of a stream from there on", "stream_name_metrics")),
    Field("missed", "entry.missed", "integer", "Messages that retention removed before they were delivered to it", SAME,
          _own(_counter, "stream_name_missed_total",
               "Total number of messages that retention removed before a consumer name had them",
               "stream_name_metrics")),
    Field("changed", "entry.changed // 1000 or None", "integer|null", "When it has changed last, in ms since 1970"),
    Field("active", "active", "object|null", "The consumer that reads", Column("consumer_tag", "active.consumer_tag")),
    Field("active.channel_details", "", "object", "Its channel", Column("channel", "active.channel_details.name")),
    Field("waiting", "len(entry.waiting)", "integer", "Consumers that wait for their turn", SAME),
)

#: Moments are rounded up: what is restored at one must have been sent.
BACKUP: Final[Table] = (
    Field("moment", "-(-time // 1000)", "integer", "Moment that it restores, in ms since 1970", Column(form="time")),
    Field("until", "max(-(-time // 1000), until // 1000)", "integer",
          "Last moment that it and what was sent before the next one restore, in ms since 1970", Column(form="time")),
    Field("bytes", "bytes", "integer|null", "Bytes of its files; null if its manifest is damaged", SAME),
    Field("new_bytes", "sent", "integer|null", "Bytes that were sent for it", SAME),
    Field("seconds", "seconds", "number|null", "Seconds that it took", SAME),
    Field("files", "files", "integer|null", "Number of its files", SAME),
)

EXCHANGE: Final[Table] = (
    Field("name", "exchange.name", "string", "Name; empty of the default exchange", SAME, _gauge(
          "exchange_name", "Enumerates exchanges without any additional info. This value is cluster-wide.",
          "exchange_names", total=DETAILED, source="1", prefix=CLUSTER)),
    Field("vhost", "exchange.vhost_name", "string", "Virtual host"),
    Field("type", "exchange.type_name", "string", "Exchange type", SAME),
    Field("durable", "exchange.durable", "boolean", "Whether it survives a restart", SAME),
    Field("auto_delete", "exchange.auto_delete", "boolean", "Whether it goes with its last binding", SAME),
    Field("internal", "exchange.internal", "boolean", "Whether clients cannot publish to it", SAME),
    Field("arguments", "arguments", "object", "As declared", _ARGUMENTS),
    Field("messages_delayed", "waiting.count", "integer", "Messages that wait until they are due", None,
          _own(_gauge, "exchange_messages_delayed",
               "Messages that wait in an exchange x-delayed-message until they are due", "exchange_delayed", total=SUM),
          of=("delayed",)),
    Field("message_bytes_delayed", "waiting.body_bytes", "integer", "Body bytes of these", None,
          _own(_gauge, "exchange_messages_delayed_bytes",
               "Size in bytes of messages that wait in an exchange x-delayed-message", "exchange_delayed", total=SUM),
          of=("delayed",)),
    Field("next_delayed_at", "next_delayed_at", "integer|null", "When the first is due, in ms since 1970",
          of=("delayed",)),
    Field("cache_info", "cache_info", "object", "Values that it remembers", of=("deduplicating",)),
    Field("deduplicated", "exchange.counters.deduplicated", "integer", "Duplicates that it dropped", None,
          _own(_counter, "exchange_deduplicated_total",
               "Duplicates that an exchange x-message-deduplication has dropped", "exchange_deduplication", total=SUM),
          of=("deduplicating",)),
    Field("cache_info.entries", "remembered", "integer", "Number of values", None,
          _own(_gauge, "exchange_remembered_values",
               "Header values that an exchange x-message-deduplication remembers", "exchange_deduplication", total=SUM),
          of=("deduplicating",)),
    Field("policy", "exchange.policy and exchange.policy.name", "string", "Name of the policy in force", SAME,
          optional=True),
    Field("message_stats", "message_stats", "object", "Numbers of messages with their rates", optional=True),
    Field("loss_stats", "loss_stats", "object", "Unroutable messages with their rates", optional=True),
    # Bindings are counted at their source.
    Field("bindings", "", "integer", "", None, _gauge(
          "exchange_bindings", "Number of bindings for an exchange. This value is cluster-wide.",
          "exchange_bindings", total=DETAILED, source="len(exchange.bindings)", prefix=CLUSTER)),
    Field("incoming", "()", "array", "Always empty", single=True),
    Field("outgoing", "()", "array", "Always empty", single=True),
)

VHOST: Final[Table] = (
    Field("name", "vhost.name", "string", "Name", SAME, _gauge(
          "vhost_status", "Whether a given vhost is running", "vhost_status", total=DETAILED, source="1",
          prefix=CLUSTER)),
    Field("description", "metadata.description", "string", "Description", SAME),
    Field("tags", "list(metadata.tags)", "array", "Tags", SAME),
    Field("default_queue_type", "metadata.default_queue_type or 'undefined'", "string",
          "Type of queues without x-queue-type, or undefined", SAME),
    Field("metadata", "further", "object", "Description, tags and default queue type, if that is set"),
    Field("tracing", "metadata.tracing", "boolean", "Whether messages are traced", SAME),
    Field("cluster_state", "{node: 'running'}", "object", "running by node", SAME),
)

BINDING: Final[Table] = (
    Field("source", "identity.source", "string", "Name of the exchange", Column("source_name")),
    Field("source_kind", "", "string", "exchange", Column(form="exchange_kind", needs=("source",))),
    Field("vhost", "binding.source.vhost_name", "string", "Virtual host"),
    Field("destination", "identity.destination", "string", "Name of the queue or exchange", Column("destination_name")),
    Field("destination_type", "identity.destination_type", "string", "queue or exchange", Column("destination_kind")),
    Field("routing_key", "identity.routing_key", "string", "Routing key", SAME),
    Field("arguments", "arguments", "object", "As given", _ARGUMENTS),
    Field("properties_key", "properties_key", "string", "What names it among those of the two: in paths"),
)

_USE: Final = "node_coarse_metrics"
_LIMITS: Final = "node_metrics"
_FILES: Final = "node_persister_metrics"
_CHURN: Final = "connection_churn_metrics"


def _used(name: str, text: str, metric: Metric | None = None) -> Field:
    """Return a figure of the node that is sampled."""
    return Field(name, f"usage.{name}", "integer", text, None, metric, rate=(name,))


def _churn(name: str, metric: str, text: str, source: str = "statistics") -> Field:
    """Return a number of what came or went since the start."""
    return Field(name, f"{source}.{name}", "integer", text, None,
                 _counter(metric, f"Total number of {text.lower()}", _CHURN), rate=(name,))


def _file(metric: str, text: str, source: str) -> Field:
    """Return a metric of files. RabbitMQ's API has other figures, which are not counted: see NODE_ABSENT."""
    return Field(metric, "", "number", text, None, _counter(metric, text, _FILES, source=source))


NODE: Final[Table] = (
    Field("name", "node.name", "string", "Name", basic=True),
    Field("type", "'disc'", "string", "disc", basic=True),
    Field("running", "True", "boolean", "true", basic=True),
    Field("uptime", "node.uptime()", "integer", "Time since the start in ms", None,
          _gauge("erlang_uptime_seconds", "Node uptime", _LIMITS, source="node.uptime() / 1000")),
    Field("os_pid", "os_pid", "string", "Process identifier"),
    Field("processors", "processors", "integer", "Number of processors"),
    Field("run_queue", "0", "integer", "Erlang's; always 0"),
    Field("fd_total", "files_max", "integer", "Maximum number of open files", None,
          _gauge("process_max_fds", "Open file descriptors limit", _LIMITS)),
    Field("sockets_total", "broker.sockets.total", "integer", "Maximum number of sockets of clients", None,
          _gauge("process_max_tcp_sockets", "Open TCP sockets limit", _LIMITS)),
    Field("proc_total", "1_048_576", "integer", "Erlang's maximum of processes"),
    Field("mem_limit", "node.memory_limit", "integer", "Bytes of memory from which on publishers are blocked", None,
          _gauge("resident_memory_limit_bytes", "Memory high watermark in bytes", _LIMITS)),
    Field("mem_alarm", "'memory' in broker.alarms.resources", "boolean", "Whether they are"),
    Field("mem_calculation_strategy", "'rss'", "string", "rss"),
    Field("disk_free_limit", "node.disk_free_limit", "integer", "Free bytes below which publishers are blocked", None,
          _gauge("disk_space_available_limit_bytes", "Free disk space low watermark in bytes", _LIMITS)),
    Field("disk_free_alarm", "'disk' in broker.alarms.resources", "boolean", "Whether they are"),
    Field("rates_mode", "'basic'", "string", "basic"),
    Field("partitions", "()", "array", "Always empty"),
    Field("net_ticktime", "60", "integer", "Erlang's"),
    Field("being_drained", "False", "boolean", "false"),
    Field("enabled_plugins", "('rabbitmq_management', 'rabbitmq_prometheus')", "array",
          "Those of RabbitMQ whose work it does"),
    Field("applications", "applications", "array", "Its version; newer clients read it here"),
    Field("auth_mechanisms", "auth_mechanisms", "array", "SASL mechanisms"),
    Field("exchange_types", "exchange_types", "array", "Exchange types"),
    Field("contexts", "contexts", "array", "What the HTTP listeners serve"),
    Field("log_files", "log_files", "array", "Where the log goes"),
    Field("config_files", "list(node.config_files)", "array", "Files that were read at the start"),
    Field("db_dir", "str(node.data_dir.absolute())", "string", "Data directory"),
    Field("cluster_links", "()", "array", "Always empty"),
    Field("ra_open_file_metrics", "{'ra_log_wal': 0, 'ra_log_segment_writer': 0}", "object",
          "Erlang's; all numbers are 0"),
    Field("metrics_gc_queue_length", "metrics_gc", "object", "Erlang's; all numbers are 0"),
    _used("mem_used", "Bytes of memory", _gauge("process_resident_memory_bytes", "Memory used in bytes", _USE)),
    _used("fd_used", "Open files", _gauge("process_open_fds", "Open file descriptors", _USE)),
    _used("sockets_used", "Sockets of clients", _gauge("process_open_tcp_sockets", "Open TCP sockets", _USE)),
    # The counterparts in Python.
    _used("proc_used", "Threads", _gauge("erlang_processes_used", "Erlang processes used", _USE)),
    _used("disk_free", "Free bytes", _gauge("disk_space_available_bytes", "Disk space available in bytes", _USE)),
    _used("gc_num", "Runs of the garbage collector",
          _counter("erlang_gc_runs_total", "Total number of Erlang garbage collector runs", _USE)),
    _used("gc_bytes_reclaimed", "Always 0"),
    _used("context_switches", "Context switches", _counter(
          "erlang_scheduler_context_switches_total", "Total number of Erlang scheduler context switches", _USE)),
    _churn("connection_created", "connections_opened_total", "Connections opened"),
    _churn("connection_closed", "connections_closed_total", "Connections closed or terminated"),
    _churn("channel_created", "channels_opened_total", "Channels opened"),
    _churn("channel_closed", "channels_closed_total", "Channels closed"),
    _churn("queue_declared", "queues_declared_total", "Queues declared", "ended"),
    _churn("queue_created", "queues_created_total", "Queues created", "ended"),
    _churn("queue_deleted", "queues_deleted_total", "Queues deleted", "ended"),
    _file("io_read_ops_total", "Total number of I/O read operations", "broker.stores.file_counts.reads"),
    _file("io_read_bytes_total", "Total number of I/O bytes read", "broker.stores.file_counts.read_bytes"),
    _file("io_read_time_seconds_total", "Total I/O read time", "broker.stores.file_counts.read_seconds"),
    _file("io_write_ops_total", "Total number of I/O write operations", "broker.stores.file_counts.writes"),
    _file("io_write_bytes_total", "Total number of I/O bytes written", "broker.stores.file_counts.written_bytes"),
    _file("io_write_time_seconds_total", "Total I/O write time", "broker.stores.file_counts.write_seconds"),
    _file("io_sync_ops_total", "Total number of I/O sync operations", "broker.stores.file_counts.syncs"),
    _file("io_sync_time_seconds_total", "Total I/O sync time", "broker.stores.file_counts.sync_seconds"),
    _file("msg_store_read_total", "Total number of Message Store read operations", "ended.disk_reads"),
    _file("msg_store_write_total", "Total number of Message Store write operations", "ended.disk_writes"),
)
def _as_is(name: str, type: str, text: str, column: Column | None = SAME, **more: Any) -> Field:
    """Return a field of a document that is made elsewhere, too."""
    return Field(name, name, type, text, column, **more)


AUDIT_RECORD: Final[Table] = (
    _as_is("at", "integer", "When it was done, in ms since 1970", Column(form="time")),
    _as_is("kind", "string", "What was done, as in the routing keys of events: queue.deleted"),
    _as_is("user", "string", "Name of the user"),
    _as_is("host", "string|null", "Address of the client; null if the broker has done it by itself"),
    _as_is("broker", "boolean", "Whether it is a consequence, which nobody has asked for"),
    _as_is("vhost", "string|null", "Virtual host of the object"),
    _as_is("object", "string", "Name of the object"),
    _as_is("count", "integer|null", "Number of messages, or of failed logins that were counted together"),
    _as_is("details", "object", "What else is known of it", Column(form="json")),
)

USER: Final[Table] = (
    _as_is("name", "string", "Name", Column("user")),
    _as_is("password_hash", "string", "base64 of 4 bytes of salt and the hash; empty without a password", None),
    _as_is("hashing_algorithm", "string", "Algorithm of the hash", None),
    _as_is("tags", "array", "Tags", Column(form="tags")),
    _as_is("limits", "object", "max-connections and max-channels, if they are set", None),
)
PERMISSION: Final[Table] = (
    _as_is("user", "string", "Name of the user"),
    _as_is("vhost", "string", "Virtual host"),
    _as_is("configure", "string", "Regular expression, searched in names; the empty one matches none"),
    _as_is("write", "string", "The same for publishing, and for queues to bind"),
    _as_is("read", "string", "The same for consuming, and for exchanges to bind to"),
)
TOPIC_PERMISSION: Final[Table] = (
    _as_is("user", "string", "Name of the user"),
    _as_is("vhost", "string", "Virtual host"),
    _as_is("exchange", "string", "Name of the topic exchange"),
    _as_is("write", "string", "Regular expression for routing keys; {username} and {vhost} are replaced"),
    _as_is("read", "string", "The same for binding"),
)
POLICY: Final[Table] = (
    _as_is("vhost", "string", "Virtual host"),
    _as_is("name", "string", "Name"),
    _as_is("pattern", "string", "Regular expression, searched in names"),
    _as_is("apply-to", "string", "all, queues, classic_queues, quorum_queues, streams or exchanges"),
    _as_is("definition", "object", "Value by policy key", _JSON),
    _as_is("priority", "number", "Of several policies that match, the one with the highest is in force"),
    _as_is("queues_in_force", "integer", "With counts, number of queues on which it is in force", None, optional=True),
    _as_is("exchanges_in_force", "integer", "With counts, number of such exchanges", None, optional=True),
)
#: A queue or exchange that a policy's pattern matches.
POLICY_MATCH: Final[Table] = (
    _as_is("name", "string", "Name"),
    _as_is("vhost", "string", "Virtual host"),
    _as_is("type", "string", "Type of the queue or exchange"),
    _as_is("in_force", "boolean", "Whether the policy is in force on it"),
    _as_is("rival", "string|null", "The policy that is in force instead"),
    _as_is("reason", "string|null", "Why the policy is not in force"),
    _as_is("messages_ready", "integer", "Messages ready for delivery", of=("queue",)),
    _as_is("message_bytes_ready", "integer", "Body bytes of ready messages", of=("queue",)),
    _as_is("fill_percent", "number|null", "Per cent of the nearest limit; null without limits", of=("queue",)),
)
PARAMETER: Final[Table] = (
    _as_is("value", "any", "Any JSON", _JSON),
    _as_is("vhost", "string", "Virtual host", None),
    _as_is("component", "string", "operator_policy, vhost-limits, or if it is asked for policy"),
    _as_is("name", "string", "Name"),
)
GLOBAL_PARAMETER: Final[Table] = (PARAMETER[-1], PARAMETER[0])
VHOST_LIMIT: Final[Table] = (
    _as_is("vhost", "string", "Virtual host"),
    # RabbitMQ's empty object.
    _as_is("value", "object|array", "Values by limit; an empty list once all are removed",
           Column("limits", form="json")),
)
USER_LIMIT: Final[Table] = (
    _as_is("user", "string", "Name of the user"),
    _as_is("value", "object", "Values by limit", Column("limits", form="json")),
)

JOB_COUNTS: Final[Table] = (
    _as_is("scanned", "integer", "Messages that were looked at"),
    _as_is("returned", "integer", "Messages returned, moved, replayed or restored; with dry_run, that would be"),
    _as_is("left_count", "integer", "Messages that match and are left where they are", Column("left")),
    _as_is("left", "array", "Their numbers by problem", None),
    _as_is("left.problem", "string", "Why they are left", None),
    _as_is("left.target", "string", "Where they should have gone", None),
    _as_is("left.count", "integer", "Number of messages", None),
    _as_is("by_origin", "array", "Numbers of messages by target", None),
    _as_is("by_origin.target", "string", "Where they went", None),
    _as_is("by_origin.reason", "string", "Why they were dead-lettered; of a replay, their routing key", None),
    _as_is("by_origin.count", "integer", "Number of messages", None),
)
JOB: Final[Table] = (
    _as_is("id", "string", "ID"),
    _as_is("kind", "string", "return, move, replay or restore"),
    _as_is("vhost", "string", "Virtual host", None),
    _as_is("queue", "string", "Name of its queue"),
    _as_is("user", "string", "With whose permissions it works"),
    _as_is("state", "string", "running, paused, completed, cancelled or failed. Paused is one with which the broker "
           "ended badly three times in a row, until it is resumed"),
    _as_is("created", "integer", "When it began, in ms since 1970"),
    _as_is("finished", "integer|null", "When it ended, in ms since 1970"),
    _as_is("error", "string|null", "Why it has failed, waits or is paused"),
    _as_is("options", "object", "Those of the request, without dry_run and job. Empty, as left and by_origin, for "
           "users without read permission on the queue", _JSON),
    _as_is("total", "integer|null", "Messages of the queue in the backup, once that is known", of=("restore",)),
    _as_is("first_offset", "integer", "First offset", of=("replay",)),
    _as_is("next_offset", "integer", "Offset where it goes on: what was sent of those before it is on disk",
           of=("replay",)),
    _as_is("end_offset", "integer", "Offset where it ends; this one is not replayed", of=("replay",)),
    *JOB_COUNTS,
)

SHOVEL: Final[Table] = (
    _as_is("node", "string", "The node"),
    _as_is("timestamp", "string", "When it got into its state, UTC"),
    _as_is("name", "string", "Name"),
    _as_is("vhost", "string", "Virtual host of its parameter; not of static ones"),
    _as_is("type", "string", "dynamic: a parameter; static: of the configuration"),
    _as_is("state", "string", "starting, running or terminated"),
    _as_is("reason", "string", "Why it has failed, if it has; RabbitMQ shows it of terminated ones"),
    _as_is("src_uri", "string", "Where messages come from, without user and password. This and the others of the ends "
           "only while it is running"),
    _as_is("src_protocol", "string", "amqp091"),
    _as_is("dest_protocol", "string", "amqp091"),
    _as_is("dest_uri", "string", "Where they go"),
    _as_is("src_queue", "string", "Queue at the source"),
    _as_is("src_exchange", "string", "Exchange at the source"),
    _as_is("src_exchange_key", "string", "Binding key there"),
    _as_is("dest_queue", "string", "Queue at the destination"),
    _as_is("dest_exchange", "string", "Exchange at the destination"),
    _as_is("dest_exchange_key", "string", "Routing key there"),
    _as_is("forwarded", "integer", "Messages that were published at the destination since the start of the broker"),
    _as_is("pending", "integer", "Messages that the destination has not confirmed yet"),
    _as_is("remaining", "integer", "Messages after which it removes itself, if it does"),
)
READER: Final[Table] = (
    Field("name", "file.name", "string", "Name", SAME),
    Field("vhost", "file.vhost", "string|null", "Virtual host whose queues it reads, or a pattern; null for all", SAME),
    Field("queue", "file.queue", "string|null", "Queue that it reads, or a pattern; null for all", SAME),
    Field("created", "file.created // 1000", "integer", "When it was made, in ms since 1970", SAME),
    Field("seen", "file.seen // 1000", "integer", "When its query was seen last, in ms since 1970", SAME),
    Field("held_bytes", "held_bytes", "integer", "Size of the files kept for readers alone that it has not read", SAME),
)

LOSS_AMOUNTS: Final[Table] = (
    _as_is("lost", "integer", "Dropped, refused and unroutable messages; not purged ones, and not those whose "
           "publisher was told"),
    _as_is("dropped", "object", "Dropped messages by reason", None),
    *(Field(f"dropped.{reason}", "dropped", "integer", f"Those of the reason {reason}", Column(reason))
      for reason in DROP_REASONS),
    Field("dropped.deleted", "dropped", "integer", "Those that went with their queue", Column("deleted")),
    _as_is("refused", "integer", "Messages that a full queue refused"),
    _as_is("refused_told", "integer", "Of these, those that are not lost although no dead-letter queue has them, "
           "because their sender knows: a publisher with confirms, in a transaction or over HTTP, or a queue whose "
           "dead letters they are"),
    _as_is("dead_lettered", "object", "Messages published to the dead-letter exchange, by reason", Column(form="sum")),
    _as_is("dead_letters_lost", "object", "Dead letters that no queue accepted, because of a missing exchange, no "
           "route or full queues, by reason", Column(form="sum")),
    _as_is("unroutable", "object", "Unroutable messages of an exchange", Column(form="sum")),
    Field("unroutable.dropped", "unroutable", "integer", "Those that were dropped"),
    Field("unroutable.returned", "unroutable", "integer", "Those that were returned to the publisher"),
)
#: Counters begin with the object or with the broker (since). Samples are kept for a day: every 5 s for 10 minutes, each
#: minute for an hour, every 10 minutes for 8 hours, every 30 minutes for a day. Deleted objects keep their rows for a
#: day. After that, or if there are too many of them or they were exclusive, only sums are kept.
LOSS: Final[Table] = (
    _as_is("kind", "string", "queue or exchange"),
    _as_is("state", "string", "present, deleted, or sum of deleted"),
    _as_is("vhost", "string", "Virtual host", None),
    _as_is("name", "string|null", "Name; null for a sum"),
    _as_is("since", "integer", "Start of counting, in ms since 1970"),
    _as_is("deleted_at", "integer|null", "Time of deletion, in ms since 1970"),
    *LOSS_AMOUNTS,
    _as_is("lost_details", "object", "The rate of lost", None),
    _as_is("window", "LossWindow", "The losses within the requested time", None, optional=True),
)

#: A standby of a leader.
STANDBY: Final[Table] = (
    _as_is("name", "string", "Name of the node"),
    _as_is("role", "string", "standby or observer"),
    _as_is("is_observer", "boolean", "Whether it is an observer", None),
    _as_is("is_connected", "boolean", "Whether it is connected to the leader", None),
    _as_is("in_sync", "boolean", "Whether it has everything that was confirmed"),
    _as_is("state", "string", "away, copy or frames"),
    _as_is("operation", "integer", "Number of the last operation that it has acknowledged; like what follows null of "
           "a node that has not been there since this one leads"),
    _as_is("lag_operations", "integer", "Operations that it has not acknowledged yet"),
    _as_is("lag_bytes", "integer", "Bytes of these, about"),
    _as_is("lag_seconds", "number", "Seconds since the first of these"),
    _as_is("copy_bytes_sent", "integer", "Bytes of its copy that were sent"),
    _as_is("copy_bytes", "integer", "Size of this copy"),
)
REPLICATION: Final[Table] = (
    _as_is("node", "string", "Name of the node"),
    _as_is("role", "string", "alone, starting, leader, standby or observer"),
    _as_is("is_leader", "boolean", "Whether it leads"),
    _as_is("is_observer", "boolean", "Whether it is an observer"),
    _as_is("is_in_sync", "boolean", "Whether it has everything that was confirmed"),
    _as_is("epoch", "integer", "Number of the present leadership"),
    _as_is("leader", "string", "Name of the leader"),
    _as_is("in_sync", "array", "Names of the nodes that have everything that was confirmed"),
    _as_is("copies", "integer", "Number of these"),
    _as_is("min_copies", "integer", "Number of these that there must be, or publishers are blocked"),
    _as_is("operation", "integer", "Number of the last operation on the node's disk"),
    _as_is("lag_operations", "integer", "Of a leader, operations that the slowest node in sync has not acknowledged; "
           "of others, those that they do not have"),
    _as_is("lag_bytes", "integer", "Bytes of these, about"),
    _as_is("lag_seconds", "number", "Seconds since the first of these"),
    _as_is("is_connected", "boolean", "Whether a node that does not lead has a leader"),
    _as_is("copy_bytes_received", "integer", "Bytes of its copy that it has received"),
    _as_is("copy_bytes", "integer", "Size of this copy"),
    _as_is("standbys", "Standby[]", "Of a leader, the other nodes"),
)
#: A message that waits until it is due, in an exchange or for its retry in a queue.
WAITING_MESSAGE: Final[Table] = (
    _as_is("id", "integer", "Number of the message"),
    _as_is("due", "integer", "When it is due, in ms since 1970", Column(form="time")),
    _as_is("delay", "integer", "How long it waits, in ms", of=("exchange",)),
    _as_is("exchange", "string", "Exchange that it was published to"),
    _as_is("routing_key", "string", "Its routing key"),
    _as_is("payload_bytes", "integer", "Size of its body in bytes"),
    _as_is("properties", "object|array", "As they will be delivered; with the negative delay in x-delay in an "
           "exchange. As in RabbitMQ, none are an empty list", None),
    _as_is("payload", "string", "Its body", None, single=True),
    _as_is("payload_encoding", "string", "string, or base64 if it is not UTF-8", None, single=True),
)
#: A message that was looked at.
BROWSED_MESSAGE: Final[Table] = (
    _as_is("place", "string", "Where it stands in the queue"),
    _as_is("state", "string", "ready, unacked or delayed"),
    _as_is("due", "integer|null", "When it is due, in ms since 1970"),
    _as_is("redelivered", "boolean", "Whether it was delivered before"),
    _as_is("arrived", "integer|null", "When it arrived, in ms since 1970"),
    _as_is("age", "number|null", "Seconds since then"),
    _as_is("exchange", "string", "Exchange that it was published to"),
    _as_is("routing_key", "string", "Its routing key"),
    _as_is("payload_bytes", "integer", "Size of its body in bytes"),
    _as_is("properties", "object|array", "Its properties; as in RabbitMQ, none are an empty list", _OBJECT),
    Field("properties.headers", "properties", "object", "Its headers", Column("headers", form="json")),
    _as_is("payload", "string", "Its body, or the beginning of it", Column(form="line")),
    _as_is("payload_encoding", "string", "string, or base64 if it is not UTF-8"),
)
FEATURE_FLAG: Final[Table] = tuple(
    _as_is(name, "string", text)
    for name, text in (
        ("name", "Name"), ("desc", "What it is for"), ("doc_url", "Where that is documented"), ("state", "enabled"),
        ("stability", "stable"), ("provided_by", "Part of the broker"),
    )
)
#: Figures of RabbitMQ's nodes that have no counterpart or are not counted. They and their rates are 0.
NODE_ABSENT: Final = (
    *(f"io_{work}_{figure}" for work in ("read", "write") for figure in ("count", "bytes", "avg_time")),
    *(f"io_{work}_{figure}" for work in ("sync", "seek") for figure in ("count", "avg_time")),
    "io_reopen_count",
    *(f"mnesia_{kind}_tx_count" for kind in ("ram", "disk")),
    *(f"{part}_{work}_count" for part in ("msg_store", "queue_index") for work in ("read", "write")),
)
# fmt: on
#: Tables by the name of their schema in openapi.yaml.
SCHEMAS: Final = {
    "Queue": QUEUE,
    "Exchange": EXCHANGE,
    "ShownBinding": BINDING,
    "Connection": CONNECTION,
    "Channel": CHANNEL,
    "Consumer": CONSUMER,
    "ConsumerName": CONSUMER_NAME,
    "ShownVirtualHost": VHOST,
    "Node": NODE,
    "ShownUser": USER,
    "ShownPermission": PERMISSION,
    "ShownTopicPermission": TOPIC_PERMISSION,
    "ShownPolicy": POLICY,
    "Covered": POLICY_MATCH,
    "Parameter": PARAMETER,
    "GlobalParameter": GLOBAL_PARAMETER,
    "VirtualHostLimits": VHOST_LIMIT,
    "UserLimits": USER_LIMIT,
    "JobCounts": JOB_COUNTS,
    "Job": JOB,
    "Reader": READER,
    "LossAmounts": LOSS_AMOUNTS,
    "Loss": LOSS,
    "Shovel": SHOVEL,
    "Replication": REPLICATION,
    "Standby": STANDBY,
    "DelayedMessage": WAITING_MESSAGE,
    "BrowsedMessage": BROWSED_MESSAGE,
    "FeatureFlag": FEATURE_FLAG,
    "Backup": BACKUP,
    "AuditRecord": AUDIT_RECORD,
}  # fmt: skip
