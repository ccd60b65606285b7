"""RabbitMQ's cluster commands that apply to a single node, and feature flags."""

from __future__ import annotations

from typing import Any, Final

from leveret.broker.management.cli.columns import Column, fields, selected_columns, to_rows, with_columns
from leveret.broker.management.cli.command import Command, CommandContext, Outcome, Result, ResultRows, ok_result
from leveret.broker.management.cli.commands.health import wait_until_up
from leveret.broker.management.cli.faults import SOFTWARE, USAGE, ApiFault, bad_argument, failed
from leveret.broker.management.cli.formatters import Style
from leveret.broker.management.cli.node_info import (
    alarms,
    listener_line,
    listeners,
    product_and_version,
    runtime_version,
)

SECTION: Final = "Cluster"
FLAG_COLUMNS: Final[dict[str, Column]] = fields("name", "state", "stability", "provided_by", "desc", "doc_url")
_START_TIMEOUT: Final = 300


def _status(context: CommandContext) -> Result:
    overview = context.api.get("overview")
    node, flags = overview["node"], context.api.get("feature-flags")
    found, alarmed = listeners(context), alarms(context)
    if context.json:
        return Outcome(json=_status_json(overview, flags, found, alarmed))
    name, version = product_and_version(overview)
    sections: list[tuple[str, list[str]]] = [
        ("Basics", [f"Cluster name: {overview.get('cluster_name', '')}"]),
        ("Disk Nodes", [node]),
        ("Running Nodes", [node]),
        ("Versions", [f"{node}: {name} {version} on {runtime_version(overview).replace('/OTP', '')}"]),
        ("Maintenance status", [f"Node: {node}, status: not under maintenance"]),
        ("Alarms", [line for _, line in alarmed] or ["(none)"]),
        ("Network Partitions", ["(none)"]),
        ("Listeners", [f"Node: {node}, i{listener_line(each)[1:]}" for each in found]),
        ("Feature flags", [f"Flag: {flag['name']}, state: {flag['state']}" for flag in flags]),
    ]
    return Outcome(format_sections(sections))


def format_sections(sections: list[tuple[str, list[str]]]) -> str:
    """Return sections with headers, which are bold on a terminal."""
    import sys

    bold = Style(terminal=sys.stdout.isatty()).bold
    return "\n\n".join("\n".join([bold(title), "", *lines]) for title, lines in sections)


def _status_json(
    overview: dict[str, Any], flags: Any, found: list[dict[str, Any]], alarmed: list[tuple[str, str]]
) -> dict[str, Any]:
    node = overview["node"]
    name, version = product_and_version(overview)
    return {
        "alarms": [{"node": node, "resource": resource} for resource, _ in alarmed],
        "cluster_name": overview.get("cluster_name", ""),
        "disk_nodes": [node],
        "feature_flags": flags,
        "listeners": {node: found},
        "maintenance_status": {node: "not under maintenance"},
        "partitions": {},
        "ram_nodes": [],
        "running_nodes": [node],
        "versions": {
            node: {
                "erlang_version": overview.get("erlang_version", ""),
                "rabbitmq_name": name,
                "rabbitmq_version": version,
            }
        },
    }


def _set_name(context: CommandContext) -> Result:
    context.api.put("cluster-name", body={"name": context.arguments[0]})
    return ok_result(context)


def _await_startup(context: CommandContext) -> Result:
    wait_until_up(context, context.integer("timeout", _START_TIMEOUT))
    return ok_result(context)


def _check_count(context: CommandContext) -> None:
    if not context.arguments[0].isdigit() or int(context.arguments[0]) < 1:
        raise bad_argument("Argument must be a positive integer")


def _await_nodes(context: CommandContext) -> Result:
    wait_until_up(context, context.integer("timeout", _START_TIMEOUT))
    if int(context.arguments[0]) > 1:
        # There is always one node, so waiting would not help.
        text = f"Error: timed out while waiting. Not enough nodes joined {context.node}'s cluster."
        raise failed(text, SOFTWARE)
    return ok_result(context)


def _list_flags(context: CommandContext) -> ResultRows:
    names = selected_columns(context.arguments, ("name", "state"))
    return to_rows(FLAG_COLUMNS, names, context.api.get("feature-flags"))._replace(streamed=False)


def _enable_flag(context: CommandContext) -> Result:
    (name,) = context.arguments
    known = {flag["name"]: flag["state"] for flag in context.api.get("feature-flags")}
    if name != "all" and name not in known:
        raise failed(f"This feature flag is not supported by node {context.node}", USAGE)
    for flag, state in known.items():
        if name in ("all", flag) and state != "enabled":
            _enable(context, flag)
    return ok_result(context)


def _enable(context: CommandContext, flag: str) -> None:
    try:
        context.api.put("feature-flags", flag, "enable")
    except ApiFault as fault:
        raise failed(fault.reason) from fault


COMMANDS: Final = (
    Command(
        name="cluster_status",
        section=SECTION,
        summary="Displays name, version, alarms, listeners and feature flags",
        usage="[--timeout <timeout>]",
        run=_status,
        banner=lambda context: f"Cluster status of node {context.node} ...",
    ),
    Command(
        name="set_cluster_name",
        section="Configuration and Environment",
        summary="Sets the cluster name",
        usage="<name>",
        run=_set_name,
        min_arguments=1,
        max_arguments=1,
        banner=lambda context: f"Setting cluster name to {context.arguments[0]} ...",
    ),
    Command(
        name="await_startup",
        section="Nodes",
        summary="Waits until the broker responds",
        usage="[--timeout <timeout>]",
        run=_await_startup,
        timeout=5,
        explanations=(("--timeout <timeout>", "maximum wait in seconds; default 300"),),
    ),
    Command(
        name="await_online_nodes",
        section=SECTION,
        summary="Waits until the broker responds; there is always one node",
        usage="<count> [--timeout <timeout>]",
        run=_await_nodes,
        min_arguments=1,
        max_arguments=1,
        timeout=5,
        check=_check_count,
        banner=lambda context: (
            f"Will wait for at least {context.arguments[0]} nodes to join the cluster of {context.address}."
            f" Timeout: {context.integer('timeout', _START_TIMEOUT)} seconds."
        ),
    ),
    with_columns(
        FLAG_COLUMNS,
        Command(
            name="list_feature_flags",
            section="Feature flags",
            summary="Lists feature flags",
            usage="[<column> ...] [--timeout <timeout>]",
            run=_list_flags,
            banner=lambda context: "Listing feature flags ...",
        ),
    ),
    Command(
        name="enable_feature_flag",
        section="Feature flags",
        summary="Enables a feature flag or all of them",
        usage="<all | feature_flag>",
        run=_enable_flag,
        min_arguments=1,
        max_arguments=1,
        banner=lambda context: (
            "Enabling all feature flags ..."
            if context.arguments[0] == "all"
            else f'Enabling feature flag "{context.arguments[0]}" ...'
        ),
    ),
)
