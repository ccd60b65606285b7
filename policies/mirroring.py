"""Validation of policy keys of mirrored classic queues. They have no effect, as there is one node.

They are accepted because exported definitions of clusters contain them.

Source: RabbitMQ 3.10.8, observed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from leveret.protocol.erlang_terms import format_json

_MODE: Final = "ha-mode"
_LOCATOR: Final = "queue-master-locator"
_LOCATORS: Final = ("client-local", "min-masters", "random")
_PROMOTIONS: Final = ("always", "when-synced")

#: Policies with one of these keys apply to classic queues and exchanges only.
MIRRORING_KEYS: Final = frozenset(
    (
        _MODE,
        "ha-params",
        "ha-sync-mode",
        "ha-sync-batch-size",
        "ha-promote-on-shutdown",
        "ha-promote-on-failure",
        _LOCATOR,
    )
)


def refuse_locator(definition: Mapping[str, Any]) -> str | None:
    """Return why the queue master locator is refused; None if it is valid or not set.

    Args:
        definition: JSON value by key.
    """
    locator = definition.get(_LOCATOR, _LOCATORS[0])
    return None if locator in _LOCATORS else f"{format_json(locator)} invalid {_LOCATOR} value"


def refuse_mirroring(definition: Mapping[str, Any]) -> str | None:
    """Return why the mirroring keys are refused; None if they are valid or not set.

    Args:
        definition: JSON value by key.
    """
    if not any(name in MIRRORING_KEYS and name != _LOCATOR for name in definition):
        return None
    if _MODE not in definition:
        return "ha-mode must be specified to specify ha-params, ha-sync-mode or ha-promote-on-shutdown"
    return _refuse_mode(definition) or _refuse_details(definition)


def _refuse_mode(definition: Mapping[str, Any]) -> str | None:
    mode, has_count, count = definition[_MODE], "ha-params" in definition, definition.get("ha-params")
    given = format_json(count) if has_count else "none"
    if mode == "all":
        return 'ha-mode="all" does not take parameters' if has_count else None
    if mode == "exactly":
        return None if _is_positive(count) else f'ha-mode="exactly" takes an integer, {given} given'
    if mode != "nodes":
        return f"{format_json(mode)} is not a valid ha-mode value"
    if not isinstance(count, list | tuple):
        return f'ha-mode="nodes" takes a list, {given} given'
    if not count:
        return 'ha-mode="nodes" list must be non-empty'
    invalid = [name for name in count if not isinstance(name, str)]
    return f'ha-mode="nodes" takes a list of strings, {format_json(invalid)} was not a string' if invalid else None


def _refuse_details(definition: Mapping[str, Any]) -> str | None:
    mode = definition.get("ha-sync-mode", "manual")
    if mode not in ("manual", "automatic"):
        return f'ha-sync-mode must be "manual" or "automatic", got {format_json(mode)}'
    size = definition.get("ha-sync-batch-size", 1)
    if not _is_positive(size):
        return f"ha-sync-batch-size takes an integer greater than 0, {format_json(size)} given"
    for key in ("ha-promote-on-shutdown", "ha-promote-on-failure"):
        promotion = definition.get(key, _PROMOTIONS[0])
        if promotion not in _PROMOTIONS:
            return f'{key} must be "always" or "when-synced", got {format_json(promotion)}'
    return None


def _is_positive(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0
