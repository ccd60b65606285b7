"""The command browse, which looks at the messages of a queue. RabbitMQ has no such command."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

from leveret.broker.management.cli.columns import Column, field, fields, selected_columns, to_rows, with_columns
from leveret.broker.management.cli.command import Command, CommandContext, Outcome, Result
from leveret.broker.management.cli.faults import ApiFault, CommandFault, UsageFault, failed
from leveret.broker.management.cli.filters import FILTER_HELP, read_conditions
from leveret.broker.management.cli.terms import compact_json

_COUNT: Final = 20
#: Messages per request.
_BATCH: Final = 500
#: Bytes of a payload that are shown.
_TRUNCATE: Final = 50_000


def _text(found: Any) -> str:
    """Return a text on one line."""
    return json.dumps(found, ensure_ascii=False)[1:-1] if isinstance(found, str) else str(found)


COLUMNS: Final[dict[str, Column]] = {
    **fields("place", "state", "age", "redelivered", "exchange", "routing_key", "payload_bytes"),
    "properties": field("properties", lambda found: compact_json(found or {})),
    "headers": field("properties.headers", compact_json),
    "payload": field("payload", _text),
    **fields("payload_encoding", "arrived", "due"),
}
DEFAULT: Final = ("place", "state", "age", "routing_key", "payload")


def _check(context: CommandContext) -> None:
    if context.integer("count", _COUNT) < 1:
        raise UsageFault("--count must be 1 or more")
    read_conditions(context.text("filter"))


def _run(context: CommandContext) -> Result:
    queue, *columns = context.arguments
    names = selected_columns(columns, DEFAULT)
    found: list[dict[str, Any]] = []
    unreadable = ""
    for page in _pages(context, queue):
        found += page["messages"]
        unreadable = page["unreadable"] or unreadable
    if context.json:
        return Outcome(json=found)
    rows = to_rows(COLUMNS, names, found)
    return rows._replace(footer=f"Some messages could not be read: {unreadable}") if unreadable else rows


def _pages(context: CommandContext, queue: str) -> Iterator[dict[str, Any]]:
    """Yield pages of messages, up to the wanted number of messages."""
    conditions = read_conditions(context.text("filter"))
    wanted = json.dumps(conditions) if conditions else None
    place: str | None = context.text("from") or None
    left = context.integer("count", _COUNT)
    while left > 0:
        query = {"from": place, "count": min(left, _BATCH), "filter": wanted, "truncate": _TRUNCATE}
        try:
            page = context.api.get("queues", context.vhost, queue, "browse", **query)
        except ApiFault as fault:
            raise _to_fault(context, queue, fault) from fault
        yield page
        left -= len(page["messages"])
        place = page["next"]
        if place is None:
            return


def _to_fault(context: CommandContext, queue: str, fault: ApiFault) -> CommandFault:
    if fault.not_found and fault.error == "Object Not Found":
        return failed("the broker does not support browse: it is not Leveret")
    if fault.not_found:
        return failed(f"no queue '{queue}' in vhost '{context.vhost}'")
    return failed(fault.reason)


_COMMAND: Final = with_columns(
    COLUMNS,
    Command(
        name="browse",
        section="Queues",
        summary="Shows messages of a queue, ready and unacked, and changes nothing",
        usage=(
            "<queue> [--vhost <vhost>] [--from <place>] [--count <number>] [--filter <condition>]"
            " [--no-table-headers] [<column> ...] [--timeout <timeout>]"
        ),
        run=_run,
        min_arguments=1,
        options=("from", "count", "filter", "table-headers"),
        banner=lambda context: f"Messages of queue '{context.arguments[0]}' in vhost '{context.vhost}' ...",
        explanations=(
            ("<queue>", "the queue's name"),
            ("--from <place>", "where to begin: the column place of an earlier message; default: the oldest message"),
            ("--count <number>", f"maximum number of messages; default {_COUNT}"),
            FILTER_HELP,
        ),
    ),
)


def _check_all(context: CommandContext) -> None:
    unknown = sorted(set(selected_columns(context.arguments[1:], ())) - set(COLUMNS))
    if unknown:
        raise UsageFault(f"Info key(s) {','.join(unknown)} are not supported")
    _check(context)


# The first argument is not a column.
COMMANDS: Final = (_COMMAND._replace(check=_check_all),)
