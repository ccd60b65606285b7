"""The columns of the web pages' lists, for ui/parts/columns.js.

A column shows a field of the table of fields (management/fields.py). A page has functions for the cells of those
columns that have no form, and may change others.
"""

from __future__ import annotations

import json
from functools import partial
from typing import Any, Final, NamedTuple

from leveret.broker.core.exchanges.types import EXCHANGE_TYPES
from leveret.broker.management import fields
from leveret.broker.management.fields import Table

#: Forms of numbers: aligned right, sorted in descending order first, and explained by the text of the field.
_NUMBERS: Final = ("number", "optional", "count", "exact", "bytes", "age", "rate", "speed", "lost", "ago")


class PageColumn(NamedTuple):
    """A column.

    Args:
        path: Dotted path of its value in the API's object; it begins with the name of the field.
        label: Heading.
        form: How the value is shown: one of FORMS of columns.js; "" if the page does.
        title: Explanation on hover; by default, if it is a number, the text of the field.
        key: Unique name, by which choices of columns are stored; by default the path.
        sort: Sort key of the API, by default the path; None if the list is not sorted by it.
        needs: Fields to request; by default the path.
        is_number: Whether it is a number, if the page shows it.
        hidden: Whether it is hidden unless it is chosen.
        fixed: Whether it cannot be hidden.
    """

    path: str
    label: str
    form: str = ""
    title: str = ""
    key: str = ""
    sort: str | None = ""
    needs: tuple[str, ...] = ()
    is_number: bool = False
    hidden: bool = False
    fixed: bool = False


def _rate(name: str, label: str, title: str, hidden: bool = False) -> PageColumn:
    return PageColumn(f"message_stats.{name}_details.rate", label, "rate", title, name, hidden=hidden)


def _speed(name: str, label: str, title: str) -> PageColumn:
    return PageColumn(f"{name}_details.rate", label, "speed", title, name)


