"""Parses the conditions of `move_messages --filter`."""

from __future__ import annotations

import json
from typing import Any, Final

from leveret.broker.management.cli.faults import bad_argument

KEYS: Final = ("routing_key", "exchange", "queue", "reason")
_HEADER: Final = "header."


def read_conditions(text: str) -> dict[str, Any]:
    """Parse conditions into the `filter` object of the API.

    Args:
        text: one condition per line, either `key=value` or a JSON object.

    Raises:
        UsageFault: a condition has another form or an unknown key.
    """
    conditions: dict[str, Any] = {}
    for line in text.splitlines():
        if line.lstrip().startswith("{"):
            conditions.update(_object(line))
            continue
        key, equals, value = line.partition("=")
        if not equals:
            raise bad_argument(f"--filter takes <key>=<value>, not {line}")
        if key in KEYS:
            conditions[key] = value
        elif key.startswith(_HEADER) and len(key) > len(_HEADER):
            conditions.setdefault("headers", {})[key.removeprefix(_HEADER)] = _value(value)
        else:
            raise bad_argument(f"--filter takes the keys {', '.join(KEYS)} and header.<name>, not {key}")
    return conditions


def _object(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise bad_argument(f"--filter is not a JSON object: {text}")
    return found


def _value(text: str) -> Any:
    """Return the value of a header: decoded if it is JSON, such as 5 or true, otherwise the text itself."""
    try:
        return json.loads(text)
    except ValueError:
        return text
