"""What the broker's memory goes to."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from leveret.broker.management.cli.command import CommandContext
from leveret.broker.management.cli.faults import UsageFault

UNITS: Final = {"bytes": 1, "mb": 1_000_000, "gb": 1_000_000_000}
_NO_PARTS: Final = ("strategy", "total")


class Part(NamedTuple):
    """One part of the memory.

    Args:
        name: what it goes to.
        size: bytes.
        percentage: of all.
    """

    name: str
    size: int
    percentage: float


def unit(context: CommandContext) -> str:
    """Return the unit that sizes are to be in."""
    return context.text("unit", "gb").lower()


def check_unit(context: CommandContext) -> None:
    """Check the unit.

    Raises:
        UsageFault: there is no such unit.
    """
    if unit(context) not in UNITS:
        raise UsageFault(f"\"unit '{unit(context)}' is not supported. Please use one of: {', '.join(UNITS)}\"")


def amount(size: float, unit_name: str) -> str:
    """Return a size in a unit, with four digits after the point."""
    factor = UNITS[unit_name]
    return f"{size} {unit_name}" if factor == 1 else f"{round(size / factor, 4)} {unit_name}"


def total(memory: dict[str, Any]) -> int:
    """Return how much memory there is in use, by the strategy that the broker counts with."""
    sums = memory.get("total", 0)
    if not isinstance(sums, dict):
        return int(sums)
    strategy = str(memory.get("strategy", "rss"))
    return int(sums[strategy if strategy in sums else "rss"])


def parts(memory: dict[str, Any]) -> list[Part]:
    """Return the parts, largest first."""
    everything = total(memory)
    found = [
        Part(name, size, round(100 * size / everything, 2) if everything else 0.0)
        for name, size in memory.items()
        if name not in _NO_PARTS
    ]
    return sorted(found, key=lambda part: -part.size)
