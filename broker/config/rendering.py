"""Prints options: the reference of all (`leveret config-reference`), and the effective configuration."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from leveret.broker.config.declaration import Option, option_values
from leveret.broker.config.options import OPTIONS, Settings
from leveret.storage.url_secrets import MASK

_INTRODUCTION: Final = """# Configuration

Every option of Leveret, as printed by `leveret config-reference`. Options come from a YAML file (`--config FILE`, or
the environment variable `LEVERET_CONFIG_FILE`), the environment and the command line. The command line overrides the
environment, and the environment overrides the file. In the file, names are nested or dotted; `--set NAME=VALUE` sets
any option. Names and meanings are those of rabbitmq.conf if it has the option. In the environment and on the command
line, lists are separated by commas.

`leveret check-config` with the same arguments and environment reports everything that is wrong, with file and line,
and starts nothing; see [Operations](operations.md#check-a-configuration).

**Reload**: `SIGHUP` applies a new value without a restart.

"""


def reference_page() -> str:
    """Render docs/configuration.md: the reference with its introduction."""
    return _INTRODUCTION + reference_table()


def reference_table() -> str:
    """Render every option as a row of a Markdown table."""
    rows = [
        ("Option", "Default", "Allowed", "Environment", "Flag", "Reload", "What it does"),
        ("---",) * 7,
        *(_row(option) for option in OPTIONS.values()),
    ]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def _row(option: Option) -> tuple[str, ...]:
    return (
        _code(option.name),
        _default(option),
        _escape(option.kind.allowed),
        _code(option.environment),
        _code(option.flag) if option.flag else "",
        "yes" if option.reloadable else "",
        _escape(option.help),
    )


def _default(option: Option) -> str:
    value = option.default
    if value is None:
        return "none"
    if isinstance(value, bool):
        return _code(str(value).lower())
    if isinstance(value, tuple | Mapping):
        return _code(json.dumps(value))
    return " ".join(filter(None, (_code(str(value)), option.kind.unit)))


def _code(text: str) -> str:
    return f"`{_escape(text)}`"


def _escape(text: str) -> str:
    return text.replace("|", "\\|")


def effective_configuration(settings: Settings, origins: Mapping[str, str]) -> str:
    """Format every option as a line of YAML with the origin of its value.

    Returns:
        The lines. Secrets that are set are masked.
    """
    effective = option_values(settings)
    return "".join(_line(name, effective[name], origins.get(name)) for name in OPTIONS)


def _line(name: str, value: object, origin: str | None) -> str:
    shown = value if origin is None else OPTIONS[name].shown(value)
    if isinstance(value, Mapping) and shown == MASK:
        # A value of the same type, so that the output can be read as a configuration.
        shown = {MASK: MASK}
    written = json.dumps(_plain(shown))
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
