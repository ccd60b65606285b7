"""Commands for streams: consumer names, replay, and readers of streaming queries. RabbitMQ has no such commands."""

from __future__ import annotations

from typing import Any, Final

from leveret.broker.management.cli.command import QUEUES, CommandContext, Outcome, Result, ResultRows, command
from leveret.broker.management.cli.command_errors import ApiFault, bad_argument, failed, refused
from leveret.broker.management.cli.command_line import HEADERS, TIMEOUT, VHOST, Argument, option
from leveret.broker.management.cli.commands.jobs import DETACH, LIMIT, RATE, check_positive, run_job
from leveret.broker.management.cli.commands.messages import FILTER, MATCH, read_filter_options
from leveret.broker.management.cli.selectable_columns import table_columns, to_rows
from leveret.broker.management.fields import CONSUMER_NAME, READER
from leveret.policies.stream_arguments import FORMS, read_place

_NAME_COLUMNS: Final = table_columns(CONSUMER_NAME)
_NAME_DEFAULT: Final = ("name", "next_offset", "lag", "missed", "waiting", "consumer_tag", "channel")
_STREAM: Final = Argument("<stream>", "the stream")
_NAME: Final = Argument("<name>", "the value of x-stream-consumer-name")


@command(
    "list_consumer_names",
    QUEUES,
    "Lists the named consumers of a stream: where each goes on, how far that is behind, and who is active",
    (VHOST, _STREAM, HEADERS, TIMEOUT),
    banner="Listing consumer names of stream '{0}' in vhost '{context.vhost}' ...",
)
def _list_names(context: CommandContext) -> ResultRows:
    return to_rows(_NAME_COLUMNS, _NAME_DEFAULT, _ask_names(context, "GET"))


def _check_place(shown: str, place: str) -> None:
    try:
        read_place(shown, place)
    except ValueError as error:
        raise bad_argument(str(error)) from None


@command(
    "set_consumer_name",
    QUEUES,
    "Sets where the next consumer of a name begins in a stream; adds the name if it is unknown",
    (VHOST, _STREAM, _NAME, Argument("<next>", f"its next message: {', '.join(FORMS)}"), TIMEOUT),
    banner="Setting consumer name '{1}' of stream '{0}' in vhost '{context.vhost}' ...",
    check=lambda context: _check_place("<next>", context.arguments[2]),
)
def _set_name(context: CommandContext) -> Result:
    stream, name, place = context.arguments
    _ask_names(context, "PUT", {"next": place})
    return Outcome(f"Consumer name '{name}' of stream '{stream}' goes on with {place}", {"name": name, "next": place})


@command(
    "delete_consumer_name",
    QUEUES,
    "Deletes a consumer name of a stream; a later consumer of the name begins with the next message",
    (VHOST, _STREAM, _NAME, TIMEOUT),
    banner="Deleting consumer name '{1}' of stream '{0}' in vhost '{context.vhost}' ...",
)
def _delete_name(context: CommandContext) -> Result:
    stream, name = context.arguments
    _ask_names(context, "DELETE")
    return Outcome(f"Consumer name '{name}' of stream '{stream}' is deleted", {"name": name, "result": "deleted"})


def _ask_names(context: CommandContext, method: str, body: Any = None) -> Any:
    path = ("queues", context.vhost, context.arguments[0], "consumer-names", *context.arguments[1:2])
    try:
        return context.api.request(method, path, body=body)
    except ApiFault as fault:
        raise refused(fault, "commands for consumer names") from fault


def _check_replay(context: CommandContext) -> None:
    if ("into-exchange" in context.options) is ("into-queue" in context.options):
        raise bad_argument("one of --into-exchange and --into-queue is needed")
    for name in ("from", "to"):
        if name in context.options:
            _check_place(f"--{name}", context.text(name))
    check_positive(context, "rate", "limit")
    read_filter_options(context)


def _options(context: CommandContext) -> dict[str, Any]:
    """Return the options of the job."""
    given = {
        key: context.options.get(key.replace("_", "-"))
        for key in ("from", "to", "into_exchange", "into_queue", "rate", "limit")
    }
    return {**given, "filter": read_filter_options(context)}


@command(
    "replay",
    QUEUES,
    "Publishes messages of a stream again, into an exchange or a queue; the stream keeps them",
    (
        Argument("<stream>", "the stream; messages that arrive after the start are left out"),
        option(
            "into-exchange",
            "publish each message with its routing keys; every bound queue gets it, but not the stream again",
            line="--into-exchange <exchange>|--into-queue <queue>",
        ),
        option("into-queue", "put all messages into one queue; they keep their exchange and routing key", line=""),
        VHOST,
        option("from", f"the first message: {', '.join(FORMS)}; first by default"),
        option("to", "the place after the last message, in the same forms; all that are there by default"),
        FILTER,
        MATCH,
        RATE,
        LIMIT,
        DETACH,
        option("dry-run", "count by target and routing key, and publish nothing"),
        TIMEOUT,
    ),
    banner="Replaying stream '{0}' in vhost '{context.vhost}' ...",
    check=_check_replay,
    timeout=None,
)
def _replay(context: CommandContext) -> Result:
    (stream,) = context.arguments
    return run_job(context, stream, "replay", "replay", _options(context))


_READER_COLUMNS: Final = table_columns(READER)


@command(
    "list_readers",
    QUEUES,
    "Lists the named readers of streaming queries: what they read, and what is kept for them",
    (HEADERS, TIMEOUT),
    banner="Listing readers ...",
)
def _list_readers(context: CommandContext) -> ResultRows:
    return to_rows(_READER_COLUMNS, tuple(_READER_COLUMNS), _ask_readers(context, "GET"))


@command(
    "delete_reader",
    QUEUES,
    "Deletes a named reader of a streaming query: nothing is kept for it any more",
    (Argument("<name>", "the option reader of the query"), TIMEOUT),
    banner="Deleting reader '{0}' ...",
)
def _delete_reader(context: CommandContext) -> Result:
    (name,) = context.arguments
    _ask_readers(context, "DELETE")
    return Outcome(f"Reader '{name}' is deleted", {"name": name, "result": "deleted"})


def _ask_readers(context: CommandContext, method: str) -> Any:
    try:
        return context.api.request(method, ("readers", *context.arguments[:1]))
    except ApiFault as fault:
        if fault.not_found and context.arguments:
            raise failed(f"there is no reader '{context.arguments[0]}'") from fault
        raise refused(fault, "commands for readers") from fault
