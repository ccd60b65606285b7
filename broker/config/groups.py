"""The groups that options are in: the names before the last dot."""

from __future__ import annotations

from leveret.broker.config.options import OPTIONS


def is_group(name: str) -> bool:
    """Whether options are in a group of this name."""
    return bool(members(name))


def members(group: str) -> list[str]:
    """The dotted names of the options in a group."""
    return [name for name in OPTIONS if name.startswith(f"{group}.")]
