"""The command check_backlog, for cron: are queues within bounds of age, length and losses? RabbitMQ has none."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from leveret.broker.management.cli.command import Command, CommandContext, Outcome, Result
from leveret.broker.management.cli.durations import read_duration
from leveret.broker.management.cli.faults import ApiFault, CommandFault, UsageFault, failed, no_such_vhost

#: Exit status if a queue is beyond a bound.
_BEYOND: Final = 1
#: Longest time for which the broker keeps losses, in seconds.
_DAY: Final = 86_400
_PAGE_SIZE: Final = 500
_QUEUE_FIELDS: Final = "name,messages,oldest_ready_age,oldest_unacked_age"
_BOUNDS: Final = ("max-oldest", "max-messages", "max-lost")


def _check(context: CommandContext) -> None:
    if not any(name in context.options for name in _BOUNDS):
        raise UsageFault(f"give at least one bound: {', '.join(f'--{name}' for name in _BOUNDS)}")
    for name in ("max-messages", "max-lost"):
        if context.integer(name, 0) < 0:
            raise UsageFault(f"--{name} must be 0 or more")
    if "max-oldest" in context.options:
        read_duration("--max-oldest", context.text("max-oldest"))
    window = _window(context)
    if window is not None and not 1 <= window <= _DAY:
        raise UsageFault("--within must be 1s to 24h: losses are kept for a day")
    if window is not None and "max-lost" not in context.options:
        raise UsageFault("--within is the period of --max-lost, which is missing")


def _window(context: CommandContext) -> int | None:
    if "within" not in context.options:
        return None
    return round(read_duration("--within", context.text("within")))


def _run(context: CommandContext) -> Result:
    try:
        queues = [*_pages(context, "queues", columns=_QUEUE_FIELDS)]
        broken = [each for queue in queues for each in _breaks(context, queue)]
        if "max-lost" in context.options:
            broken += _losses(context)
    except ApiFault as fault:
        raise _fault(context, fault) from fault
    if not queues and not broken:
        # A misspelt pattern must not look as if all were well.
        text = f"no queue in vhost '{context.vhost}' matches '{context.arguments[0]}'"
        raise CommandFault(_BEYOND, f"Error:\n{text}", json={"result": "error", "message": text})
    if broken:
        text = "\n".join(each["message"] for each in broken)
        raise CommandFault(
            _BEYOND, f"Error:\n{text}", json={"result": "error", "queues": len(queues), "broken": broken}
        )
    count = "1 queue is" if len(queues) == 1 else f"{len(queues)} queues are"
    return Outcome(f"{count} within bounds", {"result": "ok", "queues": len(queues), "broken": []})


def _pages(context: CommandContext, *path: str, **query: Any) -> Iterator[dict[str, Any]]:
    """Yield what matches the pattern, of all pages of a list."""
    page = 1
    while True:
        found = context.api.get(
            *path, context.vhost, page=page, page_size=_PAGE_SIZE, name=context.arguments[0], use_regex=True, **query
        )
        yield from found["items"]
        if page >= found["page_count"]:
            return
        page += 1


def _breaks(context: CommandContext, queue: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the bounds of age and length that a queue breaks."""
    name = queue["name"]
    if "max-messages" in context.options and queue.get("messages", 0) > (most := context.integer("max-messages", 0)):
        yield _broken(name, "max-messages", queue["messages"], f"has {queue['messages']} messages, more than {most}")
    if "max-oldest" not in context.options:
        return
    wanted = context.text("max-oldest")
    oldest = read_duration("--max-oldest", wanted)
    for state in ("ready", "unacked"):
        age = queue.get(f"oldest_{state}_age")
        if age is not None and age > oldest:
            text = f"has a message that is {state} and arrived {age:.0f} s ago, more than {wanted}"
            yield _broken(name, "max-oldest", age, text)


def _losses(context: CommandContext) -> list[dict[str, Any]]:
    """Return the queues, deleted ones too, that have lost more messages than allowed."""
    window, most = _window(context), context.integer("max-lost", 0)
    found = _pages(context, "losses", kind="queue", age=window)
    broken = []
    for each in found:
        lost = (each if window is None else each["window"])["lost"]
        if each["name"] is not None and lost > most:
            period = "since they are counted" if window is None else f"within {context.text('within')}"
            text = f"has lost {lost} messages {period}, more than {most}"
            broken.append(_broken(each["name"], "max-lost", lost, text, each["state"] == "deleted"))
    return broken


def _broken(name: str, bound: str, value: float, text: str, is_deleted: bool = False) -> dict[str, Any]:
    queue = f"deleted queue '{name}'" if is_deleted else f"queue '{name}'"
    return {"queue": name, "bound": bound, "value": value, "message": f"{queue} {text}"}


def _fault(context: CommandContext, fault: ApiFault) -> Exception:
    if fault.not_found:
        return no_such_vhost(context.vhost)
    if fault.status == 400:
        # All other parameters are valid.
        return UsageFault(f"'{context.arguments[0]}' is not a valid regular expression")
    return failed(fault.reason)


COMMANDS: Final = (
    Command(
        name="check_backlog",
        section="Monitoring, observability and health checks",
        summary="Checks that queues are within bounds of age, length and losses; exits with 1 if one is not",
        usage=(
            "<pattern> [--vhost <vhost>] [--max-oldest <duration>] [--max-messages <number>]"
            " [--max-lost <number> [--within <duration>]] [--timeout <timeout>]"
        ),
        run=_run,
        min_arguments=1,
        max_arguments=1,
        options=("max-oldest", "max-messages", "max-lost", "within"),
        banner=lambda context: f"Checking the queues of vhost {context.vhost} that match {context.arguments[0]} ...",
        check=_check,
        explanations=(
            ("<pattern>", "regular expression that is found in the names of the queues, in either case of letters"),
            (
                "--max-oldest <duration>",
                "maximum time since the arrival of any ready or unacked message, such as 30s, 15m, 1h, 7d",
            ),
            ("--max-messages <number>", "maximum number of messages, ready and unacked"),
            (
                "--max-lost <number>",
                "maximum number of messages lost for good, as list_losses counts: not if the publisher was told",
            ),
            ("--within <duration>", "period of --max-lost, at most 24h; default: since losses are counted"),
        ),
    ),
)
