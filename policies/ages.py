"""Ages such as 7D: how long streams keep messages, and how far back a consumer begins."""

from __future__ import annotations

from typing import Final

_DAY: Final = 86_400
#: Seconds by unit. As in RabbitMQ, a year has 365 days and a month 30.
_SECONDS: Final = {"Y": 365 * _DAY, "M": 30 * _DAY, "D": _DAY, "h": 3600, "m": 60, "s": 1}
#: Digits of a number that are read.
_DIGITS_MAX: Final = 4000


def age_seconds(text: str) -> int | None:
    """Return an age in seconds, 1 or more; None if the text is none.

    Args:
        text: Digits and one of Y, M, D, h, m, s. The number is above 0.
    """
    number, unit = text[:-1], text[-1:]
    if unit not in _SECONDS or not (number.isascii() and number.isdigit()) or not number.strip("0"):
        return None
    # Python refuses to read very many digits; so many years are for ever anyway.
    return int(number.lstrip("0")[:_DIGITS_MAX]) * _SECONDS[unit]
