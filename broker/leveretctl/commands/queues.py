"""Commands for queues, exchanges and bindings."""

from __future__ import annotations

import json
import threading
from collections.abc import Container, Iterator
from contextlib import closing, contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final

from leveret.broker.leveretctl.command import (
    DEFAULT_TIMEOUT,
    CommandContext,
    Outcome,
    Result,
    ResultRows,
    command,
    selected_columns,
)
from leveret.broker.leveretctl.command_errors import USAGE, ApiFault, NoAnswer, bad_argument, failed
from leveret.broker.leveretctl.command_line import HEADERS, TIMEOUT, VHOST, Argument, option
from leveret.broker.leveretctl.printing import ProgressLine
from leveret.broker.leveretctl.selectable_columns import columns_query, list_objects, table_columns, to_rows
from leveret.broker.management.fields import BINDING, EXCHANGE, QUEUE

if TYPE_CHECKING:
    from leveret.broker.leveretctl.api import Api

# Purging shows progress from this number of ready messages on.
_MANY: Final = 10_000
_POLL_INTERVAL: Final = 0.2
_QUEUE_DEFAULT: Final = ("name", "messages")
# Fields that the API returns without statistics: cheap to request, and in RabbitMQ always up to date.
_WITHOUT_STATISTICS: Final = frozenset(
    ("arguments", "auto_delete", "durable", "exclusive", "name", "node", "type", "vhost")
)
_DOWN: Final = frozenset(("crashed", "down", "stopped", "minority"))


def _ready(api: Api, vhost: str, name: str) -> int | None:
    """Return the number of ready messages of a queue, None if the queue does not exist."""
    found = api.find("queues", vhost, name, columns="name,messages_ready")
    return None if found is None else int(found.get("messages_ready", 0))


def _delete_banner(context: CommandContext, name: str) -> str:
    conditions = [f"if queue is {word[3:]}" for word in ("if-empty", "if-unused") if context.flag(word)]
    condition = f" {' and '.join(conditions)}" if conditions else ""
    return f"Deleting queue '{name}' on vhost '{context.vhost}'{condition} ..."


@command(
    (
        VHOST,
        Argument("<queue_name>", "the queue's name"),
        option("if-empty", "delete only if no message is ready for delivery"),
        option("if-unused", "delete only if the queue has no consumers"),
        TIMEOUT,
    ),
    banner=_delete_banner,
)
def delete_queue(context: CommandContext, name: str) -> Result:
    """Deletes a queue."""
    ready = _ready(context.api, context.vhost, name)
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
    (VHOST, Argument("<queue>", "the queue's name; unacknowledged messages are kept"), TIMEOUT),
    banner="Purging queue '{0}' in vhost '{context.vhost}' ...",
    timeout=None,
)
def purge_queue(context: CommandContext, name: str) -> None:
    """Removes all ready messages from a queue."""
    ready = _ready(context.api, context.vhost, name)
    if ready is None:
        raise failed("not_found")
    with _purge_progress(context, name, ready):
        context.api.delete("queues", context.vhost, name, "contents")


@contextmanager
def _purge_progress(context: CommandContext, name: str, ready: int) -> Iterator[None]:
    """Show how far a queue is purged, if anyone sees it: a thread asks the broker."""
    stopped = threading.Event()

    def poll() -> None:
        while not stopped.wait(_POLL_INTERVAL):
            # Only the progress bar depends on this request.
            with suppress(ApiFault, NoAnswer):
                progress.update(ready - (_ready(api, context.vhost, name) or 0))

    with (
        ProgressLine("Purging", ready, silent=ready < _MANY or context.silent) as progress,
        closing(context.api.with_timeout(2.0)) as api,
    ):
        thread = threading.Thread(target=poll, daemon=True)
        if progress.visible:
            thread.start()
        try:
            yield
        finally:
            stopped.set()
            if thread.is_alive():
                thread.join()


_QUEUE_COLUMNS: Final = table_columns(QUEUE)


def _list_banner(context: CommandContext, *columns: str) -> str:
    timeout = float(context.integer("timeout", DEFAULT_TIMEOUT))
    return f"Timeout: {timeout} seconds ...\nListing queues for vhost {context.vhost} ..."


