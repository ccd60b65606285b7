"""Commands for the limits of virtual hosts, which are stored as runtime parameters."""

from __future__ import annotations

from typing import Final

from leveret.broker.management.cli.command import Command, CommandContext, Outcome, Result, ResultRows, ok_result
from leveret.broker.management.cli.faults import no_such_vhost
from leveret.broker.management.cli.json_arguments import parse_object
from leveret.broker.management.cli.runtime_parameters import clear, put
from leveret.broker.management.cli.terms import compact_json

SECTION: Final = "Virtual hosts"
_COMPONENT: Final = "vhost-limits"
_NAME: Final = "limits"


def _list(context: CommandContext) -> Result:
    if context.flag("global"):
        found = context.api.get("vhost-limits")
        return ResultRows(
            ("vhost", "limits"), [{"vhost": each["vhost"], "limits": compact_json(each["value"])} for each in found]
        )
    found = context.api.find("vhost-limits", context.vhost)
    if found is None:
        raise no_such_vhost(context.vhost)
    if not found:
        return ResultRows(("vhost", "limits"), [])
    limits = compact_json(found[0]["value"])
    return Outcome(limits, {"node": context.node, "result": "ok", "value": limits} if context.json else None)


def _set(context: CommandContext) -> Result:
    limits = parse_object(context.arguments[0], "limits definition")
    put(context, ("parameters", _COMPONENT, context.vhost, _NAME), {"value": limits})
    return ok_result(context)


def _clear(context: CommandContext) -> Result:
    clear(context, ("parameters", _COMPONENT, context.vhost, _NAME))
    return ok_result(context)


def _list_banner(context: CommandContext) -> str:
    if context.flag("global"):
        return "Listing limits for all vhosts ..."
    return f'Listing limits for vhost "{context.vhost}" ...'


COMMANDS: Final = (
    Command(
        name="list_vhost_limits",
        section=SECTION,
        summary="Displays configured virtual host limits",
        usage="[--vhost <vhost>] [--global] [--no-table-headers]",
        run=_list,
        options=("global", "table-headers"),
        banner=_list_banner,
        explanations=(("--global", "list the limits of all virtual hosts"),),
    ),
    Command(
        name="set_vhost_limits",
        section=SECTION,
        summary="Sets virtual host limits",
        usage="[--vhost <vhost>] <definition>",
        run=_set,
        min_arguments=1,
        max_arguments=1,
        banner=lambda context: f'Setting vhost limits to "{context.arguments[0]}" for vhost "{context.vhost}" ...',
        explanations=(("<definition>", 'JSON object with "max-connections", "max-queues" or both; -1 means no limit'),),
    ),
    Command(
        name="clear_vhost_limits",
        section=SECTION,
        summary="Clears virtual host limits",
        usage="[--vhost <vhost>]",
        run=_clear,
        banner=lambda context: f'Clearing vhost "{context.vhost}" limits ...',
    ),
)
