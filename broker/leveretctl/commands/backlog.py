"""The commands check_backlog, for cron, and list_losses. RabbitMQ has no such commands."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from leveret.broker.leveretctl.command import CommandContext, Outcome, Result, ResultRows, command, selected_columns
from leveret.broker.leveretctl.command_errors import ApiFault, UsageFault, failed, no_such_vhost
from leveret.broker.leveretctl.command_line import HEADERS, TIMEOUT, VHOST, Argument, option
from leveret.broker.leveretctl.selectable_columns import table_columns, to_rows
from leveret.broker.management.fields import LOSS, LOSS_AMOUNTS
from leveret.protocol.units import parse_duration


def _read_duration(option: str, text: str) -> float:
    """Return a duration like `15m` in seconds; without a unit it is in seconds."""
    try:
        return float(parse_duration(text))
    except ValueError:
        raise UsageFault(f"{option} takes a duration such as 30s, 15m, 1h or 7d, not {text}") from None


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
        _read_duration("--max-oldest", context.text("max-oldest"))
    window = _window(context)
    if window is not None and not 1 <= window <= _DAY:
        raise UsageFault("--within must be 1s to 24h: losses are kept for a day")
    if window is not None and "max-lost" not in context.options:
        raise UsageFault("--within is the period of --max-lost, which is missing")


def _window(context: CommandContext) -> int | None:
    if "within" not in context.options:
        return None
    return round(_read_duration("--within", context.text("within")))


@command(
    (
        Argument("<pattern>", "regular expression that is found in the names of the queues, in either case of letters"),
        VHOST,
        option(
            "max-oldest", "maximum time since the arrival of any ready or unacked message, such as 30s, 15m, 1h, 7d"
        ),
        option("max-messages", "maximum number of messages, ready and unacked"),
        option(
            "max-lost",
            "maximum number of messages lost for good, as list_losses counts: not if the publisher was told",
            line="[--max-lost <number> [--within <duration>]]",
        ),
        option("within", "period of --max-lost, at most 24h; default: since losses are counted", line=""),
        TIMEOUT,
    ),
    banner="Checking the queues of vhost {context.vhost} that match {0} ...",
    check=_check,
)
def check_backlog(context: CommandContext, pattern: str) -> Result:
    """Checks that queues are within bounds of age, length and losses; exits with 1 if one is not."""
    try:
        queues = [*_pages(context, "queues", columns=_QUEUE_FIELDS)]
        broken = [each for queue in queues for each in _breaks(context, queue)]
        if "max-lost" in context.options:
            broken += _losses(context)
    except ApiFault as fault:
        raise _fault(context, fault) from fault
    if not queues and not broken:
        # A misspelt pattern must not look as if all were well.
        text = f"no queue in vhost '{context.vhost}' matches '{pattern}'"
        raise failed(text, _BEYOND, json={"result": "error", "message": text})
    if broken:
        text = "\n".join(each["message"] for each in broken)
        raise failed(text, _BEYOND, json={"result": "error", "queues": len(queues), "broken": broken})
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
    oldest = _read_duration("--max-oldest", wanted)
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


def _missing(context: CommandContext, *_: str) -> str:
    if context.api.find("vhosts", context.vhost, columns="name") is None:
        return f"Virtual host '{context.vhost}' does not exist"
    return "the broker does not support list_losses: it is not Leveret"


_COLUMNS: Final = table_columns(LOSS)
_AMOUNTS: Final = table_columns(LOSS_AMOUNTS)
_DEFAULT: Final = ("kind", "name", "state", *_AMOUNTS)


def _check_age(context: CommandContext) -> None:
    if not 0 <= context.integer("age", 0) <= _DAY:
        raise UsageFault(f"The age must be 1 to {_DAY} seconds")


@command(
    (
        VHOST,
        option("age", f"count only losses of the last <seconds> seconds; maximum {_DAY}"),
        HEADERS,
        Argument("[<column> ...]", columns=_COLUMNS),
        TIMEOUT,
    ),
    banner="Listing losses in vhost {context.vhost} ...",
    check=_check_age,
    not_found=_missing,
)
def list_losses(context: CommandContext, *columns: str) -> ResultRows:
    """Lists queues and exchanges that lost messages, with the reasons; largest losses first."""
    age = context.integer("age", 0) or None
    found = context.api.get("losses", context.vhost, age=age)
    # With an age, the counts of that period replace those since the start.
    rows = [{**each, **each.get("window", {})} for each in found]
    return to_rows(_COLUMNS, selected_columns(columns, _DEFAULT), rows)
