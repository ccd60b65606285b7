"""The option reference, rendered from the declarations."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING

from broker.config.options import OPTIONS

if TYPE_CHECKING:
    from broker.config.declaration import Option


def render() -> str:
    """Render every option as a row of a Markdown table.

    Returns:
        The table, with a line feed at its end.
    """
    rows = [
        ("Option", "Default", "Allowed", "Environment", "Flag", "What it does"),
        ("---",) * 6,
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
