"""The commands for named readers of streaming queries. RabbitMQ has no such commands."""

from __future__ import annotations

from typing import Any, Final

from leveret.broker.management.cli.columns import Column, fields, to_rows
from leveret.broker.management.cli.command import Command, CommandContext, Outcome, Result, ResultRows
from leveret.broker.management.cli.faults import ApiFault, failed

_SECTION: Final = "Queues"
_COLUMNS: Final[dict[str, Column]] = fields("name", "vhost", "queue", "created", "seen", "held_bytes")


def _list(context: CommandContext) -> ResultRows:
    return to_rows(_COLUMNS, tuple(_COLUMNS), _ask(context, "GET"))


def _delete(context: CommandContext) -> Result:
    (name,) = context.arguments
    _ask(context, "DELETE")
    return Outcome(f"Reader '{name}' is deleted", {"name": name, "result": "deleted"})


def _ask(context: CommandContext, method: str) -> Any:
    try:
        return context.api.request(method, ("readers", *context.arguments[:1]))
    except ApiFault as fault:
        if fault.not_found and context.arguments:
            raise failed(f"there is no reader '{context.arguments[0]}'") from fault
        if fault.not_found:
            raise failed("the broker does not support commands for readers: it is not Leveret") from fault
        raise failed(fault.reason) from fault


COMMANDS: Final = (
    Command(
        name="list_readers",
        section=_SECTION,
        summary="Lists the named readers of streaming queries: what they read, and what is kept for them",
        usage="[--no-table-headers] [--timeout <timeout>]",
        run=_list,
        options=("table-headers",),
        banner=lambda context: "Listing readers ...",
    ),
    Command(
        name="delete_reader",
        section=_SECTION,
        summary="Deletes a named reader of a streaming query: nothing is kept for it any more",
        usage="<name> [--timeout <timeout>]",
        run=_delete,
        min_arguments=1,
        max_arguments=1,
        banner=lambda context: f"Deleting reader '{context.arguments[0]}' ...",
        explanations=(("<name>", "the option reader of the query"),),
    ),
)
