"""Commands that show the state of the node, RabbitMQ's cluster commands for one node, and feature flags.

What the API says of listeners, alarms and memory is shown in rabbitmqctl's terms.
"""

from __future__ import annotations

import sys
import time
from typing import Any, Final, NamedTuple

from leveret.broker.leveretctl.command import CommandContext, Outcome, Result, ResultRows, command
from leveret.broker.leveretctl.command_errors import (
    SOFTWARE,
    TEMPORARY,
    USAGE,
    ApiFault,
    CommandFault,
    NoAnswer,
    UsageFault,
    bad_argument,
    failed,
)
from leveret.broker.leveretctl.command_line import TIMEOUT, Argument, option
from leveret.broker.leveretctl.printing import Style, to_json, untyped
from leveret.broker.leveretctl.selectable_columns import list_objects, table_columns
from leveret.broker.management.fields import FEATURE_FLAG
from leveret.protocol.erlang_terms import format_atom, format_tuple

_PURPOSES: Final = {
    "amqp": "AMQP 0-9-1",
    "amqp/ssl": "AMQP 0-9-1 over TLS",
    "clustering": "inter-node and CLI tool communication",
    "http": "HTTP API",
    "https": "HTTP API over TLS (HTTPS)",
    "http/prometheus": "Prometheus exporter API over HTTP",
    "https/prometheus": "Prometheus exporter API over TLS (HTTPS)",
}
_ALARMS: Final = (
    ("mem_alarm", "memory", "Memory alarm on node {}"),
    ("disk_free_alarm", "disk", "Free disk space alarm on node {}"),
)
_UNITS: Final = {"bytes": 1, "mb": 1_000_000, "gb": 1_000_000_000}
_UNIT: Final = option("unit", "unit of the sizes; default gb", shown="--unit <bytes | mb | gb>", values=tuple(_UNITS))
_NO_PARTS: Final = ("strategy", "total")


def listeners(context: CommandContext) -> list[dict[str, Any]]:
    """Return the listeners, each with interface, node, port, protocol and purpose."""
    found = context.api.get("overview", columns="listeners")["listeners"]
    return [
        {
            "interface": f"[{each['ip_address']}]" if ":" in each["ip_address"] else each["ip_address"],
            "node": each["node"],
            "port": each["port"],
            "protocol": each["protocol"],
            "purpose": _PURPOSES.get(each["protocol"], each["protocol"]),
        }
        for each in found
    ]


def listener_line(listener: dict[str, Any]) -> str:
    """Return the description of a listener on one line."""
    return "Interface: {interface}, port: {port}, protocol: {protocol}, purpose: {purpose}".format_map(listener)


def _node_object(context: CommandContext, **query: Any) -> dict[str, Any]:
    """Return the API object of the node."""
    found: dict[str, Any] = context.api.get("nodes", context.node, **query)
    return found


def alarms(context: CommandContext) -> list[tuple[str, str]]:
    """Return the alarms in effect as pairs of resource and description."""
    found = _node_object(context)
    return [(resource, line.format(context.node)) for key, resource, line in _ALARMS if found.get(key)]


def _runtime_version(overview: dict[str, Any]) -> str:
    """Return name and version of the runtime."""
    whole = str(overview.get("erlang_full_version", ""))
    return f"Erlang/OTP {overview.get('erlang_version', '')}" if whole.startswith("Erlang") else whole


def product_and_version(overview: dict[str, Any]) -> tuple[str, str]:
    """Return name and version of the broker product."""
    name = overview.get("product_name") or "RabbitMQ"
    return name, overview.get("product_version") or overview.get("rabbitmq_version", "")


class _MemoryPart(NamedTuple):
    """Category of the memory in use, with its bytes and their percentage of the total."""

    name: str
    size: int
    percentage: float


def _unit(context: CommandContext) -> str:
    """Return the unit of sizes in the output."""
    return context.text("unit", "gb").lower()


