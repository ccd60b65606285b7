"""The commands for the consumer names of streams. RabbitMQ has no such commands."""

from __future__ import annotations

from typing import Any, Final

from leveret.broker.management.cli.columns import Column, field, fields, to_rows
from leveret.broker.management.cli.command import Command, CommandContext, Outcome, Result, ResultRows
from leveret.broker.management.cli.faults import ApiFault, bad_argument, failed
from leveret.policies.stream_range import FORMS, read_place

_SECTION: Final = "Queues"
_COLUMNS: Final[dict[str, Column]] = {
    **fields("name", "next_offset", "lag", "missed", "waiting"),
    "consumer_tag": field("active.consumer_tag"),
    "channel": field("active.channel_details.name"),
}
_STREAM_HELP: Final = ("<stream>", "the stream")
_NAME_HELP: Final = ("<name>", "the value of x-stream-consumer-name")


def _list(context: CommandContext) -> ResultRows:
    return to_rows(_COLUMNS, tuple(_COLUMNS), _ask(context, "GET"))


def _check_place(context: CommandContext) -> None:
    try:
        read_place("<next>", context.arguments[2])
    except ValueError as error:
        raise bad_argument(str(error)) from None


def _set(context: CommandContext) -> Result:
    stream, name, place = context.arguments
    _ask(context, "PUT", {"next": place})
    return Outcome(f"Consumer name '{name}' of stream '{stream}' goes on with {place}", {"name": name, "next": place})


def _delete(context: CommandContext) -> Result:
    stream, name = context.arguments
    _ask(context, "DELETE")
    return Outcome(f"Consumer name '{name}' of stream '{stream}' is deleted", {"name": name, "result": "deleted"})


def _ask(context: CommandContext, method: str, body: Any = None) -> Any:
    path = ("queues", context.vhost, context.arguments[0], "consumer-names", *context.arguments[1:2])
    try:
        return context.api.request(method, path, body=body)
    except ApiFault as fault:
        if fault.status == 405 or (fault.not_found and fault.error == "Object Not Found"):
            raise failed("the broker does not support commands for consumer names: it is not Leveret") from fault
        raise failed(fault.reason) from fault


COMMANDS: Final = (
    Command(
        name="list_consumer_names",
        section=_SECTION,
        summary="Lists the named consumers of a stream: where each goes on, how far that is behind, and who is active",
        usage="[--vhost <vhost>] <stream> [--no-table-headers] [--timeout <timeout>]",
        run=_list,
        min_arguments=1,
        max_arguments=1,
        options=("table-headers",),
        banner=lambda context: (
            f"Listing consumer names of stream '{context.arguments[0]}' in vhost '{context.vhost}' ..."
        ),
        explanations=(_STREAM_HELP,),
    ),
    Command(
        name="set_consumer_name",
        section=_SECTION,
        summary="Sets where the next consumer of a name begins in a stream; adds the name if it is unknown",
        usage="[--vhost <vhost>] <stream> <name> <next> [--timeout <timeout>]",
        run=_set,
        min_arguments=3,
        max_arguments=3,
        banner=lambda context: (
            f"Setting consumer name '{context.arguments[1]}' of stream '{context.arguments[0]}'"
            f" in vhost '{context.vhost}' ..."
        ),
        check=_check_place,
        explanations=(_STREAM_HELP, _NAME_HELP, ("<next>", f"its next message: {', '.join(FORMS)}")),
    ),
    Command(
        name="delete_consumer_name",
        section=_SECTION,
        summary="Deletes a consumer name of a stream; a later consumer of the name begins with the next message",
        usage="[--vhost <vhost>] <stream> <name> [--timeout <timeout>]",
        run=_delete,
        min_arguments=2,
        max_arguments=2,
        banner=lambda context: (
            f"Deleting consumer name '{context.arguments[1]}' of stream '{context.arguments[0]}'"
            f" in vhost '{context.vhost}' ..."
        ),
        explanations=(_STREAM_HELP, _NAME_HELP),
    ),
)
