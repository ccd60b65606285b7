"""Sizes and durations with units: the same in the configuration, on command lines, in filters and in backups."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Final

#: What a message says of the units of durations.
DURATION_UNITS: Final = "ms, s, m, h, d or w"
# RabbitMQ's units, except k, M and G without B: they meant 1024ⁿ before 3.13 and mean 1000ⁿ since.
_BYTES: Final = {
    "": 1, "b": 1, "kb": 1000, "mb": 1000**2, "gb": 1000**3, "tb": 1000**4,
    "kib": 1024, "mib": 1024**2, "gib": 1024**3, "tib": 1024**4,
}  # fmt: skip
_MILLISECONDS: Final = {
    "ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 7 * 86_400_000,
}  # fmt: skip
_AMOUNT: Final = re.compile(r" *([0-9]{1,20}(?:\.[0-9]{1,9})?) *([A-Za-z]*) *", re.ASCII)


def parse_size(text: str) -> int:
    """Parse a size: digits, alone (bytes) or with kB, MB, GB, TB (1000ⁿ) or KiB, MiB, GiB, TiB (1024ⁿ) in any case.

    Raises:
        ValueError: It is not a size, or not a whole number of bytes.
    """
    number, unit = _amount(text)
    if unit.lower() not in _BYTES:
        raise ValueError(text)
    return whole(number * _BYTES[unit.lower()])


def parse_duration(text: str, unit: str = "s") -> Fraction:
    """Parse a duration: digits, alone (in `unit`) or with ms, s, m (or min), h, d or w.

    M is refused: it is a month in RabbitMQ's ages of streams.

    Args:
        unit: The unit of the result.

    Raises:
        ValueError: It is not a duration.
    """
    number, written = _amount(text)
    if written == "M" or (written and written.lower() not in _MILLISECONDS):
        raise ValueError(text)
    return number * _MILLISECONDS[written.lower() or unit] / _MILLISECONDS[unit]


def whole(amount: Fraction) -> int:
    """Return a whole number.

    Raises:
        ValueError: It is none.
    """
    if amount.denominator != 1:
        raise ValueError(str(amount))
    return int(amount)


def _amount(text: str) -> tuple[Fraction, str]:
    match = _AMOUNT.fullmatch(text)
    if match is None:
        raise ValueError(text)
    return Fraction(match[1]), match[2]
