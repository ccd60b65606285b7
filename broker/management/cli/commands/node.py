"""Commands that show the state of the node."""

from __future__ import annotations

from typing import Any, Final

from leveret.broker.management.cli.command import Command, CommandContext, Outcome, Result, ResultRows, ok_result
from leveret.broker.management.cli.faults import failed
from leveret.broker.management.cli.formatters import to_json
from leveret.broker.management.cli.node_info import (
    alarms,
    check_unit,
    format_size,
    memory_parts,
    node_object,
    product_and_version,
    runtime_version,
    unit,
)
from leveret.broker.management.cli.terms import untyped
from leveret.protocol.erlang_terms import format_atom, format_tuple

SECTION: Final = "Monitoring, observability and health checks"
CONFIGURATION: Final = "Configuration and Environment"


def _alarms(context: CommandContext) -> Result:
    found = alarms(context)
    listed = [{"node": context.node, "resource": resource} for resource, _ in found]
    text = "\n".join(line for _, line in found) or f"Node {context.node} reported no alarms, local or clusterwide"
    return Outcome(text, {"alarms": listed, "node": context.node, "result": "ok"})


def _environment(context: CommandContext) -> Result:
    found = context.api.find("config", "effective")
    if found is None:
        raise failed(f"Node {context.node} does not show its configuration over HTTP")
    if context.json:
        return Outcome(json=found)
    if isinstance(found, list):
        found = {each["name"]: each["value"] for each in found}
    lines = [format_tuple(format_atom(name), untyped(value)) for name, value in found.items()]
    return Outcome("[{leveret,\n     [" + ",\n      ".join(lines) + "]}]")


def _server_version(context: CommandContext) -> Result:
    version = product_and_version(context.api.get("overview"))[1]
    return Outcome(version, {"result": "ok", "value": version})


def _runtime_version(context: CommandContext) -> Result:
    text = runtime_version(context.api.get("overview"))
    return Outcome(text, {"result": "ok", "value": text})


def _log_location(context: CommandContext) -> Result:
    paths = node_object(context, columns="name,log_files").get("log_files") or []
    shown = paths if context.flag("all") else paths[:1]
    return Outcome("\n".join(shown), {"node_name": context.node, "paths": shown, "result": "ok"})


_ATTEMPTS: Final = ("protocol", "auth_attempts", "auth_attempts_failed", "auth_attempts_succeeded")


def _auth_attempts(context: CommandContext) -> Result:
    by_source = context.flag("by-source")
    path = ("auth", "attempts", context.node, *(("source",) if by_source else ()))
    found: list[dict[str, Any]] = context.api.get(*path)
    columns = ("protocol", "remote_address", "username", *_ATTEMPTS[1:]) if by_source else _ATTEMPTS
    if not found:
        text = f"Node {context.node} reported no authentication attempt stats"
        return Outcome(text, {"attempts": [], "node": context.node, "result": "ok"})
    return ResultRows(columns, found, json={"attempts": found, "node": context.node, "result": "ok"})


def _reset_auth_attempts(context: CommandContext) -> Result:
    context.api.delete("auth", "attempts", context.node)
    return ok_result(context)


def _memory(context: CommandContext) -> Result:
    memory = context.api.get("nodes", context.node, "memory")["memory"]
    found = memory_parts(memory)
    if context.text("formatter") == "csv":
        flat = {f"{part.name}.percentage": part.percentage for part in found}
        flat.update({f"{part.name}.bytes": part.size for part in found})
        return ResultRows(tuple(sorted(flat, reverse=True)), [flat])
    lines = [f"{part.name}: {format_size(part.size, unit(context))} ({part.percentage}%)" for part in found]
    json = {part.name: {"bytes": part.size, "percentage": part.percentage} for part in found}
    # rabbitmqctl prints this empty line.
    return Outcome("\n".join([*lines, ""]), json)


def _report(context: CommandContext) -> Result:
    """Collect the data for a bug report: all objects of the API as JSON."""
    names = ("overview", "nodes", "connections", "channels", "consumers", "exchanges", "queues", "bindings")
    more = ("vhosts", "users", "permissions", "policies", "operator-policies", "parameters", "global-parameters")
    found = {name: context.api.find(name) for name in (*names, *more)}
    for user in found["users"] or ():
        # Other people read the report.
        user.pop("password_hash", None)
    if context.json:
        return Outcome(json=found)
    sections = []
    for name, objects in found.items():
        lines = [to_json(each) for each in objects] if isinstance(objects, list) else [to_json(objects)]
        sections.append("\n".join([f"{name}:", *lines]))
    return Outcome("\n\n".join(sections))


COMMANDS: Final = (
    Command(
        name="alarms",
        section=SECTION,
        summary="Lists resource alarms in effect",
        usage="[--timeout <timeout>]",
        run=_alarms,
        banner=lambda context: f"Asking node {context.node} to report any known resource alarms ...",
    ),
    Command(
        name="environment",
        section=CONFIGURATION,
        summary="Displays the name and value of each option of the configuration",
        run=_environment,
        banner=lambda context: f"Application environment of node {context.node} ...",
    ),
    Command(
        name="server_version",
        section=SECTION,
        summary="Displays the broker's version",
        usage="[--timeout <timeout>]",
        run=_server_version,
        banner=lambda context: f"Asking node {context.node} for its RabbitMQ version...",
    ),
    Command(
        name="erlang_version",
        section=SECTION,
        summary="Displays the version of the runtime",
        usage="[--timeout <timeout>]",
        run=_runtime_version,
        banner=lambda context: f"Asking node {context.node} for its Erlang/OTP version...",
    ),
    Command(
        name="log_location",
        section=CONFIGURATION,
        summary="Shows where the broker's log goes",
        usage="[--all|-a] [--timeout <timeout>]",
        run=_log_location,
        options=("all",),
        banner=lambda context: f"Log file location(s) on node {context.node} ...",
    ),
    Command(
        name="list_node_auth_attempt_stats",
        section=SECTION,
        summary="Lists authentication attempts",
        usage="[--by-source]",
        run=_auth_attempts,
        options=("by-source",),
        banner=lambda context: f'Listing authentication\n attempts for node "{context.node}" ...',
        explanations=(("--by-source", "list attempts by address and user name"),),
    ),
    Command(
        name="reset_node_auth_attempt_metrics",
        section=CONFIGURATION,
        summary="Resets the counts of authentication attempts",
        run=_reset_auth_attempts,
        banner=lambda context: f"Reset auth attempt metrics on node {context.node} ...",
    ),
    Command(
        name="memory_breakdown",
        section=SECTION,
        summary="Provides a memory usage breakdown",
        usage="[--unit <unit>] [--timeout <timeout>]",
        run=_memory,
        options=("unit",),
        check=check_unit,
        banner=lambda context: f"Reporting memory breakdown on node {context.node}...",
        explanations=(("--unit <bytes | mb | gb>", "unit of the sizes; default gb"),),
    ),
    Command(
        name="report",
        section=SECTION,
        summary="Prints all objects of the API, for a bug report",
        run=_report,
        banner=lambda context: f"Reporting server status of node {context.node} ...\n",
    ),
)
