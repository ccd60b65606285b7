"""The command list_losses: messages lost by queues and exchanges. RabbitMQ has no such command."""

from __future__ import annotations

from typing import Any, Final

from leveret.broker.management.cli.columns import Column, field, fields, selected_columns, to_rows, with_columns
from leveret.broker.management.cli.command import Command, CommandContext, ResultRows
from leveret.broker.management.cli.faults import ApiFault, UsageFault, failed

_DAY: Final = 86_400
_REASONS: Final = ("maxlen", "expired", "rejected", "delivery_limit", "purged", "deleted")


def _sum(name: str) -> Column:
    return field(name, lambda counts: sum(counts.values()))


COLUMNS: Final[dict[str, Column]] = {
    **fields("kind", "name", "state", "lost"),
    **{reason: field(f"dropped.{reason}") for reason in _REASONS},
    **fields("refused", "refused_told"),
    **{name: _sum(name) for name in ("dead_lettered", "dead_letters_lost", "unroutable")},
    **fields("since", "deleted_at"),
}
DEFAULT: Final = tuple(name for name in COLUMNS if name not in ("since", "deleted_at"))


def _list(context: CommandContext) -> ResultRows:
    age = context.integer("age", 0) or None
    try:
        found: list[dict[str, Any]] = context.api.get("losses", context.vhost, age=age)
    except ApiFault as fault:
        raise failed(_reason(context) if fault.not_found else fault.reason) from fault
    # With an age, the counts of that period replace those since the start.
    return to_rows(
        COLUMNS, selected_columns(context.arguments, DEFAULT), [{**each, **each.get("window", {})} for each in found]
    )


def _reason(context: CommandContext) -> str:
    if context.api.find("vhosts", context.vhost, columns="name") is None:
        return f"Virtual host '{context.vhost}' does not exist"
    return "the broker does not support list_losses: it is not Leveret"


def _check(context: CommandContext) -> None:
    if not 0 <= context.integer("age", 0) <= _DAY:
        raise UsageFault(f"The age must be 1 to {_DAY} seconds")


COMMANDS: Final = (
    with_columns(
        COLUMNS,
        Command(
            name="list_losses",
            section="Queues",
            summary="Lists queues and exchanges that lost messages, with the reasons; largest losses first",
            usage="[--vhost <vhost>] [--age <seconds>] [--no-table-headers] [<column> ...] [--timeout <timeout>]",
            run=_list,
            options=("age", "table-headers"),
            banner=lambda context: f"Listing losses in vhost {context.vhost} ...",
            check=_check,
            explanations=(("--age", f"count only losses of the last <seconds> seconds; maximum {_DAY}"),),
        ),
    ),
)