def _check_unit(context: CommandContext) -> None:
    if _unit(context) not in _UNITS:
        raise UsageFault(f"\"unit '{_unit(context)}' is not supported. Please use one of: {', '.join(_UNITS)}\"")


def _format_size(size: float, unit_name: str) -> str:
    """Return a size in a unit, rounded to four decimal places."""
    factor = _UNITS[unit_name]
    return f"{size} {unit_name}" if factor == 1 else f"{round(size / factor, 4)} {unit_name}"


def _total_used(memory: dict[str, Any]) -> int:
    """Return the memory in use in bytes, by the broker's calculation strategy."""
    sums = memory.get("total", 0)
    if not isinstance(sums, dict):
        return int(sums)
    strategy = str(memory.get("strategy", "rss"))
    return int(sums[strategy if strategy in sums else "rss"])


def _memory_parts(memory: dict[str, Any]) -> list[_MemoryPart]:
    """Return the parts of the memory, largest first."""
    everything = _total_used(memory)
    found = [
        _MemoryPart(name, size, round(100 * size / everything, 2) if everything else 0.0)
        for name, size in memory.items()
        if name not in _NO_PARTS
    ]
    return sorted(found, key=lambda part: -part.size)


@command((TIMEOUT,), name="alarms", banner="Asking node {context.node} to report any known resource alarms ...")
def _alarms(context: CommandContext) -> Result:
    """Lists resource alarms in effect."""
    found = alarms(context)
    listed = [{"node": context.node, "resource": resource} for resource, _ in found]
    text = "\n".join(line for _, line in found) or f"Node {context.node} reported no alarms, local or clusterwide"
    return Outcome(text, {"alarms": listed, "node": context.node, "result": "ok"})


@command(banner="Application environment of node {context.node} ...")
def environment(context: CommandContext) -> Result:
    """Displays the name and value of each option of the configuration."""
    found = context.api.find("config", "effective")
    if found is None:
        raise failed(f"Node {context.node} does not show its configuration over HTTP")
    if context.json:
        return Outcome(json=found)
    if isinstance(found, list):
        found = {each["name"]: each["value"] for each in found}
    lines = [format_tuple(format_atom(name), untyped(value)) for name, value in found.items()]
    return Outcome("[{leveret,\n     [" + ",\n      ".join(lines) + "]}]")


@command((TIMEOUT,), banner="Asking node {context.node} for its RabbitMQ version...")
def server_version(context: CommandContext) -> Result:
    """Displays the broker's version."""
    version = product_and_version(context.api.get("overview"))[1]
    return Outcome(version, {"result": "ok", "value": version})


@command((TIMEOUT,), banner="Asking node {context.node} for its Erlang/OTP version...")
def erlang_version(context: CommandContext) -> Result:
    """Displays the version of the runtime."""
    text = _runtime_version(context.api.get("overview"))
    return Outcome(text, {"result": "ok", "value": text})


@command((option("all"), TIMEOUT), banner="Log file location(s) on node {context.node} ...")
def log_location(context: CommandContext) -> Result:
    """Shows where the broker's log goes."""
    paths = _node_object(context, columns="name,log_files").get("log_files") or []
    shown = paths if context.flag("all") else paths[:1]
    return Outcome("\n".join(shown), {"node_name": context.node, "paths": shown, "result": "ok"})


_ATTEMPTS: Final = ("protocol", "auth_attempts", "auth_attempts_failed", "auth_attempts_succeeded")


@command(
    (option("by-source", "list attempts by address and user name"),),
    banner='Listing authentication\n attempts for node "{context.node}" ...',
)
def list_node_auth_attempt_stats(context: CommandContext) -> Result:
    """Lists authentication attempts."""
    by_source = context.flag("by-source")
    path = ("auth", "attempts", context.node, *(("source",) if by_source else ()))
    found: list[dict[str, Any]] = context.api.get(*path)
    columns = ("protocol", "remote_address", "username", *_ATTEMPTS[1:]) if by_source else _ATTEMPTS
    if not found:
        text = f"Node {context.node} reported no authentication attempt stats"
        return Outcome(text, {"attempts": [], "node": context.node, "result": "ok"})
    return ResultRows(columns, found, json={"attempts": found, "node": context.node, "result": "ok"})


