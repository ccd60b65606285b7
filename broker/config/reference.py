"""The option reference, rendered from the declarations: `leveret config-reference`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from broker.config.options import OPTIONS

if TYPE_CHECKING:
    from broker.config.declaration import Option


_INTRODUCTION: Final = """# Configuration

Every option of Leveret, as `leveret config-reference` prints it. Options come from a YAML file (`--config FILE`, or the
environment variable `LEVERET_CONFIG_FILE`), the environment and the command line; the later of these comes before the
earlier. In the file, names are nested or dotted; `--set name=value` sets any option. Names and meanings are those of
rabbitmq.conf where it has the option. A list is written with commas in the environment and on the command line.

`leveret check-config` with the same arguments and environment tells all that is wrong, with file and line, and starts
nothing; `--print` has it show what is in force and where it comes from. It exits with 0 if nothing is wrong, with 1 if
something is, with 2 if that is on the command line.

**Reload** says whether `SIGHUP` puts a new value in force without a restart.

"""


def page() -> str:
    """Render the reference with its introduction, as it stands in CONFIGURATION.md."""
    return _INTRODUCTION + render()


def render() -> str:
    """Render every option as a row of a Markdown table.

    Returns:
        The table, with a line feed at its end.
    """
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
