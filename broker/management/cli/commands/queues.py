"""Commands for queues, exchanges and bindings."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Container
from typing import Any, Final

from leveret.broker.management.cli.command import (
    DEFAULT_TIMEOUT,
    MONITORING,
    QUEUES,
    CommandContext,
    Outcome,
    Result,
    ResultRows,
    command,
    ok_result,
    selected_columns,
)
from leveret.broker.management.cli.command_errors import (
    USAGE,
    ApiFault,
    RequestTimeout,
    Unreachable,
    bad_argument,
    failed,
)
from leveret.broker.management.cli.command_line import HEADERS, TIMEOUT, VHOST, Argument, option
from leveret.broker.management.cli.printing import ProgressLine
from leveret.broker.management.cli.selectable_columns import columns_query, listing, table_columns, to_rows
from leveret.broker.management.fields import BINDING, EXCHANGE, QUEUE

# Purging shows progress from this number of ready messages on.
_MANY: Final = 10_000
_POLL_INTERVAL: Final = 0.2
_QUEUE_DEFAULT: Final = ("name", "messages")
# Fields that the API returns without statistics: cheap to request, and in RabbitMQ always up to date.
_WITHOUT_STATISTICS: Final = frozenset(
    ("arguments", "auto_delete", "durable", "exclusive", "name", "node", "type", "vhost")
)
_DOWN: Final = frozenset(("crashed", "down", "stopped", "minority"))


def _ready(find: Callable[..., Any], vhost: str, name: str) -> int | None:
    """Return the number of ready messages of a queue, None if the queue does not exist."""
    found = find("queues", vhost, name, columns="name,messages_ready")
    return None if found is None else int(found.get("messages_ready", 0))


def _delete_banner(context: CommandContext) -> str:
    conditions = [f"if queue is {word[3:]}" for word in ("if-empty", "if-unused") if context.flag(word)]
    condition = f" {' and '.join(conditions)}" if conditions else ""
    return f"Deleting queue '{context.arguments[0]}' on vhost '{context.vhost}'{condition} ..."


@command(
    "delete_queue",
    QUEUES,
    "Deletes a queue",
    (
        VHOST,
        Argument("<queue_name>", "the queue's name"),
        option("if-empty", "delete only if no message is ready for delivery"),
        option("if-unused", "delete only if the queue has no consumers"),
        TIMEOUT,
    ),
    banner=_delete_banner,
)
def _delete(context: CommandContext) -> Result:
    (name,) = context.arguments
    ready = _ready(context.api.find, context.vhost, name)
    if ready is None:
        raise failed("Queue not found", USAGE)
    conditions = {name: True for name in ("if-empty", "if-unused") if context.flag(name)}
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


@command(
    "purge_queue",
    QUEUES,
    "Removes all ready messages from a queue",
    (VHOST, Argument("<queue>", "the queue's name; unacknowledged messages are kept"), TIMEOUT),
    banner="Purging queue '{0}' in vhost '{context.vhost}' ...",
    timeout=None,
)
def _purge(context: CommandContext) -> Result:
    (name,) = context.arguments
    ready = _ready(context.api.find, context.vhost, name)
    if ready is None:
        raise failed("not_found")
    with ProgressLine("Purging", ready, silent=ready < _MANY or context.silent) as progress:
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


_QUEUE_COLUMNS: Final = table_columns(QUEUE)


def _list_banner(context: CommandContext) -> str:
    timeout = float(context.integer("timeout", DEFAULT_TIMEOUT))
    return f"Timeout: {timeout} seconds ...\nListing queues for vhost {context.vhost} ..."


@command(
    "list_queues",
    MONITORING,
    "Lists queues and their properties",
    (
        VHOST,
        option("online", "list only queues that are available"),
        option("offline", "list only queues that are not available"),
        option("local", "list queues of this node, which are all queues"),
        HEADERS,
        Argument("[<column>, ...]", columns=_QUEUE_COLUMNS),
        TIMEOUT,
    ),
    banner=_list_banner,
)
def _list_queues(context: CommandContext) -> ResultRows:
    names = selected_columns(context.arguments, _QUEUE_DEFAULT)
    found = _load_queues(context, names)
    if context.flag("offline") and not (context.flag("online") or context.flag("local")):
        found = [each for each in found if each.get("state") in _DOWN]
    return to_rows(_QUEUE_COLUMNS, names, found)


def _load_queues(context: CommandContext, names: tuple[str, ...]) -> list[dict[str, Any]]:
    paths = columns_query(_QUEUE_COLUMNS, names)
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


listing(
    "list_exchanges",
    MONITORING,
    "Lists exchanges",
    EXCHANGE,
    ("name", "type"),
    resource="exchanges",
    banner="Listing exchanges for vhost {context.vhost} ...",
    before=(VHOST, HEADERS),
)


listing(
    "list_bindings",
    MONITORING,
    "Lists all bindings on a vhost",
    BINDING,
    tuple(table_columns(BINDING)),
    resource="bindings",
    banner="Listing bindings for vhost {context.vhost}...",
    before=(VHOST, HEADERS),
)


_ARGUMENT: Final = option(
    "argument", "an argument, such as x-max-length=1000; the value is JSON, or else text; may be repeated"
)
_ENDS: Final = (
    Argument("<exchange>", "the source"),
    Argument("<queue>", "the destination: a queue, or an exchange with --to-exchange"),
    Argument("[routing_key]", "the routing key; default: an empty one"),
    option("to-exchange", "the destination is an exchange"),
    _ARGUMENT,
)


def parse_pairs(context: CommandContext, option: str, numbers: Container[str] | None = None) -> dict[str, Any]:
    """Return the values of an option that adds up, by name: JSON, or else text.

    Args:
        numbers: Names whose values are JSON, all others are text; None for any.
    Raises:
        UsageFault: it is not `<name>=<value>`.
    """
    found = {}
    for line in context.text(option).splitlines():
        name, equals, value = line.partition("=")
        if not (name and equals):
            raise bad_argument(f"--{option} takes <name>=<value>, not {line}")
        found[name] = _value(value) if numbers is None or name in numbers else value
    return found


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


@command(
    "declare_queue",
    QUEUES,
    "Declares a queue, durable unless --transient is given",
    (
        VHOST,
        Argument("<queue>", "the queue's name"),
        option("type", "classic, quorum or stream; default: that of the virtual host"),
        option("transient", "the queue does not survive a restart"),
        option("auto-delete", "the queue is deleted when its last consumer has gone"),
        _ARGUMENT,
        TIMEOUT,
    ),
    banner="Declaring queue '{0}' in vhost '{context.vhost}' ...",
)
def _declare_queue(context: CommandContext) -> Result:
    arguments = parse_pairs(context, "argument")
    if "type" in context.options:
        arguments["x-queue-type"] = context.text("type")
    _put(context, "queues", arguments)
    return ok_result(context)


@command(
    "declare_exchange",
    QUEUES,
    "Declares an exchange, durable unless --transient is given",
    (
        VHOST,
        Argument("<exchange>", "the exchange's name"),
        Argument("[type]", "direct, fanout, topic, headers, or another type of exchange; default: direct"),
        option("transient", "the exchange does not survive a restart"),
        option("auto-delete", "the exchange is deleted when its last binding has gone"),
        option("internal", "clients cannot publish to the exchange"),
        _ARGUMENT,
        TIMEOUT,
    ),
    banner="Declaring exchange '{0}' in vhost '{context.vhost}' ...",
)
def _declare_exchange(context: CommandContext) -> Result:
    name_of_type = context.arguments[1] if len(context.arguments) > 1 else "direct"
    arguments = parse_pairs(context, "argument")
    _put(context, "exchanges", arguments, type=name_of_type, internal=context.flag("internal"))
    return ok_result(context)


def _put(context: CommandContext, resource: str, arguments: dict[str, Any], **more: Any) -> None:
    body = {
        "durable": not context.flag("transient"),
        "auto_delete": context.flag("auto-delete"),
        "arguments": arguments,
        **more,
    }
    try:
        context.api.put(resource, context.vhost, context.arguments[0], body=body)
    except ApiFault as fault:
        raise failed(fault.reason) from fault


@command(
    "delete_exchange",
    QUEUES,
    "Deletes an exchange with its bindings",
    (
        VHOST,
        Argument("<exchange>", "the exchange's name"),
        option("if-unused", "delete only if nothing is bound to the exchange"),
        TIMEOUT,
    ),
    banner="Deleting exchange '{0}' in vhost '{context.vhost}' ...",
)
def _delete_exchange(context: CommandContext) -> Result:
    condition = {"if-unused": True} if context.flag("if-unused") else {}
    try:
        context.api.request("DELETE", ("exchanges", context.vhost, context.arguments[0]), query=condition)
    except ApiFault as fault:
        raise failed("Exchange not found" if fault.not_found else fault.reason) from fault
    return ok_result(context)


def _bindings(context: CommandContext) -> tuple[str, ...]:
    """Return the path of the bindings between the exchange and the destination."""
    exchange, destination = context.arguments[:2]
    kind = "e" if context.flag("to-exchange") else "q"
    return "bindings", context.vhost, "e", exchange, kind, destination


def _named_ends(context: CommandContext) -> tuple[str, str, str]:
    exchange, destination = context.arguments[:2]
    return exchange, "exchange" if context.flag("to-exchange") else "queue", destination


def _ends(context: CommandContext) -> str:
    exchange, kind, destination = _named_ends(context)
    return f"exchange '{exchange}' to {kind} '{destination}' in vhost '{context.vhost}'"


@command(
    "bind",
    QUEUES,
    "Binds a queue or an exchange to an exchange",
    (VHOST, *_ENDS, TIMEOUT),
    banner=lambda context: f"Binding {_ends(context)} ...",
)
def _bind(context: CommandContext) -> Result:
    body = {"routing_key": _routing_key(context), "arguments": parse_pairs(context, "argument")}
    try:
        context.api.post(*_bindings(context), body=body)
    except ApiFault as fault:
        exchange, kind, destination = _named_ends(context)
        missing = f"no exchange '{exchange}' or {kind} '{destination}' in vhost '{context.vhost}'"
        raise failed(missing if fault.not_found else fault.reason) from fault
    return ok_result(context)


@command(
    "unbind",
    QUEUES,
    "Removes a binding with this routing key and these arguments",
    (VHOST, *_ENDS, TIMEOUT),
    banner=lambda context: f"Unbinding {_ends(context)} ...",
)
def _unbind(context: CommandContext) -> Result:
    wanted = _routing_key(context), parse_pairs(context, "argument")
    found = context.api.find(*_bindings(context)) or []
    keys = [each["properties_key"] for each in found if (each["routing_key"], each["arguments"]) == wanted]
    if not keys:
        raise failed(f"there is no such binding: {_ends(context)} with routing key '{wanted[0]}'")
    context.api.delete(*_bindings(context), keys[0])
    return ok_result(context)


def _routing_key(context: CommandContext) -> str:
    return context.arguments[2] if len(context.arguments) > 2 else ""
