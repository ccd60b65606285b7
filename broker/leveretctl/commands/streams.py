"""Commands for streams: consumer names, replay, and readers of streaming queries. RabbitMQ has no such commands."""

from __future__ import annotations

from typing import Any, Final

from leveret.broker.leveretctl.command import CommandContext, Outcome, Result, ResultRows, command
from leveret.broker.leveretctl.command_errors import bad_argument
from leveret.broker.leveretctl.command_line import HEADERS, TIMEOUT, VHOST, Argument, option
from leveret.broker.leveretctl.commands.jobs import DETACH, LIMIT, RATE, check_positive, run_job
from leveret.broker.leveretctl.commands.messages import FILTER, MATCH, read_filter_options
from leveret.broker.leveretctl.selectable_columns import table_columns, to_rows
from leveret.broker.management.fields import CONSUMER_NAME, READER
from leveret.policies.stream_arguments import FORMS, read_place

_NAME_COLUMNS: Final = table_columns(CONSUMER_NAME)
_NAME_DEFAULT: Final = ("name", "next_offset", "lag", "missed", "waiting", "consumer_tag", "channel")
_STREAM: Final = Argument("<stream>", "the stream")
_NAME: Final = Argument("<name>", "the value of x-stream-consumer-name")
_NAMES: Final = "commands for consumer names"
_READERS: Final = "commands for readers"


@command(
    (VHOST, _STREAM, HEADERS, TIMEOUT),
    banner="Listing consumer names of stream '{0}' in vhost '{context.vhost}' ...",
    of_leveret=_NAMES,
)
def list_consumer_names(context: CommandContext, stream: str) -> ResultRows:
    """Lists the named consumers of a stream: where each goes on, how far that is behind, and who is active."""
    return to_rows(_NAME_COLUMNS, _NAME_DEFAULT, context.api.get("queues", context.vhost, stream, "consumer-names"))


def _check_place(shown: str, place: str) -> None:
    try:
        read_place(shown, place)
    except ValueError as error:
        raise bad_argument(str(error)) from None


@command(
    (VHOST, _STREAM, _NAME, Argument("<next>", f"its next message: {', '.join(FORMS)}"), TIMEOUT),
    banner="Setting consumer name '{1}' of stream '{0}' in vhost '{context.vhost}' ...",
    check=lambda context: _check_place("<next>", context.arguments[2]),
    of_leveret=_NAMES,
)
def set_consumer_name(context: CommandContext, stream: str, name: str, place: str) -> Result:
    """Sets where the next consumer of a name begins in a stream; adds the name if it is unknown."""
    context.api.put("queues", context.vhost, stream, "consumer-names", name, body={"next": place})
    return Outcome(f"Consumer name '{name}' of stream '{stream}' goes on with {place}", {"name": name, "next": place})


@command(
    (VHOST, _STREAM, _NAME, TIMEOUT),
    banner="Deleting consumer name '{1}' of stream '{0}' in vhost '{context.vhost}' ...",
    of_leveret=_NAMES,
)
def delete_consumer_name(context: CommandContext, stream: str, name: str) -> Result:
    """Deletes a consumer name of a stream; a later consumer of the name begins with the next message."""
    context.api.delete("queues", context.vhost, stream, "consumer-names", name)
    return Outcome(f"Consumer name '{name}' of stream '{stream}' is deleted", {"name": name, "result": "deleted"})


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
def replay(context: CommandContext, stream: str) -> Result:
    """Publishes messages of a stream again, into an exchange or a queue; the stream keeps them."""
    return run_job(context, stream, "replay", "replay", _options(context))


_READER_COLUMNS: Final = table_columns(READER)


@command((HEADERS, TIMEOUT), banner="Listing readers ...", of_leveret=_READERS)
def list_readers(context: CommandContext) -> ResultRows:
    """Lists the named readers of streaming queries: what they read, and what is kept for them."""
    return to_rows(_READER_COLUMNS, tuple(_READER_COLUMNS), context.api.get("readers"))


@command(
    (Argument("<name>", "the option reader of the query"), TIMEOUT),
    banner="Deleting reader '{0}' ...",
    not_found="there is no reader '{0}'",
    of_leveret=_READERS,
)
def delete_reader(context: CommandContext, name: str) -> Result:
    """Deletes a named reader of a streaming query: nothing is kept for it any more."""
    context.api.delete("readers", name)
    return Outcome(f"Reader '{name}' is deleted", {"name": name, "result": "deleted"})