@command(banner="Reset auth attempt metrics on node {context.node} ...")
def reset_node_auth_attempt_metrics(context: CommandContext) -> None:
    """Resets the counts of authentication attempts."""
    context.api.delete("auth", "attempts", context.node)


@command((_UNIT, TIMEOUT), banner="Reporting memory breakdown on node {context.node}...", check=_check_unit)
def memory_breakdown(context: CommandContext) -> Result:
    """Provides a memory usage breakdown."""
    memory = context.api.get("nodes", context.node, "memory")["memory"]
    found = _memory_parts(memory)
    if context.text("formatter") == "csv":
        flat = {f"{part.name}.percentage": part.percentage for part in found}
        flat.update({f"{part.name}.bytes": part.size for part in found})
        return ResultRows(tuple(sorted(flat, reverse=True)), [flat])
    lines = [f"{part.name}: {_format_size(part.size, _unit(context))} ({part.percentage}%)" for part in found]
    json = {part.name: {"bytes": part.size, "percentage": part.percentage} for part in found}
    # rabbitmqctl prints this empty line.
    return Outcome("\n".join([*lines, ""]), json)


@command(banner="Reporting server status of node {context.node} ...\n")
def report(context: CommandContext) -> Result:
    """Prints all objects of the API, for a bug report."""
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


@command((_UNIT, TIMEOUT), banner="Status of node {context.node} ...", check=_check_unit)
def status(context: CommandContext) -> Result:
    """Displays status of a node."""
    data = {
        "overview": context.api.get("overview"),
        "node": _node_object(context),
        "memory": context.api.get("nodes", context.node, "memory")["memory"],
        "listeners": listeners(context),
        "alarms": alarms(context),
        "vhosts": len(context.api.get("vhosts", columns="name")),
    }
    if context.json:
        return Outcome(json=_status_json(data))
    return Outcome(_format_sections(_status_sections(data, _unit(context))))


def _status_sections(data: dict[str, Any], size: str) -> dict[str, list[str]]:
    overview, node, memory = data["overview"], data["node"], data["memory"]
    totals = overview.get("object_totals", {})
    name, version = product_and_version(overview)
    return {
        "Runtime": [
            f"OS PID: {node['os_pid']}",
            f"Uptime (seconds): {node['uptime'] // 1000}",
            "Is under maintenance?: false",
            f"{name} version: {version}",
            *([f"RabbitMQ version: {overview.get('rabbitmq_version', '')}"] if name != "RabbitMQ" else ()),
            f"Node name: {overview['node']}",
            f"Erlang configuration: {overview.get('erlang_full_version', '')}",
            f"Erlang processes: {node.get('proc_used', 0)} used, {node.get('proc_total', 0)} limit",
            f"Scheduler run queue: {node.get('run_queue', 0)}",
            f"Cluster heartbeat timeout (net_ticktime): {node.get('net_ticktime', 0)}",
        ],
        "Plugins": ["Enabled plugins:", "", *_bullets(node.get("enabled_plugins"))],
        "Data directory": [f"Node data directory: {node.get('db_dir', '')}"],
        "Config files": _bullets(node.get("config_files")),
        "Log file(s)": _bullets(node.get("log_files")),
        "Alarms": [line for _, line in data["alarms"]] or ["(none)"],
        "Memory": [
            f"Total memory used: {_format_size(_total_used(memory), size)}",
            f"Calculation strategy: {memory.get('strategy', '')}",
            f"Memory high watermark computed to: {_format_size(node.get('mem_limit', 0), size)}",
            "",
            *(f"{part.name}: {_format_size(part.size, size)} ({part.percentage} %)" for part in _memory_parts(memory)),
        ],
        "File Descriptors": [
            f"Total: {node.get('fd_used', 0)}, limit: {node.get('fd_total', 0)}",
            f"Sockets: {node.get('sockets_used', 0)}, limit: {node.get('sockets_total', 0)}",
        ],
        "Free Disk Space": [
            f"Low free disk space watermark: {_format_size(node.get('disk_free_limit', 0), size)}",
            f"Free disk space: {_format_size(node.get('disk_free', 0), size)}",
        ],
        "Totals": [
            f"Connection count: {totals.get('connections', 0)}",
            f"Queue count: {totals.get('queues', 0)}",
            f"Virtual host count: {data['vhosts']}",
        ],
        "Listeners": [listener_line(each) for each in data["listeners"]],
    }