@command(
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
def list_queues(context: CommandContext, *columns: str) -> ResultRows:
    """Lists queues and their properties."""
    names = selected_columns(columns, _QUEUE_DEFAULT)
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


_EXCHANGES: Final = table_columns(EXCHANGE)


@command(
    (VHOST, HEADERS, Argument("[<column> ...]", columns=_EXCHANGES), TIMEOUT),
    banner="Listing exchanges for vhost {context.vhost} ...",
)
def list_exchanges(context: CommandContext, *wanted: str) -> ResultRows:
    """Lists exchanges."""
    return list_objects(context, _EXCHANGES, wanted, ("name", "type"), "exchanges", context.vhost)


_BINDINGS: Final = table_columns(BINDING)


@command(
    (VHOST, HEADERS, Argument("[<column> ...]", columns=_BINDINGS), TIMEOUT),
    banner="Listing bindings for vhost {context.vhost}...",
)
def list_bindings(context: CommandContext, *wanted: str) -> ResultRows:
    """Lists all bindings on a vhost."""
    return list_objects(context, _BINDINGS, wanted, tuple(_BINDINGS), "bindings", context.vhost)


_ARGUMENT: Final = option(
    "argument", "an argument, such as x-max-length=1000; the value is JSON, or else text; may be repeated"
)
_BINDING: Final = (
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
def declare_queue(context: CommandContext, name: str) -> None:
    """Declares a queue, durable unless --transient is given."""
    arguments = parse_pairs(context, "argument")
    if "type" in context.options:
        arguments["x-queue-type"] = context.text("type")
    _put(context, "queues", name, arguments)


@command(
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
def declare_exchange(context: CommandContext, name: str, kind: str = "direct") -> None:
    """Declares an exchange, durable unless --transient is given."""
    arguments = parse_pairs(context, "argument")
    _put(context, "exchanges", name, arguments, type=kind, internal=context.flag("internal"))


def _put(context: CommandContext, resource: str, name: str, arguments: dict[str, Any], **more: Any) -> None:
    kept = {"durable": not context.flag("transient"), "auto_delete": context.flag("auto-delete")}
    try:
        context.api.put(resource, context.vhost, name, body={**kept, "arguments": arguments, **more})
    except ApiFault as fault:
        raise failed(fault.reason) from fault


@command(
    (
        VHOST,
        Argument("<exchange>", "the exchange's name"),
        option("if-unused", "delete only if nothing is bound to the exchange"),
        TIMEOUT,
    ),
    banner="Deleting exchange '{0}' in vhost '{context.vhost}' ...",
    not_found="Exchange not found",
)
def delete_exchange(context: CommandContext, name: str) -> None:
    """Deletes an exchange with its bindings."""
    condition = {"if-unused": True} if context.flag("if-unused") else {}
    context.api.request("DELETE", ("exchanges", context.vhost, name), query=condition)


def _kind(context: CommandContext) -> str:
    return "exchange" if context.flag("to-exchange") else "queue"


def _path(context: CommandContext, exchange: str, destination: str) -> tuple[str, ...]:
    """Return the path of the bindings between the exchange and the destination."""
    return "bindings", context.vhost, "e", exchange, _kind(context)[0], destination


def _ends(context: CommandContext, exchange: str, destination: str, *_: str) -> str:
    return f"exchange '{exchange}' to {_kind(context)} '{destination}' in vhost '{context.vhost}'"


def _no_ends(context: CommandContext, exchange: str, destination: str, *_: str) -> str:
    return f"no exchange '{exchange}' or {_kind(context)} '{destination}' in vhost '{context.vhost}'"


@command((VHOST, *_BINDING, TIMEOUT), banner=lambda *given: f"Binding {_ends(*given)} ...", not_found=_no_ends)
def bind(context: CommandContext, exchange: str, destination: str, routing_key: str = "") -> None:
    """Binds a queue or an exchange to an exchange."""
    body = {"routing_key": routing_key, "arguments": parse_pairs(context, "argument")}
    context.api.post(*_path(context, exchange, destination), body=body)


@command((VHOST, *_BINDING, TIMEOUT), banner=lambda *given: f"Unbinding {_ends(*given)} ...")
def unbind(context: CommandContext, exchange: str, destination: str, routing_key: str = "") -> None:
    """Removes a binding with this routing key and these arguments."""
    wanted, path = (routing_key, parse_pairs(context, "argument")), _path(context, exchange, destination)
    found = context.api.find(*path) or []
    keys = [each["properties_key"] for each in found if (each["routing_key"], each["arguments"]) == wanted]
    if not keys:
        ends = _ends(context, exchange, destination)
        raise failed(f"there is no such binding: {ends} with routing key '{routing_key}'")
    context.api.delete(*path, keys[0])
