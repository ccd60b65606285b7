"""Limits of virtual hosts and users, and the values that they take.

Source: RabbitMQ 3.10.8, observed.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final

from leveret.policies.keys import format_json_term

VHOST_LIMITS: Final = ("max-connections", "max-queues")
USER_LIMITS: Final = ("max-connections", "max-channels")


def refuse_limits(limits: Mapping[str, Any], known: Collection[str], name: str) -> str | None:
    """Return why limits are refused; None if they are valid. A negative number means no limit.

    Args:
        limits: Number by name.
        known: Existing names of limits.
        name: Name of the set of limits in error texts: ``limits`` or ``user-limits``.
    """
    unknown = [f'{{<<"{key}">>,{format_json_term(value)}}}' for key, value in limits.items() if key not in known]
    if unknown:
        return f"Unrecognised terms [{','.join(unknown)}] in {name}"
    for key, value in limits.items():
        if not isinstance(value, int) or isinstance(value, bool):
            return f"{key} should be a number, actually was {format_json_term(value)}"
    return None