_Hidden: Final = partial(PageColumn, hidden=True)
_VHOST: Final = PageColumn("vhost", "Virtual host", "text")
# A row is a line.
# fmt: off
#: Kinds of objects and columns, by the name of the list.
LISTS: Final[dict[str, tuple[Table, tuple[PageColumn, ...]]]] = {
    "queues": (fields.QUEUE, (
        _VHOST,
        PageColumn("name", "Name", needs=("name", "vhost"), fixed=True),
        PageColumn("fill", "Fill", title="Usage of the nearest limit; click to sort by it, fullest queue first",
                   is_number=True),
        PageColumn("messages_ready", "Ready", "number"),
        PageColumn("state", "State", needs=("state", "idle_since")),
        PageColumn("messages_unacknowledged", "Unacked", "number"),
        _Hidden("messages", "Total", "number"),
        PageColumn("consumers", "Consumers", "number"),
        PageColumn("oldest_ready_age", "Oldest", "age", "Time since the arrival of the oldest ready message"),
        _Hidden("oldest_unacked_age", "Oldest unacked", "age", "Time since the arrival of the oldest unacked message"),
        PageColumn("loss_stats.lost", "Lost", "lost", "Messages dropped, or refused without word to the publisher, "
                   "that did not reach a dead-letter queue, since losses are counted", "lost"),
        _rate("publish", "In", "Messages published to the queue"),
        _rate("deliver_get", "Deliver", "Messages delivered to consumers or fetched"),
        _rate("ack", "Ack", "Messages acknowledged by consumers"),
        PageColumn("policy", "Policy", needs=("policy", "vhost")),
        PageColumn("durable", "Features", key="features", sort=None,
                   needs=("durable", "auto_delete", "exclusive", "arguments", "effective_arguments")),
        _Hidden("arguments", "Arguments", "table", sort=None),
        PageColumn("type", "Type", "text"),
        PageColumn("operator_policy", "Op. policy", title="Operator policy", needs=("operator_policy", "vhost")),
        PageColumn("message_bytes_ready", "Bytes ready", "bytes"),
        _Hidden("message_bytes", "Bytes", "bytes"),
    )),
    "connections": (fields.CONNECTION, (
        _VHOST,
        PageColumn("name", "Name", needs=("name", "user_provided_name"), fixed=True),
        PageColumn("user", "User", "text"),
        PageColumn("state", "State"),
        PageColumn("ssl", "TLS", key="tls", needs=("ssl", "ssl_protocol", "ssl_cipher")),
        PageColumn("protocol", "Protocol", "figure"),
        PageColumn("channels", "Channels", "number"),
        _speed("recv_oct", "From client", "Bytes that the broker receives"),
        _speed("send_oct", "To client", "Bytes that the broker sends"),
        _Hidden("timeout", "Heartbeat", title="Maximum time without data before the peer is considered dead",
                key="heartbeat", is_number=True),
        PageColumn("client_properties", "Client", key="client", sort="client_properties.product"),
        PageColumn("connected_at", "Connected", "ago"),
        _Hidden("connected_at", "Connected at", "time", key="connected_on"),
        _Hidden("peer_host", "Peer host", "text"),
        _Hidden("peer_port", "Peer port", "text", is_number=True),
        _Hidden("auth_mechanism", "Auth mechanism", "text"),
        _Hidden("channel_max", "Channel max", "number"),
        _Hidden("frame_max", "Frame max", "bytes"),
        _Hidden("send_pend", "Waiting", "bytes", "Bytes that the client has not read yet"),
    )),
    "channels": (fields.CHANNEL, (
        _VHOST,
        PageColumn("name", "Channel", needs=("name", "user_provided_name"), fixed=True),
        # In the list of one connection.
        PageColumn("number", "Channel", needs=("number", "name"), fixed=True),
        PageColumn("user", "User", "text"),
        PageColumn("confirm", "Mode", key="mode", sort=None, needs=("confirm", "transactional")),
        PageColumn("state", "State", needs=("state", "idle_since")),
        PageColumn("messages_unconfirmed", "Unconfirmed", "number"),
        PageColumn("prefetch_count", "Prefetch", title="Maximum number of unacknowledged messages per consumer; "
                   "global: of the whole channel", key="prefetch", needs=("prefetch_count", "global_prefetch_count"),
                   is_number=True),
        PageColumn("messages_unacknowledged", "Unacked", "number"),
        _Hidden("messages_uncommitted", "Uncommitted", "number"),
        _Hidden("acks_uncommitted", "Acks uncommitted", "number"),
        PageColumn("consumer_count", "Consumers", "number"),
        _rate("publish", "Publish", "Messages published by the client"),
        _rate("confirm", "Confirm", "Messages confirmed to the client"),
        _rate("drop_unroutable", "Unroutable (drop)", "Messages that were not routed to a queue", True),
        _rate("return_unroutable", "Unroutable (return)", "Mandatory messages that were not routed to a queue and were "
              "returned", True),
        _rate("deliver_get", "Deliver / get", "Messages delivered to consumers or fetched"),
        _rate("redeliver", "Redeliver", "Messages redelivered", True),
        _rate("ack", "Ack", "Messages acknowledged"),
    )),
    "exchanges": (fields.EXCHANGE, (
        _VHOST,
        PageColumn("name", "Name", needs=("name", "vhost"), fixed=True),
        PageColumn("type", "Type"),
        PageColumn("durable", "Features", key="features", sort=None,
                   needs=("durable", "auto_delete", "internal", "arguments")),
        _Hidden("arguments", "Arguments", "table", sort=None),
        PageColumn("policy", "Policy", needs=("policy", "vhost")),
        _rate("publish_in", "Rate in", "Messages published to the exchange"),
        _rate("publish_out", "Rate out", "Messages routed by the exchange, counted once per target"),
        _Hidden("message_stats.publish_in", "Total in", "count", "Messages published to the exchange since the "
                "broker's start"),
        _Hidden("message_stats.publish_out", "Total out", "count", "Messages routed by the exchange since the broker's "
                "start, counted once per target"),
        PageColumn("loss_stats.lost", "Lost", "lost", "Messages that were not routed to a queue and not returned to "
                   "the publisher, or delayed ones that were refused, since losses are counted"),
        _Hidden("messages_delayed", "Delayed", "optional", "Messages that wait until they are due, in exchanges of "
                "type x-delayed-message"),
    )),
    "vhosts": (fields.VHOST, (
        PageColumn("name", "Name", fixed=True),
        PageColumn("description", "Description", "text"),
        PageColumn("tags", "Tags", "list"),
        _Hidden("default_queue_type", "Default queue type"),
        PageColumn("tracing", "Tracing"),
        PageColumn("messages_ready", "Ready", "count"),
        PageColumn("messages_unacknowledged", "Unacked", "count"),
        PageColumn("messages", "Total", "count"),
        _rate("publish", "Published", ""),
        _rate("deliver_get", "Delivered", ""),
    )),
    "users": (fields.USER, (
        PageColumn("name", "Name", fixed=True),
        PageColumn("tags", "Tags"),
        PageColumn("limits", "Limits", sort=None),
        PageColumn("password_hash", "Password", key="password", sort=None),
    )),
    "policies": (fields.POLICY, (
        _VHOST,
        PageColumn("name", "Name", fixed=True),
        PageColumn("pattern", "Pattern"),
        PageColumn("apply-to", "Applies to"),
        PageColumn("definition", "Definition", sort=None),
        PageColumn("priority", "Priority", "text", "The matching policy with the highest priority is in force",
                   is_number=True),
        PageColumn("queues_in_force", "Queues", title="Queues on which it is in force", is_number=True),
        PageColumn("exchanges_in_force", "Exchanges", title="Exchanges on which it is in force", is_number=True),
    )),
    "policy-matches": (fields.POLICY_MATCH, (
        PageColumn("name", "Name", fixed=True),
        PageColumn("type", "Type", "text"),
        PageColumn("in_force", "In force", needs=("in_force", "rival")),
        PageColumn("rival", "In force instead"),
        PageColumn("reason", "Why", sort=None),
        PageColumn("messages_ready", "Ready", "number"),
        PageColumn("message_bytes_ready", "Bytes ready", "bytes"),
        PageColumn("fill_percent", "Fill", title="Usage of the nearest limit"),
    )),
    "jobs": (fields.JOB, (
        _VHOST,
        PageColumn("id", "Job", sort="kind", needs=("id", "kind"), fixed=True),
        PageColumn("queue", "Queue"),
        PageColumn("state", "State", needs=("state", "error")),
        PageColumn("scanned", "Progress", key="progress", sort=None,
                   needs=("scanned", "options", "first_offset", "next_offset", "end_offset")),
        PageColumn("returned", "Done", "number", "Messages that were returned, moved or replayed"),
        PageColumn("left_count", "Left", "number", "Messages that were left where they are"),
        PageColumn("user", "Action", key="action", sort=None, fixed=True),
        PageColumn("error", "Reason"),
        PageColumn("user", "User", "name"),
        PageColumn("created", "Begun", "ago"),
        PageColumn("finished", "Ended", "ago"),
    )),
    "readers": (fields.READER, (
        PageColumn("name", "Name", "text"),
        PageColumn("vhost", "Virtual host", title="Its name, or a pattern"),
        PageColumn("queue", "Queue", title="Its name, or a pattern"),
        PageColumn("created", "Made", "time"),
        PageColumn("seen", "Seen", "time", "When its query was seen last"),
        PageColumn("held_bytes", "Kept", "bytes"),
    )),
    "consumer-names": (fields.CONSUMER_NAME, (
        PageColumn("name", "Name", "text"),
        PageColumn("next_offset", "Goes on with", "exact"),
        PageColumn("lag", "Behind", "exact"),
        PageColumn("missed", "Missed", "exact"),
        PageColumn("changed", "Changed", "time"),
        PageColumn("active", "Active consumer"),
        PageColumn("waiting", "Waiting", "exact"),
    )),
}
# fmt: on


def lists_script() -> bytes:
    """Return the module ui/parts/lists.js: the columns of all lists, and the exchange types."""
    described = {name: [_described(table, column) for column in columns] for name, (table, columns) in LISTS.items()}
    types = json.dumps([*EXCHANGE_TYPES])
    return f"export const LISTS = {json.dumps(described)};\nexport const EXCHANGE_TYPES = {types};\n".encode()


def _described(table: Table, column: PageColumn) -> dict[str, Any]:
    """Return a column for the pages: as in Column of ui/parts/table.js, with the path and the form of its value."""
    path, is_number = column.path, column.is_number or column.form in _NUMBERS
    text = next((field.text for field in table if field.name == path), "") if is_number else ""
    return {
        "key": column.key or path,
        "label": column.label,
        "path": path.split("."),
        "form": column.form,
        "title": column.title or (text if column.form not in ("", "ago") else "") or None,
        "sort": path if column.sort == "" else column.sort,
        "fields": column.needs or [path],
        "numeric": is_number,
        "hidden": column.hidden,
        "fixed": column.fixed,
    }
