"""JSON as it comes from outside, refused where it could not be written again."""

from __future__ import annotations

import json
import math
from typing import Any, NoReturn


def parse_json(octets: bytes) -> Any:
    """The value in a JSON text.

    Args:
        octets: UTF-8.
    Raises:
        ValueError: It is no JSON, or has what UTF-8 and JSON cannot hold: half a character, numbers without end.
    """
    text = octets.decode("utf-8")
    try:
        value = json.loads(text, parse_constant=_refuse, parse_float=_finite)
    except RecursionError:
        raise ValueError("nested too deep") from None
    # Only an escape can stand for half a character.
    if "\\ud" in text or "\\uD" in text:
        json.dumps(value, ensure_ascii=False).encode("utf-8")
    return value


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no JSON")


def _finite(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise ValueError(f"{text} is too large")
    return number
