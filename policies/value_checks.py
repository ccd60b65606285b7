"""Values that policy keys, arguments and limits of virtual hosts and users take, and the checks of all of them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

from leveret.protocol.erlang_terms import format_json, format_list, format_tuple

ValueType: TypeAlias = Literal["integer", "string", "boolean", "age", "delays"]
VHOST_LIMITS: Final = ("max-connections", "max-queues")
USER_LIMITS: Final = ("max-connections", "max-channels")

#: Names of AMQP's integer types in error texts.
INTEGER_TYPES: Final = frozenset(("byte", "unsignedbyte", "short", "unsignedshort", "signedint", "unsignedint", "long"))


@dataclass(frozen=True, slots=True)
class Values:
    """Description of allowed values.

    Args:
        type_name: JSON type; ``age`` is text such as 7D: a positive number and one of Y, M, D, h, m, s; ``delays`` is
            text such as 1s,10s,1m.
        least: Smallest integer; None for no bound.
        most: Largest integer; None for no bound.
        choices: All allowed values; empty if they are not enumerated.
        unit: Unit of an integer; None without one.
        refusal: Why an argument with another text, or a larger integer, is refused, as Erlang prints it; ``%s`` stands
            for the value. With an empty text larger integers are allowed in arguments.
    """

    type_name: ValueType
    least: int | None = None
    most: int | None = None
    choices: tuple[str | int, ...] = ()
    unit: str | None = None
    refusal: str = "{value_too_large,%s}"

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

    def argument_error(self, type_name: str, value: Any) -> str | None:
        """Return why the value of an argument is refused, as Erlang prints it; None if it is allowed.

        Args:
            type_name: Name of the value's type in error texts.
        """
        if self.type_name == "integer":
            return self._integer_error(type_name, value)
        if type_name != ("bool" if self.type_name == "boolean" else "longstr"):
            return f"{{unacceptable_type,{type_name}}}"
        if self.type_name == "boolean":
            return None
        text = value.decode("utf-8", "surrogateescape")
        return None if self(text) else self.refusal.replace("%s", text)

    def _integer_error(self, type_name: str, value: Any) -> str | None:
        if type_name not in INTEGER_TYPES:
            return f'"expected integer, got {type_name}"'
        if value < 0 and (self.least is not None or self.choices):
            return f"{{value_negative,{value}}}"
        if value == 0 and self.least == 1:
            return "{value_zero,0}"
        is_refused = value not in self.choices if self.choices else self.most is not None and value > self.most
        return self.refusal.replace("%s", str(value)) or None if is_refused else None


def integer(
    least: int | None = None, most: int | None = None, unit: str | None = None, refusal: str = "{value_too_large,%s}"
) -> Values:
    """Return the description of integers in a range."""
    return Values("integer", least, most, unit=unit, refusal=refusal)


def one_of(*choices: str | int, refusal: str = "") -> Values:
    """Return the description of some enumerated values, all of one type."""
    return Values("string" if isinstance(choices[0], str) else "integer", choices=choices, refusal=refusal)


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


# -- ages ---------------------------------------------------------------------------------------------------

_DAY: Final = 86_400
#: Seconds by unit. As in RabbitMQ, a year has 365 days and a month 30.
_AGE_SECONDS: Final = {"Y": 365 * _DAY, "M": 30 * _DAY, "D": _DAY, "h": 3600, "m": 60, "s": 1}
#: Digits of a number that are read.
_AGE_DIGITS_MAX: Final = 4000


def age_seconds(text: str) -> int | None:
    """Return an age in seconds, 1 or more; None if the text is none.

    Args:
        text: Digits and one of Y, M, D, h, m, s. The number is above 0.
    """
    number, unit = text[:-1], text[-1:]
    if unit not in _AGE_SECONDS or not (number.isascii() and number.isdigit()) or not number.strip("0"):
        return None
    # Python refuses to read very many digits; so many years are for ever anyway.
    return int(number.lstrip("0")[:_AGE_DIGITS_MAX]) * _AGE_SECONDS[unit]


# -- delays of messages that return: the keys delayed-retry-type and delayed-retry-steps --------------------

#: Which returns are delayed. Failed: basic.reject, and the end of a channel. Returned: all others.
ALL: Final = "all"
FAILED: Final = "failed"
RETURNED: Final = "returned"
DISABLED: Final = "disabled"
TYPES: Final = (ALL, FAILED, RETURNED, DISABLED)

_DELAY_UNITS: Final = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_STEPS_MAX: Final = 100
#: Longest delay, in milliseconds: 100,000 years, which keeps all times within 64 bits.
LONGEST: Final = 100_000 * 366 * 86_400_000
_DELAY_DIGITS: Final = 16


def parse_steps(value: Any) -> tuple[int, ...] | None:
    """Parse a list of delays such as ``1s,10s,1m``.

    Args:
        value: The list: at least one delay and at most 100, each a positive integer and one of ms, s, m, h, d.
    Returns:
        The delays in milliseconds; None if it is no such list.
    """
    if not isinstance(value, str):
        return None
    parts = value.split(",")
    if len(parts) > _STEPS_MAX:
        return None
    steps: list[int] = []
    for part in parts:
        text = part.strip(" ")
        digits = text.rstrip("mshd")
        unit = _DELAY_UNITS.get(text[len(digits) :])
        if (
            unit is None
            or not (digits.isascii() and digits.isdigit())
            or len(digits) > _DELAY_DIGITS
            or not int(digits)
        ):
            return None
        steps.append(min(int(digits) * unit, LONGEST))
    return tuple(steps)


def format_delay(milliseconds: int) -> str:
    """Return a delay with the largest unit that it is a multiple of."""
    name, unit = next((name, unit) for name, unit in reversed(_DELAY_UNITS.items()) if milliseconds % unit == 0)
    return f"{milliseconds // unit}{name}"
