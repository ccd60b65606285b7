"""The configuration that is in force, as a file that would give it again."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from leveret.broker.config.declaration import values
from leveret.broker.config.options import OPTIONS

if TYPE_CHECKING:
    from leveret.broker.config.options import Settings

_SECRET: Final = "********"


def render(settings: Settings, origins: Mapping[str, str]) -> str:
    """Write every option in a line of YAML, and where its value comes from.

    Args:
        settings: The configuration.
        origins: Where values stood that were given, by dotted name.

    Returns:
        The lines. Secrets that were given are not in them.
    """
    found = values(settings)
    return "".join(_line(name, found[name], origins.get(name)) for name in OPTIONS)


def _line(name: str, value: object, origin: str | None) -> str:
    if OPTIONS[name].secret and value and origin is not None:
        # Of the same kind, so that it can be read again.
        value = {_SECRET: _SECRET} if isinstance(value, Mapping) else _SECRET
    written = json.dumps(_plain(value))
    return f"{name}: {written}  # {origin or 'default'}\n"


def _plain(value: object) -> object:
    """A value as JSON can say it, which is YAML too."""
    if isinstance(value, tuple):
        return [_plain(each) for each in value]
    if isinstance(value, Mapping):
        return dict(value)
    if value is None or isinstance(value, bool | int | float):
        return value
    return str(value.absolute() if isinstance(value, Path) else value)
