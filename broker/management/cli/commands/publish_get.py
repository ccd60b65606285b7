"""The commands publish and get, for single messages."""

from __future__ import annotations

from typing import Any, Final

from leveret.broker.management.cli.command import Command, CommandContext, Outcome, Result, ResultRows
from leveret.broker.management.cli.commands.topology import parse_pairs
from leveret.broker.management.cli.faults import ApiFault, failed
from leveret.broker.management.cli.terms import compact_json

SECTION: Final = "Queues"
_PERSISTENT: Final = 2
#: Properties that are numbers.
_NUMBERS: Final = ("delivery_mode", "priority", "timestamp")
#: The default exchange in paths of the API, where no name may be empty.
_DEFAULT_EXCHANGE: Final = "amq.default"
_COLUMNS: Final = ("exchange", "routing_key", "redelivered", "properties", "payload")


def _publish(context: CommandContext) -> Result:
    arguments = context.arguments
    properties = {"delivery_mode": _PERSISTENT, **parse_pairs(context, "property", _NUMBERS)}
    if "header" in context.options:
        properties["headers"] = parse_pairs(context, "header")
    body = {
        "routing_key": arguments[0],
        "payload": arguments[1] if len(arguments) > 1 else context.stdin.read(),
        "payload_encoding": "string",
        "properties": properties,
    }
    exchange = context.text("exchange")
    try:
        answer = context.api.post("exchanges", context.vhost, exchange or _DEFAULT_EXCHANGE, "publish", body=body)
    except ApiFault as fault:
        text = f"no exchange '{exchange}' in vhost '{context.vhost}'" if fault.not_found else fault.reason
        raise failed(text) from fault
    if not answer["routed"]:
        raise failed(f"the message was not routed: no queue is bound for routing key '{arguments[0]}'")
    return Outcome("Message published", {"node": context.node, "result": "ok"} if context.json else None)


def _get(context: CommandContext) -> Result:
    body = {
        "count": context.integer("count", 1),
        "ackmode": "ack_requeue_false" if context.flag("ack") else "ack_requeue_true",
        "encoding": "auto",
    }
    (queue,) = context.arguments
    try:
        found: list[dict[str, Any]] = context.api.post("queues", context.vhost, queue, "get", body=body)
    except ApiFault as fault:
        raise failed(f"no queue '{queue}' in vhost '{context.vhost}'" if fault.not_found else fault.reason) from fault
    rows = [{**each, "properties": compact_json(each["properties"] or {})} for each in found]
    return ResultRows(_COLUMNS, rows, json=found)


COMMANDS: Final = (
    Command(
        name="publish",
        section=SECTION,
        summary="Publishes a message; fails if no queue gets it",
        usage=(
            "[--vhost <vhost>] <routing_key> [body] [--exchange <exchange>] [--property <name>=<value>]"
            " [--header <name>=<value>] [--timeout <timeout>]"
        ),
        run=_publish,
        min_arguments=1,
        max_arguments=2,
        options=("exchange", "property", "header"),
        banner=lambda context: f"Publishing a message in vhost '{context.vhost}' ...",
        explanations=(
            ("<routing_key>", "the routing key; for the default exchange, the queue's name"),
            ("[body]", "the body; default: what stands on the standard input"),
            ("--exchange <exchange>", "the exchange; default: the default exchange"),
            (
                "--property <name>=<value>",
                "a property, such as message_id=7 or priority=5; may be repeated. The message is persistent unless"
                " delivery_mode=1 is given",
            ),
            ("--header <name>=<value>", "a header; the value is JSON, or else text; may be repeated"),
        ),
    ),
    Command(
        name="get",
        section=SECTION,
        summary="Takes messages out of a queue and puts them back, or removes them with --ack",
        usage="[--vhost <vhost>] <queue> [--count <number>] [--ack] [--no-table-headers] [--timeout <timeout>]",
        run=_get,
        min_arguments=1,
        max_arguments=1,
        options=("count", "ack", "table-headers"),
        banner=lambda context: f"Getting messages of queue '{context.arguments[0]}' in vhost '{context.vhost}' ...",
        explanations=(
            ("<queue>", "the queue's name"),
            ("--count <number>", "maximum number of messages; default 1"),
            (
                "--ack",
                "remove them; otherwise they are returned as redelivered, while browse changes nothing",
            ),
        ),
    ),
)
