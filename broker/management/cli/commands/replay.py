"""The command replay. RabbitMQ has no such command."""

from __future__ import annotations

from typing import Any, Final

from leveret.broker.management.cli.command import Command, CommandContext, Result
from leveret.broker.management.cli.commands.jobs import run_job
from leveret.broker.management.cli.faults import bad_argument
from leveret.broker.management.cli.filters import FILTER_HELP, MATCH_HELP, read_filter_options
from leveret.policies.stream_range import FORMS, read_place


def _check(context: CommandContext) -> None:
    if ("into-exchange" in context.options) is ("into-queue" in context.options):
        raise bad_argument("one of --into-exchange and --into-queue is needed")
    for option in ("from", "to"):
        if option in context.options:
            try:
                read_place(f"--{option}", context.text(option))
            except ValueError as error:
                raise bad_argument(str(error)) from None
    for option in ("rate", "limit"):
        if context.integer(option, 1) < 1:
            raise bad_argument(f"--{option} must be 1 or more")
    read_filter_options(context)


def _options(context: CommandContext) -> dict[str, Any]:
    """Return the options of the job."""
    given = {
        key: context.options.get(key.replace("_", "-"))
        for key in ("from", "to", "into_exchange", "into_queue", "rate", "limit")
    }
    return {**given, "filter": read_filter_options(context)}


def _replay(context: CommandContext) -> Result:
    (stream,) = context.arguments
    return run_job(context, stream, "replay", "replay", _options(context))


COMMANDS: Final = (
    Command(
        name="replay",
        section="Queues",
        summary="Publishes messages of a stream again, into an exchange or a queue; the stream keeps them",
        usage=(
            "<stream> --into-exchange <exchange>|--into-queue <queue> [--vhost <vhost>] [--from <place>] [--to <place>]"
            " [--filter <condition>] [--match all|any] [--rate <number>] [--limit <number>] [--detach] [--dry-run]"
            " [--timeout <timeout>]"
        ),
        run=_replay,
        min_arguments=1,
        max_arguments=1,
        options=("into-exchange", "into-queue", "from", "to", "filter", "match", "rate", "limit", "detach"),
        timeout=None,
        supports_dry_run=True,
        banner=lambda context: f"Replaying stream '{context.arguments[0]}' in vhost '{context.vhost}' ...",
        check=_check,
        explanations=(
            ("<stream>", "the stream; messages that arrive after the start are left out"),
            (
                "--into-exchange <exchange>",
                "publish each message with its routing keys; every bound queue gets it, but not the stream again",
            ),
            (
                "--into-queue <queue>",
                "put all messages into one queue; they keep their exchange and routing key",
            ),
            ("--from <place>", f"the first message: {', '.join(FORMS)}; first by default"),
            (
                "--to <place>",
                "the place after the last message, in the same forms; all that are there by default",
            ),
            FILTER_HELP,
            MATCH_HELP,
            ("--rate <number>", "maximum number of messages per second"),
            ("--limit <number>", "maximum number of messages"),
            ("--detach", "do not wait for the end of the job. Ctrl-C also leaves it running"),
            ("--dry-run", "count by target and routing key, and publish nothing"),
        ),
    ),
)
