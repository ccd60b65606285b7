"""Values that policy keys, queue arguments, and limits of virtual hosts and users take, and their validation."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

from leveret.policies.ages import age_seconds
from leveret.policies.retry_values import parse_steps
from leveret.protocol.erlang_terms import format_json, format_list, format_tuple

ValueType: TypeAlias = Literal["integer", "string", "boolean", "age", "delays"]
VHOST_LIMITS: Final = ("max-connections", "max-queues")
USER_LIMITS: Final = ("max-connections", "max-channels")


@dataclass(frozen=True, slots=True)
class Values:
    """Description of allowed values. Called with a JSON value, it returns whether the value is allowed.

    Args:
        type_name: JSON type; ``age`` is text such as 7D: a positive number and one of Y, M, D, h, m, s; ``delays`` is
            text such as 1s,10s,1m.
        least: Smallest integer; None for no bound.
        most: Largest integer; None for no bound.
        choices: All allowed values; empty if they are not enumerated.
        unit: Unit of an integer; None without one.
    """

    type_name: ValueType
    least: int | None = None
    most: int | None = None
    choices: tuple[str | int, ...] = ()
    unit: str | None = None

    def __call__(self, value: Any) -> bool:
        """Return whether a JSON value is allowed."""
        if self.choices:
            return any(type(value) is type(each) and value == each for each in self.choices)
        if self.type_name == "integer":
            is_integer = isinstance(value, int) and not isinstance(value, bool)
            return is_integer and self._is_in_range(value)
        if self.type_name == "boolean":
            return isinstance(value, bool)
        if self.type_name == "delays":
            return parse_steps(value) is not None
        return isinstance(value, str) and (self.type_name == "string" or age_seconds(value) is not None)

    def _is_in_range(self, value: int) -> bool:
        return (self.least is None or value >= self.least) and (self.most is None or value <= self.most)


def integer(least: int, most: int | None = None, unit: str | None = None) -> Values:
    """Return the description of integers in a range."""
    return Values("integer", least, most, unit=unit)


def one_of(*choices: str | int) -> Values:
    """Return the description of some enumerated values, all of one type."""
    return Values("string" if isinstance(choices[0], str) else "integer", choices=choices)


def limits_error(limits: Mapping[str, Any], known: Collection[str], name: str) -> str | None:
    """Return why limits are refused; None if they are valid. A negative number means no limit.

    Args:
        limits: Number by name.
        known: Existing names of limits.
        name: Name of the set of limits in error texts: ``limits`` or ``user-limits``.
    """
    unknown = [format_tuple(format_json(key), format_json(value)) for key, value in limits.items() if key not in known]
    if unknown:
        return f"Unrecognised terms {format_list(unknown)} in {name}"
    for key, value in limits.items():
        if not isinstance(value, int) or isinstance(value, bool):
            return f"{key} should be a number, actually was {format_json(value)}"
    return None
