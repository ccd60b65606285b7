"""Parsers of sizes and durations with units: `64MiB`, `10s`."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Final

# RabbitMQ's units, except k, M and G without B: they meant 1024ⁿ before 3.13 and mean 1000ⁿ since.
_BYTES: Final = {
    "": 1,
    "b": 1,
    "kb": 1000,
    "mb": 1000**2,
    "gb": 1000**3,
    "tb": 1000**4,
    "kib": 1024,
    "mib": 1024**2,
    "gib": 1024**3,
    "tib": 1024**4,
}
_SECONDS: Final = {
    "ms": Fraction(1, 1000),
    "s": Fraction(1),
    "min": Fraction(60),
    "h": Fraction(3600),
}
_AMOUNT: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?) *([A-Za-z]*)", re.ASCII)


def parse_size(text: str) -> int:
    """Parse a size.

    Args:
        text: Digits, alone (bytes) or with kB, MB, GB, TB (1000ⁿ) or KiB, MiB, GiB, TiB (1024ⁿ) in any case.

    Returns:
        Bytes.

    Raises:
        ValueError: It is not a size, or not a whole number of bytes.
    """
    number, unit = _split(text)
    if unit not in _BYTES:
        raise ValueError(text)
    return _whole(number * _BYTES[unit])


def parse_duration(text: str, unit: str) -> int:
    """Parse a duration.

    Args:
        text: Digits, alone (in `unit`) or with ms, s, min or h.
        unit: The unit of the result: ms, s, min or h.

    Returns:
        The duration in `unit`.

    Raises:
        ValueError: It is not a duration, or not a whole number of `unit`.
    """
    number, written = _split(text)
    written = written or unit
    if written not in _SECONDS:
        raise ValueError(text)
    return _whole(number * _SECONDS[written] / _SECONDS[unit])


def _split(text: str) -> tuple[Fraction, str]:
    match = _AMOUNT.fullmatch(text.strip())
    if match is None:
        raise ValueError(text)
    return Fraction(match[1]), match[2].lower()


def _whole(amount: Fraction) -> int:
    if amount.denominator != 1:
        raise ValueError(str(amount))
    return int(amount)
