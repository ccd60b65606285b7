"""The commands list_queues, delete_queue and purge_queue."""

from __future__ import annotations

import threading
from collections.abc import Callable
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
from leveret.broker.management.cli.command import (
    DEFAULT_TIMEOUT,
    Command,
    CommandContext,
    Outcome,
    Result,
    ResultRows,
    ok_result,
)
from leveret.broker.management.cli.faults import USAGE, ApiFault, RequestTimeout, Unreachable, failed
from leveret.broker.management.cli.progress import ProgressLine
from leveret.broker.management.cli.terms import (
    Arguments,
    channel_identifier,
    compact_json,
    connection_identifier,
    queue_identifier,
)

SECTION: Final = "Queues"
# Purging shows progress from this number of ready messages on.
_MANY: Final = 10_000
_POLL_INTERVAL: Final = 0.2
DEFAULT: Final = ("name", "messages")
# Fields that the API returns without statistics: cheap to request, and in RabbitMQ always up to date.
_WITHOUT_STATISTICS: Final = frozenset(
    ("arguments", "auto_delete", "durable", "exclusive", "name", "node", "type", "vhost")
)
_DOWN: Final = frozenset(("crashed", "down", "stopped", "minority"))


def _ready(find: Callable[..., Any], vhost: str, name: str) -> int | None:
    """Return the number of ready messages of a queue, None if the queue does not exist."""
    found = find("queues", vhost, name, columns="name,messages_ready")
    return None if found is None else int(found.get("messages_ready", 0))


def _delete(context: CommandContext) -> Result:
    (name,) = context.arguments
    ready = _ready(context.api.find, context.vhost, name)
    if ready is None:
        raise failed("Queue not found", USAGE)
    conditions = {option: True for option in ("if-empty", "if-unused") if context.flag(option)}
    try:
        context.api.request("DELETE", ("queues", context.vhost, name), query=conditions)
    except ApiFault as fault:
        for phrase, text in (("not empty", "Queue is not empty"), ("in use", "Queue is in use")):
            if fault.status == 400 and phrase in fault.reason:
                raise failed(text, USAGE) from fault
        if fault.not_found:
            raise failed("Queue not found", USAGE) from fault
        raise
    text = f"Queue was successfully deleted with {ready} ready messages"
    return Outcome(text, {"message": text})


def _delete_banner(context: CommandContext) -> str:
    conditions = [f"if queue is {word[3:]}" for word in ("if-empty", "if-unused") if context.flag(word)]
    condition = f" {' and '.join(conditions)}" if conditions else ""
    return f"Deleting queue '{context.arguments[0]}' on vhost '{context.vhost}'{condition} ..."


def _purge(context: CommandContext) -> Result:
    (name,) = context.arguments
    ready = _ready(context.api.find, context.vhost, name)
    if ready is None:
        raise failed("not_found")
    silent = ready < _MANY or context.flag("silent") or context.flag("quiet")
    with ProgressLine("Purging", ready, silent=silent) as progress:
        watch = _PurgeProgress(context, name, ready, progress)
        try:
            context.api.delete("queues", context.vhost, name, "contents")
        finally:
            watch.stop()
    return ok_result(context)


class _PurgeProgress:
    """Thread that polls a queue while it is purged and updates the progress bar, if that is visible."""

    def __init__(self, context: CommandContext, name: str, ready: int, progress: ProgressLine) -> None:
        self._api = context.api.with_timeout(2.0)
        self._queue = context.vhost, name
        self._ready = ready
        self._progress = progress
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._poll, daemon=True)
        if progress.visible:
            self._thread.start()

    def stop(self) -> None:
        """Stop polling and close the connection."""
        self._stopped.set()
        if self._thread.is_alive():
            self._thread.join()
        self._api.close()

    def _poll(self) -> None:
        while not self._stopped.wait(_POLL_INTERVAL):
            try:
                left = _ready(self._api.find, *self._queue)
            except (ApiFault, RequestTimeout, Unreachable):
                # Only the progress bar depends on this request.
                continue
            self._progress.update(self._ready - (left or 0))


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
    # Not in RabbitMQ.
    "length_counts": field("fill.length_counts"),
    **fields("oldest_ready_age", "oldest_unacked_age"),
    # In RabbitMQ 4.3, for quorum queues.
    **fields("delayed_retry", "messages_delayed", "next_delayed_at", "last_delayed_at"),
}


def _list_banner(context: CommandContext) -> str:
    timeout = float(context.integer("timeout", DEFAULT_TIMEOUT))
    return f"Timeout: {timeout} seconds ...\nListing queues for vhost {context.vhost} ..."


def _list_queues(context: CommandContext) -> ResultRows:
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
    Command(
        name="delete_queue",
        section=SECTION,
        summary="Deletes a queue",
        usage="[--vhost <vhost>] <queue_name> [--if-empty|-e] [--if-unused|-u] [--timeout <timeout>]",
        run=_delete,
        min_arguments=1,
        max_arguments=1,
        options=("if-empty", "if-unused"),
        banner=_delete_banner,
        explanations=(
            ("<queue_name>", "the queue's name"),
            ("--if-empty", "delete only if no message is ready for delivery"),
            ("--if-unused", "delete only if the queue has no consumers"),
        ),
    ),
    Command(
        name="purge_queue",
        section=SECTION,
        summary="Removes all ready messages from a queue",
        usage="[--vhost <vhost>] <queue> [--timeout <timeout>]",
        run=_purge,
        min_arguments=1,
        max_arguments=1,
        timeout=None,
        banner=lambda context: f"Purging queue '{context.arguments[0]}' in vhost '{context.vhost}' ...",
        explanations=(("<queue>", "the queue's name; unacknowledged messages are kept"),),
    ),
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
            run=_list_queues,
            options=("online", "offline", "local", "table-headers"),
            banner=_list_banner,
            explanations=(
                ("--online", "list only queues that are available"),
                ("--offline", "list only queues that are not available"),
                ("--local", "list queues of this node, which are all queues"),
            ),
        ),
    ),
)
