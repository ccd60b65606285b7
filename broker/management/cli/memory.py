"""Memory breakdown of the broker."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from leveret.broker.management.cli.command import CommandContext
from leveret.broker.management.cli.faults import UsageFault

UNITS: Final = {"bytes": 1, "mb": 1_000_000, "gb": 1_000_000_000}
_NO_PARTS: Final = ("strategy", "total")


class MemoryPart(NamedTuple):
    """Part of the memory in use.

    Args:
        name: name of the category.
        size: bytes.
        percentage: percentage of the total.
    """

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