def _bullets(values: list[str] | None) -> list[str]:
    return [f" * {value}" for value in values or ()] or ["(none)"]


def _status_json(data: dict[str, Any]) -> dict[str, Any]:
    overview, node = data["overview"], data["node"]
    totals = overview.get("object_totals", {})
    return {
        "active_plugins": node.get("enabled_plugins", []),
        "alarms": [{"node": overview["node"], "resource": resource} for resource, _ in data["alarms"]],
        "config_files": node.get("config_files", []),
        "data_directory": node.get("db_dir", ""),
        "disk_free": node.get("disk_free", 0),
        "disk_free_limit": node.get("disk_free_limit", 0),
        "erlang_version": overview.get("erlang_full_version", ""),
        "file_descriptors": {
            "sockets_limit": node.get("sockets_total", 0),
            "sockets_used": node.get("sockets_used", 0),
            "total_limit": node.get("fd_total", 0),
            "total_used": node.get("fd_used", 0),
        },
        "is_under_maintenance": False,
        "listeners": data["listeners"],
        "log_files": node.get("log_files", []),
        "memory": data["memory"],
        "net_ticktime": node.get("net_ticktime", 0),
        "pid": int(node["os_pid"]),
        "processes": {"limit": node.get("proc_total", 0), "used": node.get("proc_used", 0)},
        "product_name": overview.get("product_name", ""),
        "product_version": overview.get("product_version", ""),
        "rabbitmq_version": overview.get("rabbitmq_version", ""),
        "release_series_support_status": overview.get("release_series_support_status", ""),
        "run_queue": node.get("run_queue", 0),
        "totals": {
            "virtual_host_count": data["vhosts"],
            "connection_count": totals.get("connections", 0),
            "queue_count": totals.get("queues", 0),
        },
        "uptime": node["uptime"] // 1000,
        "vm_memory_calculation_strategy": node.get("mem_calculation_strategy", ""),
        "vm_memory_high_watermark_limit": node.get("mem_limit", 0),
    }


_START_TIMEOUT: Final = 300


@command((TIMEOUT,), banner="Cluster status of node {context.node} ...")
def cluster_status(context: CommandContext) -> Result:
    """Displays name, version, alarms, listeners and feature flags."""
    overview = context.api.get("overview")
    node, flags = overview["node"], context.api.get("feature-flags")
    nodes = context.api.get("nodes", columns="name,running")
    known, running = [each["name"] for each in nodes], [each["name"] for each in nodes if each["running"]]
    found, alarmed = listeners(context), alarms(context)
    name, version = product_and_version(overview)
    if context.json:
        versions = {
            "erlang_version": overview.get("erlang_version", ""),
            "rabbitmq_name": name,
            "rabbitmq_version": version,
        }
        json = {
            "alarms": [{"node": node, "resource": resource} for resource, _ in alarmed],
            "cluster_name": overview.get("cluster_name", ""),
            "disk_nodes": known,
            "feature_flags": flags,
            "listeners": {node: found},
            "maintenance_status": dict.fromkeys(running, "not under maintenance"),
            "partitions": {},
            "ram_nodes": [],
            "running_nodes": running,
            "versions": dict.fromkeys(running, versions),
        }
        return Outcome(json=json)
    sections = {
        "Basics": [f"Cluster name: {overview.get('cluster_name', '')}"],
        "Disk Nodes": known,
        "Running Nodes": running,
        "Versions": [
            f"{each}: {name} {version} on {_runtime_version(overview).replace('/OTP', '')}" for each in running
        ],
        "Maintenance status": [f"Node: {each}, status: not under maintenance" for each in running],
        "Alarms": [line for _, line in alarmed] or ["(none)"],
        "Network Partitions": ["(none)"],
        "Listeners": [f"Node: {node}, i{listener_line(each)[1:]}" for each in found],
        "Feature flags": [f"Flag: {flag['name']}, state: {flag['state']}" for flag in flags],
    }
    return Outcome(_format_sections(sections))


