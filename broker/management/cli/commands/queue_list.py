"""The command list_queues."""

from __future__ import annotations

from typing import Any, Final

from leveret.broker.management.cli.columns import (
    Column,
    columns_query,
    empty_column,
    field,
    fields,
    selected_columns,
    to_rows,
    with_columns,
)
from leveret.broker.management.cli.command import DEFAULT_TIMEOUT, Command, CommandContext, ResultRows
from leveret.broker.management.cli.terms import (
    Arguments,
    channel_identifier,
    compact_json,
    connection_identifier,
    queue_identifier,
)

DEFAULT: Final = ("name", "messages")
# Fields that the API returns without statistics: cheap to request, and in RabbitMQ always up to date.
_WITHOUT_STATISTICS: Final = frozenset(
    ("arguments", "auto_delete", "durable", "exclusive", "name", "node", "type", "vhost")
)
_DOWN: Final = frozenset(("crashed", "down", "stopped", "minority"))


def _identifier(found: dict[str, Any]) -> Any:
    return queue_identifier(found.get("node", ""), found.get("vhost", ""), found["name"])


def _exclusive_consumer(found: dict[str, Any]) -> Any:
    for consumer in found.get("consumer_details") or ():
        if consumer.get("exclusive"):
            return channel_identifier(consumer["channel_details"]["name"])
    return None


def _count(found: Any) -> Any:
    return found or 0


COLUMNS: Final[dict[str, Column]] = {
    **fields("name", "durable", "auto_delete"),
    "arguments": field("arguments", Arguments),
    "policy": field("policy"),
    "operator_policy": field("operator_policy"),
    "effective_policy_definition": field("effective_policy_definition", lambda found: compact_json(found or {})),
    "pid": Column(_identifier, ("name", "vhost", "node")),
    "owner_pid": field("owner_pid_details.name", connection_identifier),
    "exclusive": field("exclusive"),
    "exclusive_consumer_pid": Column(_exclusive_consumer, ("consumer_details",)),
    **fields("exclusive_consumer_tag", "messages_ready", "messages_unacknowledged", "messages"),
    **fields("messages_ready_ram", "messages_unacknowledged_ram", "messages_ram", "messages_persistent"),
    **fields("message_bytes", "message_bytes_ready", "message_bytes_unacknowledged", "message_bytes_ram"),
    **fields("message_bytes_persistent", "head_message_timestamp"),
    "disk_reads": Column(
        lambda found: _count((found.get("message_stats") or {}).get("disk_reads")), ("message_stats",)
    ),
    "disk_writes": Column(
        lambda found: _count((found.get("message_stats") or {}).get("disk_writes")), ("message_stats",)
    ),
    **fields("consumers", "consumer_utilisation", "consumer_capacity", "memory"),
    "slave_pids": empty_column(),
    "synchronised_slave_pids": empty_column(),
    **fields("state", "type", "leader", "members", "online"),
}


def _banner(context: CommandContext) -> str:
    timeout = float(context.integer("timeout", DEFAULT_TIMEOUT))
    return f"Timeout: {timeout} seconds ...\nListing queues for vhost {context.vhost} ..."


def _list(context: CommandContext) -> ResultRows:
    names = selected_columns(context.arguments, DEFAULT)
    found = _load_queues(context, names)
    if context.flag("offline") and not (context.flag("online") or context.flag("local")):
        found = [each for each in found if each.get("state") in _DOWN]
    return to_rows(COLUMNS, names, found)


def _load_queues(context: CommandContext, names: tuple[str, ...]) -> list[dict[str, Any]]:
    paths = columns_query(COLUMNS, names)
    if context.flag("offline"):
        paths += ",state"
    if _WITHOUT_STATISTICS.issuperset(paths.split(",")):
        queues = context.api.find("queues", context.vhost, columns=paths, disable_stats=True)
    elif "exclusive_consumer_pid" in names:
        # The API lists consumers only for single queues.
        listed = context.api.find("queues", context.vhost, columns="name") or []
        single = (context.api.find("queues", context.vhost, each["name"]) for each in listed)
        queues = [each for each in single if each is not None]
    else:
        queues = context.api.find("queues", context.vhost, columns=paths)
    # As in rabbitmqctl, an unknown virtual host has no queues.
    return queues or []


COMMANDS: Final = (
    with_columns(
        COLUMNS,
        Command(
            name="list_queues",
            section="Monitoring, observability and health checks",
            summary="Lists queues and their properties",
            usage=(
                "[--vhost <vhost>] [--online] [--offline] [--local] [--no-table-headers] [<column>, ...]"
                " [--timeout <timeout>]"
            ),
            run=_list,
            options=("online", "offline", "local", "table-headers"),
            banner=_banner,
            explanations=(
                ("--online", "list only queues that are available"),
                ("--offline", "list only queues that are not available"),
                ("--local", "list queues of this node, which are all queues"),
            ),
        ),
    ),
)
