"""Commands for virtual hosts."""

from __future__ import annotations

from typing import Any, Final

from leveret.broker.management.cli.columns import Column, field, fields, selected_columns, to_rows, with_columns
from leveret.broker.management.cli.command import Command, CommandContext, Outcome, Result, ResultRows, ok_result
from leveret.broker.management.cli.faults import DATA, SOFTWARE, CommandFault, failed, no_such_vhost

SECTION: Final = "Virtual hosts"
COLUMNS: Final[dict[str, Column]] = {
    **fields("name", "description", "tags", "tracing", "cluster_state"),
    "default_queue_type": field("default_queue_type"),
}
QUEUE_TYPES: Final = ("classic", "quorum", "stream")


def _list(context: CommandContext) -> ResultRows:
    names = selected_columns(context.arguments, ("name",))
    return to_rows(COLUMNS, names, context.api.get("vhosts"))._replace(streamed=False)


def _add(context: CommandContext) -> Result:
    (name,) = context.arguments
    queue_type = context.text("default-queue-type")
    if queue_type and queue_type not in QUEUE_TYPES:
        raise failed("invalid_queue_type")
    # An existing virtual host is not changed.
    if context.api.find("vhosts", name) is None:
        body: dict[str, Any] = {"description": context.text("description"), "tags": context.text("tags")}
        if queue_type:
            body["default_queue_type"] = queue_type
        context.api.put("vhosts", name, body=body)
    return ok_result(context)


def _delete(context: CommandContext) -> Result:
    (name,) = context.arguments
    if context.api.find("vhosts", name) is None:
        raise no_such_vhost(name)
    context.api.delete("vhosts", name)
    return ok_result(context)


def _change(context: CommandContext, name: str, missing: CommandFault, **changes: Any) -> None:
    """Change some properties of a virtual host. The API replaces all of them, so the others are sent back unchanged."""
    found = context.api.find("vhosts", name)
    if found is None:
        raise missing
    kept: dict[str, Any] = {"description": found.get("description", ""), "tags": ",".join(found.get("tags") or ())}
    if found.get("default_queue_type", "undefined") in QUEUE_TYPES:
        kept["default_queue_type"] = found["default_queue_type"]
    context.api.put("vhosts", name, body={**kept, **changes})


def _set_tags(context: CommandContext) -> Result:
    name, *tags = context.arguments
    missing = failed(f'Virtual host "{name}" does not exist', DATA)
    _change(context, name, missing, tags=",".join(tags))
    return ok_result(context)


def _trace(context: CommandContext, on: bool) -> Result:
    _change(context, context.vhost, no_such_vhost(context.vhost), tracing=on)
    text = f"Trace {'enabled' if on else 'disabled'} for vhost {context.vhost}"
    return Outcome(text, {"message": text})


def _restart(context: CommandContext) -> Result:
    if context.api.find("vhosts", context.vhost) is None:
        text = f"Failed to start vhost '{context.vhost}' on node '{context.node}': no such virtual host"
        raise failed(text, SOFTWARE)
    context.api.post("vhosts", context.vhost, "start", context.node)
    text = f"Vhost '{context.vhost}' is already running on node '{context.node}'"
    return Outcome(text, {"message": text})


COMMANDS: Final = (
    with_columns(
        COLUMNS,
        Command(
            name="list_vhosts",
            section="Access Control",
            summary="Lists virtual hosts",
            usage="[--no-table-headers] [<column> ...] [--timeout <timeout>]",
            run=_list,
            options=("table-headers",),
            banner=lambda context: "Listing vhosts ...",
        ),
    ),
    Command(
        name="add_vhost",
        section=SECTION,
        summary="Creates a virtual host",
        usage=(
            '<vhost> [--description <description> --tags "<tag1>,<tag2>,<...>"'
            " --default-queue-type <quorum|classic|stream>]"
        ),
        run=_add,
        min_arguments=1,
        max_arguments=1,
        options=("description", "tags", "default-queue-type"),
        banner=lambda context: f'Adding vhost "{context.arguments[0]}" ...',
        explanations=(
            ("<vhost>", "name of the virtual host; the user who creates it gets all permissions in it"),
            ("--description <description>", "description of the virtual host"),
            ("--tags <tags>", "tags separated by commas"),
            ("--default-queue-type <quorum|classic|stream>", "type of queues that are declared without one"),
        ),
    ),
    Command(
        name="delete_vhost",
        section=SECTION,
        summary="Deletes a virtual host",
        usage="<vhost>",
        run=_delete,
        min_arguments=1,
        max_arguments=1,
        banner=lambda context: f'Deleting vhost "{context.arguments[0]}" ...',
        explanations=(("<vhost>", "name of the virtual host; everything in it is deleted"),),
    ),
    Command(
        name="set_vhost_tags",
        section=SECTION,
        summary="Sets virtual host tags",
        usage="<vhost> <tag> [...]",
        run=_set_tags,
        min_arguments=1,
        max_arguments=None,
        banner=lambda context: (
            f'Setting tags for virtual host "{context.arguments[0]}" to [{", ".join(context.arguments[1:])}] ...'
        ),
        explanations=(
            ("<vhost>", "name of the virtual host"),
            ("<tags>", "one tag per argument; they replace the existing tags"),
        ),
    ),
    Command(
        name="trace_on",
        section=SECTION,
        summary="Also publishes every message of a virtual host to amq.rabbitmq.trace",
        usage="[--vhost <vhost>]",
        run=lambda context: _trace(context, True),
        banner=lambda context: f'Starting tracing for vhost "{context.vhost}" ...',
    ),
    Command(
        name="trace_off",
        section=SECTION,
        summary="Stops tracing a virtual host",
        usage="[--vhost <vhost>]",
        run=lambda context: _trace(context, False),
        banner=lambda context: f'Stopping tracing for vhost "{context.vhost}" ...',
    ),
    Command(
        name="restart_vhost",
        section=SECTION,
        summary="Restarts the queues of a virtual host that failed",
        usage="[--vhost <vhost>] [--timeout <timeout>]",
        run=_restart,
        banner=lambda context: f"Trying to restart vhost '{context.vhost}' on node '{context.node}' ...",
    ),
)
