"""Commands for the runtime parameters of virtual hosts and for global ones."""

from __future__ import annotations

from typing import Final

from leveret.broker.management.cli.command import Command, CommandContext, Result, ResultRows, ok_result
from leveret.broker.management.cli.faults import no_such_vhost
from leveret.broker.management.cli.runtime_parameters import clear, parse_json, put
from leveret.broker.management.cli.terms import compact_json

SECTION: Final = "Parameters"


def _list(context: CommandContext) -> ResultRows:
    found = [each for each in context.api.get("parameters") if each["vhost"] == context.vhost]
    if not found and context.api.find("vhosts", context.vhost) is None:
        raise no_such_vhost(context.vhost)
    found.sort(key=lambda each: (each["component"], each["name"]))
    rows = [{**each, "value": compact_json(each["value"])} for each in found]
    return ResultRows(("component", "name", "value"), rows)


def _set(context: CommandContext) -> Result:
    component, name, value = context.arguments
    put(context, ("parameters", component, context.vhost, name), {"value": parse_json(value)})
    return ok_result(context)


def _clear(context: CommandContext) -> Result:
    component, name = context.arguments
    clear(context, ("parameters", component, context.vhost, name))
    return ok_result(context)


def _list_global(context: CommandContext) -> ResultRows:
    found = context.api.get("global-parameters")
    return ResultRows(
        ("name", "value"), [{"name": each["name"], "value": compact_json(each["value"])} for each in found]
    )


def _set_global(context: CommandContext) -> Result:
    name, value = context.arguments
    put(context, ("global-parameters", name), {"value": parse_json(value)})
    return ok_result(context)


def _clear_global(context: CommandContext) -> Result:
    clear(context, ("global-parameters", context.arguments[0]))
    return ok_result(context)


def _set_banner(context: CommandContext) -> str:
    component, name, value = context.arguments
    return f'Setting runtime parameter "{name}" for component "{component}" to "{value}" in vhost "{context.vhost}" ...'


def _clear_banner(context: CommandContext) -> str:
    component, name = context.arguments
    return f'Clearing runtime parameter "{name}" for component "{component}" on vhost "{context.vhost}" ...'


_COMPONENT: Final = ("<component_name>", "component that uses the parameter, such as operator_policy or vhost-limits")
_NAME: Final = ("<name>", "the parameter's name")
_VALUE: Final = ("<value>", "any JSON value")
COMMANDS: Final = (
    Command(
        name="list_parameters",
        section=SECTION,
        summary="Lists runtime parameters for a virtual host",
        usage="[--vhost <vhost>] [--no-table-headers] [--timeout <timeout>]",
        run=_list,
        options=("table-headers",),
        banner=lambda context: f'Listing runtime parameters for vhost "{context.vhost}" ...',
    ),
    Command(
        name="set_parameter",
        section=SECTION,
        summary="Sets a runtime parameter",
        usage="[--vhost <vhost>] <component_name> <name> <value>",
        run=_set,
        min_arguments=3,
        max_arguments=3,
        banner=_set_banner,
        explanations=(_COMPONENT, _NAME, _VALUE),
    ),
    Command(
        name="clear_parameter",
        section=SECTION,
        summary="Clears a runtime parameter",
        usage="[--vhost <vhost>] <component_name> <name>",
        run=_clear,
        min_arguments=2,
        max_arguments=2,
        banner=_clear_banner,
        explanations=(_COMPONENT, _NAME),
    ),
    Command(
        name="list_global_parameters",
        section=SECTION,
        summary="Lists global runtime parameters",
        usage="[--no-table-headers] [--timeout <timeout>]",
        run=_list_global,
        options=("table-headers",),
        banner=lambda context: "Listing global runtime parameters ...",
    ),
    Command(
        name="set_global_parameter",
        section=SECTION,
        summary="Sets a global runtime parameter",
        usage="<name> <value>",
        run=_set_global,
        min_arguments=2,
        max_arguments=2,
        banner=lambda context: (
            f'Setting global runtime parameter "{context.arguments[0]}" to "{context.arguments[1]}" ...'
        ),
        explanations=(_NAME, _VALUE),
    ),
    Command(
        name="clear_global_parameter",
        section=SECTION,
        summary="Clears a global runtime parameter",
        usage="<name>",
        run=_clear_global,
        min_arguments=1,
        max_arguments=1,
        banner=lambda context: f'Clearing global runtime parameter "{context.arguments[0]}" ...',
        explanations=(_NAME,),
    ),
)
