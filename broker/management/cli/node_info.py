"""Data about the node from the API, in rabbitmqctl's terms: listeners, alarms, memory."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from leveret.broker.management.cli.command import CommandContext
from leveret.broker.management.cli.command_errors import UsageFault
from leveret.broker.management.cli.command_line import option

PURPOSES: Final = {
    "amqp": "AMQP 0-9-1",
    "amqp/ssl": "AMQP 0-9-1 over TLS",
    "clustering": "inter-node and CLI tool communication",
    "http": "HTTP API",
    "https": "HTTP API over TLS (HTTPS)",
    "http/prometheus": "Prometheus exporter API over HTTP",
    "https/prometheus": "Prometheus exporter API over TLS (HTTPS)",
}
# Aliases of protocols that the checks accept.
PROTOCOLS: Final = {"amqp091": "amqp", "amqps": "amqp/ssl", "amqp-ssl": "amqp/ssl"}
_ALARMS: Final = (
    ("mem_alarm", "memory", "Memory alarm on node {}"),
    ("disk_free_alarm", "disk", "Free disk space alarm on node {}"),
)
UNITS: Final = {"bytes": 1, "mb": 1_000_000, "gb": 1_000_000_000}
UNIT: Final = option("unit", "unit of the sizes; default gb", shown="--unit <bytes | mb | gb>", values=tuple(UNITS))
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
            "purpose": PURPOSES.get(each["protocol"], each["protocol"]),
        }
        for each in found
    ]


def listener_line(listener: dict[str, Any]) -> str:
    """Return the description of a listener on one line."""
    return "Interface: {interface}, port: {port}, protocol: {protocol}, purpose: {purpose}".format_map(listener)


def node_object(context: CommandContext, **query: Any) -> dict[str, Any]:
    """Return the API object of the node."""
    found: dict[str, Any] = context.api.get("nodes", context.node, **query)
    return found


def alarms(context: CommandContext) -> list[tuple[str, str]]:
    """Return the alarms in effect as pairs of resource and description."""
    found = node_object(context)
    return [(resource, line.format(context.node)) for key, resource, line in _ALARMS if found.get(key)]


def runtime_version(overview: dict[str, Any]) -> str:
    """Return name and version of the runtime."""
    whole = str(overview.get("erlang_full_version", ""))
    return f"Erlang/OTP {overview.get('erlang_version', '')}" if whole.startswith("Erlang") else whole


def product_and_version(overview: dict[str, Any]) -> tuple[str, str]:
    """Return name and version of the broker product."""
    name = overview.get("product_name") or "RabbitMQ"
    return name, overview.get("product_version") or overview.get("rabbitmq_version", "")


class MemoryPart(NamedTuple):
    """Category of the memory in use, with its bytes and their percentage of the total."""

    name: str
    size: int
    percentage: float


def unit(context: CommandContext) -> str:
    """Return the unit of sizes in the output."""
    return context.text("unit", "gb").lower()


def check_unit(context: CommandContext) -> None:
    """Check the option `--unit`.

    Raises:
        UsageFault: the unit is unknown.
    """
    if unit(context) not in UNITS:
        raise UsageFault(f"\"unit '{unit(context)}' is not supported. Please use one of: {', '.join(UNITS)}\"")


def format_size(size: float, unit_name: str) -> str:
    """Return a size in a unit, rounded to four decimal places."""
    factor = UNITS[unit_name]
    return f"{size} {unit_name}" if factor == 1 else f"{round(size / factor, 4)} {unit_name}"


def total_used(memory: dict[str, Any]) -> int:
    """Return the memory in use in bytes, by the broker's calculation strategy."""
    sums = memory.get("total", 0)
    if not isinstance(sums, dict):
        return int(sums)
    strategy = str(memory.get("strategy", "rss"))
    return int(sums[strategy if strategy in sums else "rss"])


def memory_parts(memory: dict[str, Any]) -> list[MemoryPart]:
    """Return the parts of the memory, largest first."""
    everything = total_used(memory)
    found = [
        MemoryPart(name, size, round(100 * size / everything, 2) if everything else 0.0)
        for name, size in memory.items()
        if name not in _NO_PARTS
    ]
    return sorted(found, key=lambda part: -part.size)
