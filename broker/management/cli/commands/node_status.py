"""The command status."""

from __future__ import annotations

from typing import Any, Final

from leveret.broker.management.cli.command import Command, CommandContext, Outcome, Result
from leveret.broker.management.cli.commands.cluster import format_sections
from leveret.broker.management.cli.node_info import (
    alarms,
    check_unit,
    format_size,
    listener_line,
    listeners,
    memory_parts,
    node_object,
    product_and_version,
    total_used,
    unit,
)

Section = tuple[str, list[str]]


def _status(context: CommandContext) -> Result:
    data = {
        "overview": context.api.get("overview"),
        "node": node_object(context),
        "memory": context.api.get("nodes", context.node, "memory")["memory"],
        "listeners": listeners(context),
        "alarms": alarms(context),
        "vhosts": len(context.api.get("vhosts", columns="name")),
    }
    if context.json:
        return Outcome(json=_json(data))
    size = unit(context)
    sections = [*_runtime_sections(data), *_resource_sections(data, size), *_totals_and_listeners(data)]
    return Outcome(format_sections(sections))


def _runtime_sections(data: dict[str, Any]) -> list[Section]:
    overview, node = data["overview"], data["node"]
    name, version = product_and_version(overview)
    runtime = [
        f"OS PID: {node['os_pid']}",
        f"Uptime (seconds): {node['uptime'] // 1000}",
        "Is under maintenance?: false",
        f"{name} version: {version}",
        f"Node name: {overview['node']}",
        f"Erlang configuration: {overview.get('erlang_full_version', '')}",
        f"Erlang processes: {node.get('proc_used', 0)} used, {node.get('proc_total', 0)} limit",
        f"Scheduler run queue: {node.get('run_queue', 0)}",
        f"Cluster heartbeat timeout (net_ticktime): {node.get('net_ticktime', 0)}",
    ]
    if name != "RabbitMQ":
        runtime.insert(4, f"RabbitMQ version: {overview.get('rabbitmq_version', '')}")
    return [
        ("Runtime", runtime),
        ("Plugins", ["Enabled plugins:", "", *_bullets(node.get("enabled_plugins"))]),
        ("Data directory", [f"Node data directory: {node.get('db_dir', '')}"]),
        ("Config files", _bullets(node.get("config_files"))),
        ("Log file(s)", _bullets(node.get("log_files"))),
        ("Alarms", [line for _, line in data["alarms"]] or ["(none)"]),
    ]


def _bullets(values: list[str] | None) -> list[str]:
    return [f" * {value}" for value in values or ()] or ["(none)"]


def _resource_sections(data: dict[str, Any], size: str) -> list[Section]:
    node, memory = data["node"], data["memory"]
    return [
        (
            "Memory",
            [
                f"Total memory used: {format_size(total_used(memory), size)}",
                f"Calculation strategy: {memory.get('strategy', '')}",
                f"Memory high watermark computed to: {format_size(node.get('mem_limit', 0), size)}",
                "",
                *(
                    f"{part.name}: {format_size(part.size, size)} ({part.percentage} %)"
                    for part in memory_parts(memory)
                ),
            ],
        ),
        (
            "File Descriptors",
            [
                f"Total: {node.get('fd_used', 0)}, limit: {node.get('fd_total', 0)}",
                f"Sockets: {node.get('sockets_used', 0)}, limit: {node.get('sockets_total', 0)}",
            ],
        ),
        (
            "Free Disk Space",
            [
                f"Low free disk space watermark: {format_size(node.get('disk_free_limit', 0), size)}",
                f"Free disk space: {format_size(node.get('disk_free', 0), size)}",
            ],
        ),
    ]


def _totals_and_listeners(data: dict[str, Any]) -> list[Section]:
    totals = data["overview"].get("object_totals", {})
    return [
        (
            "Totals",
            [
                f"Connection count: {totals.get('connections', 0)}",
                f"Queue count: {totals.get('queues', 0)}",
                f"Virtual host count: {data['vhosts']}",
            ],
        ),
        ("Listeners", [listener_line(each) for each in data["listeners"]]),
    ]


def _json(data: dict[str, Any]) -> dict[str, Any]:
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


COMMANDS: Final = (
    Command(
        name="status",
        section="Monitoring, observability and health checks",
        summary="Displays status of a node",
        usage="[--unit <unit>] [--timeout <timeout>]",
        run=_status,
        options=("unit",),
        check=check_unit,
        banner=lambda context: f"Status of node {context.node} ...",
        explanations=(("--unit <bytes | mb | gb>", "unit of the sizes; default gb"),),
    ),
)
