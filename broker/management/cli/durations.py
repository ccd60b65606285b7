"""Durations on the command line: `30s`, `15m`, `1h`, `7d`, or seconds without a unit."""

from __future__ import annotations

import re
from typing import Final

from leveret.broker.management.cli.faults import UsageFault

_SECONDS: Final = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86_400}
_FORM: Final = re.compile(r"(\d{1,9}(?:\.\d{1,3})?)([smhd]?)", re.ASCII)


def read_duration(option: str, text: str) -> float:
    """Return a duration in seconds.

    Args:
        option: What the user has typed it for, for the error.
        text: A number with the unit s, m, h or d; without one it is in seconds.
    Raises:
        UsageFault: It has another form.
    """
    found = _FORM.fullmatch(text)
    if found is None:
        raise UsageFault(f"{option} takes a duration such as 30s, 15m, 1h or 7d, not {text}")
    return float(found[1]) * _SECONDS[found[2]]