def _format_sections(sections: dict[str, list[str]]) -> str:
    """Return sections with headers, which are bold on a terminal."""
    bold = Style(terminal=sys.stdout.isatty()).bold
    return "\n\n".join("\n".join([bold(title), "", *lines]) for title, lines in sections.items())


@command((Argument("<name>"),), banner="Setting cluster name to {0} ...")
def set_cluster_name(context: CommandContext, name: str) -> None:
    """Sets the cluster name."""
    context.api.put("cluster-name", body={"name": name})


def _wait_until_up(context: CommandContext, seconds: float) -> None:
    """Wait until the API responds, for some seconds at most.

    Raises:
        CommandFault: the API does not respond within that time (exit status 75).
    """
    deadline = time.monotonic() + seconds
    while True:
        try:
            context.api.get("whoami")
        except NoAnswer:
            if time.monotonic() >= deadline:
                break
            time.sleep(min(0.2, max(0.0, deadline - time.monotonic())))
        else:
            return
    text = f"Error: operation await_startup on node {context.address} timed out. Timeout value used: {seconds:g}"
    raise CommandFault(TEMPORARY, text)


@command((option("timeout", "maximum wait in seconds; default 300"),), timeout=5)
def await_startup(context: CommandContext) -> None:
    """Waits until the broker responds."""
    _wait_until_up(context, context.integer("timeout", _START_TIMEOUT))


def _check_count(context: CommandContext) -> None:
    if not context.arguments[0].isdigit() or int(context.arguments[0]) < 1:
        raise bad_argument("Argument must be a positive integer")


def _await_banner(context: CommandContext, count: str) -> str:
    return (
        f"Will wait for at least {count} nodes to join the cluster of {context.address}."
        f" Timeout: {context.integer('timeout', _START_TIMEOUT)} seconds."
    )


@command((Argument("<count>"), TIMEOUT), banner=_await_banner, check=_check_count, timeout=5)
def await_online_nodes(context: CommandContext, count: str) -> None:
    """Waits until the broker responds; there is always one node."""
    _wait_until_up(context, context.integer("timeout", _START_TIMEOUT))
    if int(count) > 1:
        # There is always one node, so waiting would not help.
        text = f"Error: timed out while waiting. Not enough nodes joined {context.node}'s cluster."
        raise failed(text, SOFTWARE)


_FLAGS: Final = table_columns(FEATURE_FLAG)


@command((Argument("[<column> ...]", columns=_FLAGS), TIMEOUT), banner="Listing feature flags ...")
def list_feature_flags(context: CommandContext, *wanted: str) -> ResultRows:
    """Lists feature flags."""
    return list_objects(context, _FLAGS, wanted, ("name", "state"), "feature-flags")._replace(streamed=False)


def _enable_banner(context: CommandContext, name: str) -> str:
    return "Enabling all feature flags ..." if name == "all" else f'Enabling feature flag "{name}" ...'


@command((Argument("<all | feature_flag>"),), banner=_enable_banner)
def enable_feature_flag(context: CommandContext, name: str) -> None:
    """Enables a feature flag or all of them."""
    known = {flag["name"]: flag["state"] for flag in context.api.get("feature-flags")}
    if name != "all" and name not in known:
        raise failed(f"This feature flag is not supported by node {context.node}", USAGE)
    try:
        for flag, state in known.items():
            if name in ("all", flag) and state != "enabled":
                context.api.put("feature-flags", flag, "enable")
    except ApiFault as fault:
        raise failed(fault.reason) from fault
