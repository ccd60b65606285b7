"""Groups of options: the names before the last dot."""

from __future__ import annotations

from leveret.broker.config.options import OPTIONS


def is_group(name: str) -> bool:
    """Return whether there is a group of this name."""
    return bool(members(name))


def members(group: str) -> list[str]:
    """Return the dotted names of the options in a group."""
    return [name for name in OPTIONS if name.startswith(f"{group}.")]
