"""Prints the effective configuration as a YAML file."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from leveret.broker.config.declaration import option_values
from leveret.broker.config.options import OPTIONS

if TYPE_CHECKING:
    from leveret.broker.config.options import Settings

_SECRET: Final = "********"


def render(settings: Settings, origins: Mapping[str, str]) -> str:
    """Format every option as a line of YAML with the origin of its value.

    Args:
        settings: The configuration.
        origins: Origin of each value that is set, by dotted name.

    Returns:
        The lines. Secrets that are set are masked.
    """
    effective = option_values(settings)
    return "".join(_line(name, effective[name], origins.get(name)) for name in OPTIONS)


def _line(name: str, value: object, origin: str | None) -> str:
    if OPTIONS[name].secret and value and origin is not None:
        # A value of the same type, so that the output can be read as a configuration.
        value = {_SECRET: _SECRET} if isinstance(value, Mapping) else _SECRET
    written = json.dumps(_plain(value))
    return f"{name}: {written}  # {origin or 'default'}\n"


def _plain(value: object) -> object:
    """Convert a value for JSON, which is valid YAML."""
    if isinstance(value, tuple):
        return [_plain(each) for each in value]
    if isinstance(value, Mapping):
        return dict(value)
    if value is None or isinstance(value, bool | int | float):
        return value
    return str(value.absolute() if isinstance(value, Path) else value)
