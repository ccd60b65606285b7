"""Values of the keys delayed-retry-type and delayed-retry-steps."""

from __future__ import annotations

from typing import Any, Final

#: Which returns are delayed. Failed: basic.reject, and the end of a channel. Returned: all others.
ALL: Final = "all"
FAILED: Final = "failed"
RETURNED: Final = "returned"
DISABLED: Final = "disabled"
TYPES: Final = (ALL, FAILED, RETURNED, DISABLED)

_UNITS: Final = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_STEPS_MAX: Final = 100
#: Longest delay, in milliseconds: 100,000 years, which keeps all times within 64 bits.
LONGEST: Final = 100_000 * 366 * 86_400_000
_DIGITS_MAX: Final = 16


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
        unit = _UNITS.get(text[len(digits) :])
        if unit is None or not (digits.isascii() and digits.isdigit()) or len(digits) > _DIGITS_MAX or not int(digits):
            return None
        steps.append(min(int(digits) * unit, LONGEST))
    return tuple(steps)


def format_delay(milliseconds: int) -> str:
    """Return a delay with the largest unit that it is a multiple of."""
    name, unit = next((name, unit) for name, unit in reversed(_UNITS.items()) if milliseconds % unit == 0)
    return f"{milliseconds // unit}{name}"
