"""Commands that declare, delete and bind queues and exchanges."""

from __future__ import annotations

import json
from collections.abc import Container
from typing import Any, Final

from leveret.broker.management.cli.command import Command, CommandContext, Result, ok_result
from leveret.broker.management.cli.faults import ApiFault, bad_argument, failed

SECTION: Final = "Queues"
_ARGUMENT_HELP: Final = (
    "--argument <name>=<value>",
    "an argument, such as x-max-length=1000; the value is JSON, or else text; may be repeated",
)
_NAMES_OF_TYPES: Final = "direct, fanout, topic, headers, or another type of exchange"


def parse_pairs(context: CommandContext, option: str, numbers: Container[str] | None = None) -> dict[str, Any]:
    """Return the values of an option that adds up, by name: JSON, or else text.

    Args:
        context: The command.
        option: Its option.
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
    except ValueError:
        return text


def _declare_queue(context: CommandContext) -> Result:
    arguments = parse_pairs(context, "argument")
    if "type" in context.options:
        arguments["x-queue-type"] = context.text("type")
    _put(context, "queues", arguments)
    return ok_result(context)


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


def _bind(context: CommandContext) -> Result:
    body = {"routing_key": _routing_key(context), "arguments": parse_pairs(context, "argument")}
    try:
        context.api.post(*_bindings(context), body=body)
    except ApiFault as fault:
        raise failed(_missing_end(context) if fault.not_found else fault.reason) from fault
    return ok_result(context)


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


def _missing_end(context: CommandContext) -> str:
    kind = "exchange" if context.flag("to-exchange") else "queue"
    return f"no exchange '{context.arguments[0]}' or {kind} '{context.arguments[1]}' in vhost '{context.vhost}'"


def _ends(context: CommandContext) -> str:
    kind = "exchange" if context.flag("to-exchange") else "queue"
    exchange, destination = context.arguments[:2]
    return f"exchange '{exchange}' to {kind} '{destination}' in vhost '{context.vhost}'"


_BINDING_HELP: Final = (
    ("<exchange>", "the source"),
    ("<queue>", "the destination: a queue, or an exchange with --to-exchange"),
    ("[routing_key]", "the routing key; default: an empty one"),
    ("--to-exchange", "the destination is an exchange"),
    _ARGUMENT_HELP,
)

COMMANDS: Final = (
    Command(
        name="declare_queue",
        section=SECTION,
        summary="Declares a queue, durable unless --transient is given",
        usage=(
            "[--vhost <vhost>] <queue> [--type classic|quorum|stream] [--transient] [--auto-delete]"
            " [--argument <name>=<value>] [--timeout <timeout>]"
        ),
        run=_declare_queue,
        min_arguments=1,
        max_arguments=1,
        options=("type", "transient", "auto-delete", "argument"),
        banner=lambda context: f"Declaring queue '{context.arguments[0]}' in vhost '{context.vhost}' ...",
        explanations=(
            ("<queue>", "the queue's name"),
            ("--type <type>", "classic, quorum or stream; default: that of the virtual host"),
            ("--transient", "the queue does not survive a restart"),
            ("--auto-delete", "the queue is deleted when its last consumer has gone"),
            _ARGUMENT_HELP,
        ),
    ),
    Command(
        name="declare_exchange",
        section=SECTION,
        summary="Declares an exchange, durable unless --transient is given",
        usage=(
            "[--vhost <vhost>] <exchange> [type] [--transient] [--auto-delete] [--internal]"
            " [--argument <name>=<value>] [--timeout <timeout>]"
        ),
        run=_declare_exchange,
        min_arguments=1,
        max_arguments=2,
        options=("transient", "auto-delete", "internal", "argument"),
        banner=lambda context: f"Declaring exchange '{context.arguments[0]}' in vhost '{context.vhost}' ...",
        explanations=(
            ("<exchange>", "the exchange's name"),
            ("[type]", f"{_NAMES_OF_TYPES}; default: direct"),
            ("--transient", "the exchange does not survive a restart"),
            ("--auto-delete", "the exchange is deleted when its last binding has gone"),
            ("--internal", "clients cannot publish to the exchange"),
            _ARGUMENT_HELP,
        ),
    ),
    Command(
        name="delete_exchange",
        section=SECTION,
        summary="Deletes an exchange with its bindings",
        usage="[--vhost <vhost>] <exchange> [--if-unused|-u] [--timeout <timeout>]",
        run=_delete_exchange,
        min_arguments=1,
        max_arguments=1,
        options=("if-unused",),
        banner=lambda context: f"Deleting exchange '{context.arguments[0]}' in vhost '{context.vhost}' ...",
        explanations=(
            ("<exchange>", "the exchange's name"),
            ("--if-unused", "delete only if nothing is bound to the exchange"),
        ),
    ),
    Command(
        name="bind",
        section=SECTION,
        summary="Binds a queue or an exchange to an exchange",
        usage=(
            "[--vhost <vhost>] <exchange> <queue> [routing_key] [--to-exchange] [--argument <name>=<value>]"
            " [--timeout <timeout>]"
        ),
        run=_bind,
        min_arguments=2,
        max_arguments=3,
        options=("to-exchange", "argument"),
        banner=lambda context: f"Binding {_ends(context)} ...",
        explanations=_BINDING_HELP,
    ),
    Command(
        name="unbind",
        section=SECTION,
        summary="Removes a binding with this routing key and these arguments",
        usage=(
            "[--vhost <vhost>] <exchange> <queue> [routing_key] [--to-exchange] [--argument <name>=<value>]"
            " [--timeout <timeout>]"
        ),
        run=_unbind,
        min_arguments=2,
        max_arguments=3,
        options=("to-exchange", "argument"),
        banner=lambda context: f"Unbinding {_ends(context)} ...",
        explanations=_BINDING_HELP,
    ),
)
